"""Of TensorFlow 1's common names, each is here or says why it is not."""

import pathlib
import subprocess
import sys

import pytest

from weft import static
from weft.static.absent import REASONS

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "static.md"
COMMON_TEXT = """
AUTO_REUSE Assert ConfigProto FIFOQueue GPUOptions Graph GraphKeys InteractiveSession
Operation Print RandomShuffleQueue RegisterGradient RunMetadata RunOptions Session
Tensor TensorShape Variable VariableScope abs accumulate_n acos acosh add add_n
add_to_collection add_to_collections all_variables arg_max arg_min argmax argmin
argsort as_dtype asin asinh assert_equal assert_greater assert_greater_equal
assert_less assert_less_equal assert_negative assert_non_negative assert_none_equal
assert_positive assign assign_add assign_sub atan atan2 atanh bfloat16 bincount bool
boolean_mask broadcast_to case cast ceil check_numerics cholesky clip_by_average_norm
clip_by_global_norm clip_by_norm clip_by_value complex128 complex64 concat cond
confusion_matrix constant constant_initializer control_dependencies convert_to_tensor
cos cosh count_nonzero cross cumprod cumsum depth_to_space device diag diag_part
digamma disable_eager_execution disable_v2_behavior div div_no_nan divide double
dynamic_partition einsum equal erf erfc exp expand_dims expm1 eye fill float16 float32
float64 floor floor_div floordiv floormod gather gather_nd get_collection
get_collection_ref get_default_graph get_default_session get_variable
get_variable_scope global_norm global_variables global_variables_initializer
glorot_normal_initializer glorot_uniform_initializer gradients greater greater_equal
group half histogram_fixed_width identity initialize_all_variables int16 int32 int64
int8 is_finite is_inf is_nan is_variable_initialized less less_equal lgamma lin_space
linspace local_variables local_variables_initializer log log1p logical_and logical_not
logical_or logical_xor map_fn matmul matrix_band_part matrix_determinant matrix_diag
matrix_diag_part matrix_inverse matrix_solve matrix_transpose maximum meshgrid minimum
mod model_variables moving_average_variables multinomial multiply name_scope negative
newaxis no_op norm not_equal one_hot ones ones_initializer ones_like
orthogonal_initializer pad placeholder placeholder_with_default pow print py_func qr
random_crop random_normal random_normal_initializer random_shuffle random_uniform
random_uniform_initializer range rank realdiv reciprocal reduce_all reduce_any
reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_sum
reset_default_graph reshape reverse reverse_sequence rint round rsqrt saturate_cast
scalar_mul scan scatter_add scatter_nd scatter_sub scatter_update segment_max
segment_mean segment_sum self_adjoint_eig sequence_mask set_random_seed shape sigmoid
sign sin sinh size slice sort space_to_depth split sqrt square squared_difference
squeeze stack stop_gradient strided_slice subtract svd tables_initializer tan tanh
tensor_scatter_update tensordot tile to_double to_float to_int32 to_int64 trace
trainable_variables transpose truediv truncated_normal truncated_normal_initializer
Dimension SparseTensor SparseTensorValue Summary TensorArray angle assert_non_positive
assert_rank assert_rank_at_least assert_rank_in assert_scalar assert_type batch_gather
batch_to_space batch_to_space_nd cholesky_solve complex conj custom_gradient
dimension_value dynamic_stitch ensure_shape extract_image_patches fft fft2d foldl foldr
hessians identity_n ifft ifft2d igamma imag invert_permutation log_sigmoid
matrix_set_diag matrix_triangular_solve random_gamma real repeat roll scatter_div
scatter_max scatter_min scatter_mul scatter_nd_add scatter_nd_sub scatter_nd_update
searchsorted self_adjoint_eigvals shape_n space_to_batch space_to_batch_nd
sparse_placeholder sparse_reduce_sum sparse_tensor_dense_matmul sparse_tensor_to_dense
sparse_to_dense string tensor_scatter_add tensor_scatter_nd_update truncatediv
unravel_index verify_tensor_all_finite distributions.Bernoulli
distributions.Categorical distributions.Normal distributions.Uniform
distributions.kl_divergence image.adjust_hue image.adjust_saturation
image.crop_and_resize image.grayscale_to_rgb image.hsv_to_rgb image.psnr
image.random_contrast image.random_hue image.random_saturation image.resize_area
image.resize_bicubic image.rgb_to_hsv image.rot90 image.sobel_edges
image.total_variation linalg.logdet linalg.matvec math.erfinv math.xlogy metrics.auc
metrics.false_negatives metrics.false_positives metrics.mean_iou
metrics.mean_per_class_accuracy metrics.true_negatives metrics.true_positives
nn.convolution nn.ctc_loss nn.depthwise_conv2d_native nn.log_poisson_loss
nn.max_pool_with_argmax nn.pool nn.relu_layer nn.weighted_moments summary.text
train.FeedFnHook train.FinalOpsHook train.NanTensorHook train.NewCheckpointReader
train.StepCounterHook train.SummarySaverHook train.list_variables train.load_checkpoint
train.load_variable truncatemod tuple uint8 unique unsorted_segment_max
unsorted_segment_mean
unsorted_segment_min unsorted_segment_prod unsorted_segment_sum unstack variable_scope
variables_initializer variance_scaling_initializer where while_loop zeros
zeros_initializer zeros_like app.flags app.run contrib.layers.batch_norm
contrib.layers.conv2d contrib.layers.dropout contrib.layers.flatten
contrib.layers.fully_connected contrib.layers.l1_regularizer
contrib.layers.l2_regularizer contrib.layers.max_pool2d
contrib.layers.variance_scaling_initializer contrib.layers.xavier_initializer
contrib.layers.xavier_initializer_conv2d contrib.rnn.BasicLSTMCell
contrib.rnn.BasicRNNCell contrib.rnn.DropoutWrapper contrib.rnn.GRUCell
contrib.rnn.LSTMCell contrib.rnn.LSTMStateTuple contrib.rnn.MultiRNNCell
contrib.rnn.static_bidirectional_rnn contrib.rnn.static_rnn data.Dataset data.Iterator
data.make_initializable_iterator data.make_one_shot_iterator
errors.InvalidArgumentError errors.NotFoundError errors.OpError errors.OutOfRangeError
flags.DEFINE_bool flags.DEFINE_boolean flags.DEFINE_enum flags.DEFINE_float
flags.DEFINE_integer flags.DEFINE_string flags.FLAGS gfile.Exists gfile.GFile
gfile.Glob gfile.ListDirectory gfile.MakeDirs gfile.Open image.ResizeMethod
image.adjust_brightness image.central_crop image.convert_image_dtype
image.crop_to_bounding_box image.flip_left_right image.flip_up_down
image.per_image_standardization image.random_brightness image.random_flip_left_right
image.resize_bilinear image.resize_image_with_crop_or_pad image.resize_images
image.resize_nearest_neighbor image.rgb_to_grayscale initializers.constant
initializers.glorot_normal initializers.glorot_uniform initializers.he_normal
initializers.he_uniform initializers.identity initializers.lecun_normal
initializers.ones initializers.orthogonal initializers.random_normal
initializers.random_uniform initializers.truncated_normal
initializers.variance_scaling initializers.zeros layers.AveragePooling2D
layers.BatchNormalization layers.Conv1D layers.Conv2D layers.Conv2DTranspose
layers.Conv3D layers.Dense layers.Dropout layers.Flatten layers.Layer
layers.MaxPooling2D layers.SeparableConv2D layers.average_pooling1d
layers.average_pooling2d layers.average_pooling3d layers.batch_normalization
layers.conv1d layers.conv2d layers.conv2d_transpose layers.conv3d
layers.conv3d_transpose layers.dense layers.dropout layers.flatten
layers.max_pooling1d layers.max_pooling2d layers.max_pooling3d layers.separable_conv2d
linalg.band_part linalg.det linalg.eye linalg.inv linalg.norm linalg.solve linalg.svd
logging.INFO logging.info logging.set_verbosity losses.Reduction
losses.absolute_difference losses.add_loss losses.compute_weighted_loss
losses.cosine_distance losses.get_losses losses.get_regularization_loss
losses.get_regularization_losses losses.get_total_loss losses.hinge_loss
losses.huber_loss losses.log_loss losses.mean_squared_error
losses.sigmoid_cross_entropy losses.softmax_cross_entropy
losses.sparse_softmax_cross_entropy math.abs math.exp math.log math.reduce_mean
math.reduce_std math.top_k metrics.accuracy metrics.mean metrics.mean_absolute_error
metrics.mean_squared_error metrics.precision metrics.recall
metrics.root_mean_squared_error nn.atrous_conv2d nn.avg_pool nn.batch_normalization
nn.bias_add nn.bidirectional_dynamic_rnn nn.conv1d nn.conv2d nn.conv2d_transpose
nn.conv3d nn.conv3d_transpose nn.crelu nn.depthwise_conv2d nn.dropout nn.dynamic_rnn
nn.elu nn.embedding_lookup nn.fused_batch_norm nn.in_top_k nn.l2_loss nn.l2_normalize
nn.leaky_relu nn.local_response_normalization nn.log_softmax
nn.log_uniform_candidate_sampler nn.lrn nn.max_pool nn.moments nn.nce_loss nn.relu
nn.relu6 nn.rnn_cell.BasicLSTMCell nn.rnn_cell.BasicRNNCell nn.rnn_cell.DropoutWrapper
nn.rnn_cell.GRUCell nn.rnn_cell.LSTMCell nn.rnn_cell.LSTMStateTuple
nn.rnn_cell.MultiRNNCell nn.rnn_cell.RNNCell nn.rnn_cell.ResidualWrapper
nn.sampled_softmax_loss nn.selu nn.separable_conv2d nn.sigmoid
nn.sigmoid_cross_entropy_with_logits nn.softmax nn.softmax_cross_entropy_with_logits
nn.softmax_cross_entropy_with_logits_v2 nn.softplus nn.softsign
nn.sparse_softmax_cross_entropy_with_logits nn.static_bidirectional_rnn nn.static_rnn
nn.swish nn.tanh nn.top_k nn.uniform_candidate_sampler
nn.weighted_cross_entropy_with_logits nn.xw_plus_b nn.zero_fraction random.normal
random.shuffle random.truncated_normal random.uniform summary.FileWriter
summary.histogram summary.image summary.merge summary.merge_all summary.scalar
train.AdadeltaOptimizer train.AdagradOptimizer train.AdamOptimizer
train.CheckpointSaverHook train.Coordinator train.ExponentialMovingAverage
train.FtrlOptimizer train.GradientDescentOptimizer train.LoggingTensorHook
train.MomentumOptimizer train.MonitoredSession train.MonitoredTrainingSession
train.Optimizer train.ProximalGradientDescentOptimizer train.QueueRunner
train.RMSPropOptimizer train.Saver train.SessionRunArgs train.SessionRunHook
train.StopAtStepHook train.add_queue_runner train.batch train.checkpoint_exists
train.cosine_decay train.create_global_step train.exponential_decay
train.get_checkpoint_state train.get_global_step train.get_or_create_global_step
train.global_step train.inverse_time_decay train.latest_checkpoint
train.natural_exp_decay train.piecewise_constant train.polynomial_decay
train.range_input_producer train.shuffle_batch train.slice_input_producer
train.start_queue_runners
"""
COMMON = COMMON_TEXT.split()


