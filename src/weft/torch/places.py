"""The places of PyTorch's names in Weft, and the reasons why some are not there."""

from __future__ import annotations

import fnmatch

# Modules that are elsewhere in Weft; "" is ``weft`` itself. A module of Weft's with the
# same path comes first.
MOVED = {
    "functional": "",
    "random": "",
    "_dynamo": "torch.dynamo",
    "onnx": "torch.onnx",
    "quasirandom": "torch.quasirandom",
    "_subclasses.fake_tensor": "torch.fake_tensor",
    "_subclasses": "torch",
    "fx.experimental": "torch",
    "fx.experimental.proxy_tensor": "torch.fake_tensor",
    "_tensor": "",
    "_tensor_str": "printing",
    "_utils": "utils",
    "torch_version": "torch.version",
    "autograd.function": "autograd",
    "autograd.variable": "autograd",
    "autograd.grad_mode": "autograd",
    "autograd.gradcheck": "autograd",
    "autograd.anomaly_mode": "autograd",
    "autograd.profiler": "profiler",
    "autograd.profiler_util": "profiler",
    "amp.autocast_mode": "amp",
    "amp.grad_scaler": "amp",
    "cuda.random": "cuda",
    "cuda.memory": "cuda",
    "cuda.streams": "cuda",
    "nn.modules": "nn",
    "nn.utils.clip_grad": "nn.utils",
    "nn.utils.convert_parameters": "nn.utils",
    "nn.utils.weight_norm": "nn.utils",
    "nn.utils.spectral_norm": "nn.utils",
    "nn.utils.fusion": "nn.utils",
    "nn.utils.init": "nn.utils",
    "profiler.profiler": "profiler",
    "distributed._tensor": "distributed.tensor",
    "distributed._tensor.experimental": "distributed.tensor",
    "distributed.tensor.experimental": "distributed.tensor",
    "distributed.checkpoint.state_dict": "distributed.full_state",
    "distributed._composable": "distributed",
    "distributed._composable.fsdp": "distributed.fsdp",
}
VISION_MOVED = {"transforms.v2.functional": "transforms.functional"}

# Packages that are one module in Weft, and their modules in PyTorch.
_TOGETHER = {
    "optim": "_adafactor _functional _muon adadelta adagrad adam adamax adamw asgd "
    "lbfgs nadam optimizer radam rmsprop rprop sgd sparse_adam",
    "distributions": "bernoulli beta binomial categorical cauchy chi2 "
    "continuous_bernoulli dirichlet distribution exp_family exponential fishersnedecor "
    "gamma generalized_pareto geometric gumbel half_cauchy half_normal independent "
    "inverse_gamma kl kumaraswamy laplace lkj_cholesky log_normal logistic_normal "
    "lowrank_multivariate_normal mixture_same_family multinomial multivariate_normal "
    "negative_binomial normal one_hot_categorical pareto poisson relaxed_bernoulli "
    "relaxed_categorical studentT transformed_distribution uniform utils von_mises "
    "weibull wishart",
    "jit": "_script _serialization _trace annotations frontend",
    "multiprocessing": "pool queue reductions spawn",
    "utils.data": "_utils dataloader dataset distributed sampler",
    "nn.parallel": "comm data_parallel distributed parallel_apply replicate "
    "scatter_gather",
    "cuda.amp": "autocast_mode common grad_scaler",
    "utils.tensorboard": "summary writer",
    "fx": "_symbolic_trace graph graph_module interpreter node proxy subgraph_rewriter",
    "testing": "_comparison _creation",
}
_VISION_TOGETHER = {
    "datasets": "cifar fakedata folder mnist utils vision",
    "models": "_api _utils alexnet densenet googlenet inception mobilenet mobilenetv2 "
    "mobilenetv3 resnet squeezenet vgg vision_transformer",
    "transforms": "autoaugment transforms v2",
    "ops": "boxes misc roi_align roi_pool stochastic_depth focal_loss",
}
_DYNAMO = (
    "_trace_wrapped_higher_order_op config decorators eval_frame exc external_utils"
)
MOVED |= {f"_dynamo.{name}": "torch.dynamo" for name in _DYNAMO.split()}
for _table, _packages in ((MOVED, _TOGETHER), (VISION_MOVED, _VISION_TOGETHER)):
    for _package, _names in _packages.items():
        _table.update({f"{_package}.{name}": _package for name in _names.split()})

# Names that Weft deliberately has not, by patterns, and what to do instead.
_REASONS = {
    "torch._C*": "it is PyTorch's C++ core; use the public name",
    "torch.utils.cpp_extension*": "Weft runs no C++ or CUDA extensions; write the "
    "operator in Python with torch.library.custom_op or torch.autograd.Function, and "
    "compile it with torch.compile",
    "torch.utils.cpp_backtrace*": "there is no C++ core",
    "torch.utils.mobile_optimizer*": "there is no mobile runtime; torch.save a "
    "compiled function instead",
    "torch.distributed.*Store*": "processes find together by init_process_group("
    "init_method='tcp://host:port') or a launcher's environment",
    "torch.distributed.*": "it is a part of PyTorch's engines, or not there yet; the "
    "collectives of torch.distributed and DistributedDataParallel are",
    "torch.nn.DataParallel": "a batch is not shared among GPUs; call the module itself",
    "torch.onnx.*": "torch.onnx.export writes ONNX files, and weft.onnx reads them",
    "torch.ao*": "Weft has no quantized tensors; use weft.quantize, or products of "
    "int8 with torch.mm(a, b, out_dtype=torch.int32)",
    "torch.quantization*": "Weft has no quantized tensors; use weft.quantize",
    "torch.nn.quantized*": "Weft has no quantized tensors; use weft.quantize",
    "torch.nn.qat*": "Weft has no quantized tensors; use weft.quantize",
    "torch.nn.intrinsic*": "Weft has no quantized tensors; torch.compile fuses layers",
    "torch.quantize*": "Weft has no quantized tensors; use weft.quantize",
    "torch.q*int*": "Weft has no quantized tensors; use weft.quantize",
    "torch.*[qQ]uantize*": "Weft has no quantized tensors; use weft.quantize",
    "torch._inductor*": "it is the inside of PyTorch's compiler; use torch.compile",
    "torch._functorch*": "use torch.func",
    "torch.package*": "use torch.save and torch.load",
    "torch.masked.*asked*": "PyTorch calls it a prototype; use where, and the "
    "functions of torch.masked",
    "torch.autograd.enforce_grad_layout_policy": "gradients are contiguous",
    "torch.autograd.graph.region_activation*": "use torch.utils.checkpoint",
    "torch.autograd.Function.boxed_grads_call": "it is a part of PyTorch's engine",
    "torch.autograd.Function.clear_saved_tensors*": "saved values are freed in "
    "backward",
    "torch*.hash_tensor": "PyTorch does not document it",
    "torch*.const_data_ptr": "use data_ptr()",
    "torch.Tensor.sspaddmm": "use torch.sparse.addmm",
    "torch.Tensor.sparse_resize_*": "make a new sparse tensor of the other size",
    "torch.overrides.*testing_overrides": "it is for PyTorch's own tests",
    "torch.overrides.enable_reentrant*": "it is a part of PyTorch's dispatcher",
    "torch.overrides.redispatch*": "it is a part of PyTorch's dispatcher",
    "torch.profiler.ExecutionTrace*": "use torch.profiler.profile",
    "torch.compiler.*cache_artifacts": "compiled kernels are cached on disk by "
    "themselves; see weft cache",
    "torch.export.Constraint": "PyTorch calls it a part of its machinery; use Dim",
    "torch.export.CustomDecompTable": "operators of an exported program are primitive; "
    "run_decompositions takes a dictionary",
    "torch.export.ExportBackwardSignature": "export the forward pass; module() trains",
    "torch.export.FlatArgsAdapter": "modules are not unflattened; use ep.module()",
    "torch.export.ModuleCall*": "calls of submodules are not kept; each node's "
    "meta['nn_module_stack'] names its module",
    "torch.export.[uU]nflatten*": "ep.module() keeps the names of parameters; nodes of "
    "all submodules are in one graph",
    "torch.cuda.*": "GPUs have one queue and one allocator here; see docs/gpu.md",
    "torch.xpu.*": "there is no XPU; torch.xpu.is_available() is False",
    "torch.mps.*": "there is no MPS device; torch.backends.mps.is_available() is False",
    "torch.mtia.*": "there is no MTIA device; torch.mtia.is_available() is False",
    "torch.*Storage": "a tensor's memory is an array: use x.numpy()",
    "torch.classes*": "TorchScript classes are C++; use a Python class",
    "torch.testing._internal*": "it is for PyTorch's own tests; use "
    "torch.testing.assert_close",
    "torch.cudnn_*": "it is a kernel of cuDNN; use the function of torch.nn",
    "torch.miopen_*": "it is a kernel of MIOpen; use the function of torch.nn",
    "torch.mkldnn_*": "it is a kernel of oneDNN; use the function of torch.nn",
    "torch.fbgemm_*": "it is a kernel of FBGEMM; use the function of torch.nn",
    "torch.sym_*": "sizes are ints in Weft; use Python's own functions",
    "torch.Sym*": "sizes are ints in Weft",
    "torch.bits*": "Weft has no such dtype",
    "torch.*[0-9]x[0-9]*": "Weft has no such dtype",
    "torch.int[1-7]": "Weft has no such dtype",
    "torch.uint[1-7]": "Weft has no such dtype",
    "torch.bit": "Weft has no such dtype",
    "torch.complex32": "Weft has no such dtype; use complex64",
    "torch*.chalf": "Weft has no such dtype; use complex64",
    "torch.per_*": "Weft has no quantized tensors; use weft.quantize",
    "torch*.q_*": "Weft has no quantized tensors; use weft.quantize",
    "torch*.int_repr": "Weft has no quantized tensors; use weft.quantize",
    "torch.Tensor.qscheme": "Weft has no quantized tensors; use weft.quantize",
    "torch.choose_qparams*": "Weft has no quantized tensors; use weft.quantize",
    "torch.fused_moving_avg*": "Weft has no quantized tensors; use weft.quantize",
    "torch*.eig": "PyTorch has removed it; use torch.linalg.eig",
    "torch*.symeig": "PyTorch has removed it; use torch.linalg.eigh",
    "torch*.lstsq": "PyTorch has removed it; use torch.linalg.lstsq",
    "torch*.solve": "PyTorch has removed it; use torch.linalg.solve",
    "torch.matrix_rank": "PyTorch has removed it; use torch.linalg.matrix_rank",
    "torch.Tensor.lu": "PyTorch calls it deprecated; use torch.linalg.lu_factor",
    "torch.Tensor.resize": "PyTorch calls it deprecated; use resize_ or reshape",
    "torch.Tensor.resize_as": "PyTorch calls it deprecated; use resize_as_",
    "torch.Tensor.reinforce": "PyTorch has removed it; use torch.distributions",
    "torch.Tensor.volatile": "PyTorch has removed it; use torch.no_grad()",
    "torch.Tensor.to_mkldnn": "oneDNN is not used; the tensor itself is fast",
    "torch.Tensor.ipu": "there is no IPU",
    "torch.Tensor.xpu": "there is no XPU; torch.xpu.is_available() is False",
    "torch.Tensor.mtia": "there is no MTIA device",
    "torch.Tensor.record_stream": "the CPU has no streams",
    "torch.*_autocast_ipu_*": "there is no such device",
    "torch.*_autocast_xla_*": "there is no such device",
    "torch.*_autocast_gpu_*": "PyTorch calls it deprecated; use torch.autocast",
    "torch.autocast_*crement_nesting": "a block of torch.autocast does it",
    "torch.is_vulkan_available": "there is no such device",
    "torch.profiler_allow_cudagraph*": "it is about NVIDIA's own profiler",
    "torch.has_*": "it tells how PyTorch was built",
    "torch.USE_*": "it tells how PyTorch was built",
    "torch.backends.cuda.*": "there is no cuBLAS, cuFFT or cuSOLVER to set: GPUs run "
    "Weft's own kernels; see docs/gpu.md",
    "torch.sparse.*emiStructured*": "its kernels need a GPU",
    "torch.sparse.to_sparse_semi_structured": "its kernels need a GPU",
    "torch.nn.attention.*flash_attention_impl*": "its kernels need a GPU",
    "torch.accelerator.Graph": "it records work of a GPU",
    "torch.autograd.graph.set_override_stale*": "it is about streams of a GPU",
    "torch.autograd.graph.set_warn_on_accum*": "it is about streams of a GPU",
    "torch.Generator.graphsafe_*": "it is about graphs of a GPU",
    "torch.library.*triton*": "Triton's kernels need a GPU",
    "torch.utils.*privateuse1*": "weft.register_device adds a device",
    "torch.utils.cmake_prefix_path": "there is no C++ core",
    "torch.utils.get_cpp_backtrace": "there is no C++ core",
    "torch.utils.ThroughputBenchmark": "use torch.utils.benchmark",
    "torch.utils.data.*DataPipe*": "PyTorch calls it deprecated; use a Dataset",
    "torch.utils.data.*datapipe*": "PyTorch calls it deprecated; use a Dataset",
    "torch.utils.data.*valid*": "PyTorch calls it deprecated; use a Dataset",
    "torch.utils.data.DataChunk": "PyTorch calls it deprecated; use a Dataset",
    "torch.utils.data.*determin*": "PyTorch calls it deprecated; use a Dataset",
    "torch.jit.*onednn*": "oneDNN is not used",
    "torch.jit.set_fusion_strategy": "weft.compile chooses what to fuse",
    "torch.jit.strict_fusion": "weft.compile chooses what to fuse",
    "torch.jit.CompilationUnit": "it is TorchScript's machinery; use torch.jit.script",
    "torch.jit.export_opnames": "it is TorchScript's machinery",
    "torch.*_ir*": "it is TorchScript's machinery",
    "torch.parse_*": "it is TorchScript's machinery",
    "torch.CompilationUnit": "it is TorchScript's machinery; use torch.jit.script",
    "torch.ScriptFunction": "it is TorchScript's machinery; use torch.jit.script",
    "torch.JITException": "it is TorchScript's machinery",
    "torch.unify_type_list": "it is TorchScript's machinery",
    "torch.merge_type_from_type_comment": "it is TorchScript's machinery",
    "torch.fork": "use torch.jit.fork",
    "torch.wait": "use torch.jit.wait",
    "torch.native_*": "PyTorch does not document it; use torch.nn.functional",
    "torch.grid_sampler*": "PyTorch does not document it; use "
    "torch.nn.functional.grid_sample",
    "torch.affine_grid_generator": "PyTorch does not document it; use "
    "torch.nn.functional.affine_grid",
    "torch.convolution": "PyTorch does not document it; use torch.nn.functional.conv2d",
    "torch.embedding_bag": "PyTorch does not document it; use "
    "torch.nn.functional.embedding_bag",
    "torch.embedding_renorm_": "PyTorch does not document it; use "
    "torch.nn.functional.embedding with max_norm",
    "torch.max_pool1d_with_indices": "PyTorch does not document it; use "
    "torch.nn.functional.max_pool1d",
    "torch.*feature_*dropout*": "PyTorch does not document it; use "
    "torch.nn.functional.dropout1d",
    "torch.alpha_dropout_": "PyTorch does not document it; use "
    "torch.nn.functional.alpha_dropout",
    "torch.rnn_*": "PyTorch does not document it; use torch.nn.RNN",
    "torch.lstm*": "PyTorch does not document it; use torch.nn.LSTM",
    "torch.gru*": "PyTorch does not document it; use torch.nn.GRU",
    "torch.*indices_copy": "PyTorch does not document it; use crow_indices().clone()",
    "torch.values_copy": "PyTorch does not document it; use values().clone()",
    "torch*.slice_inverse": "PyTorch does not document it",
    "torch*.resize_as_sparse_": "PyTorch does not document it",
    "torch.get_file_path": "PyTorch does not document it",
    "torch.init_num_threads": "PyTorch does not document it",
    "torch.prepare_multiprocessing_environment": "PyTorch does not document it",
    "torch.classproperty": "PyTorch does not document it",
    "torch.legacy_contiguous_format": "PyTorch calls it deprecated; use "
    "contiguous_format",
    "torch.PRIVATE_OPS": "PyTorch does not document it",
    "torch.*TYPE_CHECKING": "it is typing's",
    "torch.DispatchKey": "it is a part of PyTorch's dispatcher",
    "torch.Tag": "it is a part of PyTorch's dispatcher",
    "torch.AVG": "PyTorch does not document it",
    "torch.SUM": "PyTorch does not document it",
    "torch.AggregationType": "PyTorch does not document it",
    "torch.nn.functional.*_notes": "it is a text of PyTorch's documentation",
    "torch.linalg.common_notes": "it is a text of PyTorch's documentation",
    "torch.nn.functional.GRID_SAMPLE_*": "PyTorch does not document it",
    "torch.nn.functional.assert_int_or_pair": "PyTorch does not document it",
    "torch.nn.functional.*scaled_*mm": "its kernels need a GPU",
    "torch.nn.functional.S*Type": "its kernels need a GPU",
    "torch.compiler.*guard*": "guards are Weft's own; torch.compile is safe without",
    "torch.serialization.validate_*": "there is no such device",
    "torch.autograd.NestedIOFunction": "PyTorch calls it deprecated; use Function",
    "torch.serialization.SourceChangeWarning": "PyTorch does not document it",
    "torch.serialization.StorageType": "PyTorch does not document it",
    "torch.serialization.location_tag": "PyTorch does not document it",
    "torch.serialization.mkdtemp": "PyTorch does not document it",
    "torch.serialization.normalize_storage_type": "PyTorch does not document it",
    "torch.serialization.storage_to_tensor_type": "PyTorch does not document it",
    "torch.serialization.default_restore_location": "PyTorch does not document it",
    "torch.serialization.check_module_version_greater_or_equal": "PyTorch does "
    "not document it",
    "torch.serialization.register_package": "weft.register_device adds a device",
    "torch.utils.checkpoint.CheckpointFunction": "PyTorch does not document it",
    "torch.utils.checkpoint.DefaultDeviceType": "PyTorch does not document it",
    "torch.utils.checkpoint.GraphExecGroup": "PyTorch does not document it",
    "torch.utils.checkpoint.SAC_IGNORED_OPS": "PyTorch does not document it",
    "torch.utils.checkpoint.get_device_states": "PyTorch does not document it",
    "torch.utils.checkpoint.set_device_states": "PyTorch does not document it",
    "torch.autograd.Function.metadata": "it is of a tensor's node; use x.grad_fn",
    "torch.autograd.Function.name": "it is of a tensor's node; use x.grad_fn",
    "torch.autograd.Function.next_functions": "it is of a tensor's node; use x.grad_fn",
    "torch.autograd.Function.register_hook": "it is of a tensor's node; use x.grad_fn",
    "torch.autograd.Function.register_prehook": "it is of a tensor's node; "
    "use x.grad_fn",
    "torch.autograd.Function.requires_grad": "it is of a tensor's node; use x.grad_fn",
    "torch.autograd.Function.maybe_clear_saved_tensors": "it is of a tensor's node; "
    "use x.grad_fn",
    "torch.autograd.Function.mark_shared_storage": "it is of a tensor's node; "
    "use x.grad_fn",
    "torch.monitor.*": "PyTorch calls it a prototype; use torch.utils.tensorboard",
    "torch.batch_norm_*": "it is a part of PyTorch's kernels; use batch_norm",
    "torch._*": "it is private to PyTorch",
    "torchvision._C*": "it is torchvision's C++ core",
}


def moved(path: str, table: dict[str, str] = MOVED) -> str | None:
    """Weft's path for a module that PyTorch has elsewhere; None if there is none.

    >>> weft.torch.places.moved("optim.adamw")
    'optim'
    """
    return table.get(path)


def why_absent(name: str) -> str:
    """Why a name is deliberately not there, and what to use; "" if it is not yet.

    >>> weft.torch.places.why_absent("torch.package.PackageImporter")
    'use torch.save and torch.load'
    """
    for pattern, reason in _REASONS.items():
        if fnmatch.fnmatchcase(name, pattern):
            return reason
    return ""