def found(name):
    value = static
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_common_names_are_here():
    missing = [name for name in COMMON if not _is_here(name)]
    assert not missing
    assert len(COMMON) > 450
    assert len(set(COMMON)) == len(COMMON)


def _is_here(name):
    try:
        found(name)
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize("name", REASONS)
def test_an_absent_name_says_what_to_use(name):
    with pytest.raises(AttributeError) as error:
        found(name)
    place = name.rpartition(".")[2]
    assert place in str(error.value)
    if "." not in name or hasattr(static, name.partition(".")[0]):
        assert REASONS[name] in str(error.value)


@pytest.mark.parametrize(
    "place", ["", "nn", "train", "layers", "math", "contrib", "data"]
)
def test_a_name_that_is_nowhere_is_named(place):
    name = f"{place}.no_such_name".lstrip(".")
    with pytest.raises(AttributeError, match=rf"no '{name}'"):
        found(name)


def test_the_documentation_has_the_table_of_absent_names():
    rows = [f"| `{name}` | {reason} |" for name, reason in sorted(REASONS.items())]
    assert "\n".join(rows) in DOCS.read_text()


def test_weft_alone_does_not_import_it():
    code = "import sys, weft; print([m for m in sys.modules if m == 'weft.static'])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout == "[]\n", out.stderr


def test_a_name_of_seq2seq_is_refused_by_choice():
    with pytest.raises(AttributeError, match=r"BahdanauAttention.*by choice"):
        _ = static.contrib.seq2seq.BahdanauAttention
