"""TensorFlow 1's names that are not here, each with the reason and what to use instead.

A name that is nowhere says so; one of these says more.
"""

from __future__ import annotations

# Of ``static`` itself and, with a dot, of what is in it.
REASONS = {
    "estimator": "write the loop: session.run(train_op), or weft.Trainer",
    "keras": "use weft.nn modules, or static.layers",
    "data.TFRecordDataset": "there are no records; use data.Dataset.from_generator",
    "data.TextLineDataset": "there are no strings; use data.Dataset.from_generator",
    "TFRecordReader": "there are no records; use data.Dataset.from_generator",
    "TextLineReader": "there are no strings; use data.Dataset.from_generator",
    "WholeFileReader": "there are no strings; read files in Python and feed values",
    "python_io": "there are no records; write arrays with numpy.savez or weft.save",
    "parse_single_example": "there are no records; use data.Dataset.from_generator",
    "parse_example": "there are no records; use data.Dataset.from_generator",
    "FixedLenFeature": "there are no records; use data.Dataset.from_generator",
    "decode_raw": "there are no strings; use numpy.frombuffer",
    "decode_csv": "there are no strings; use numpy.loadtxt",
    "string_split": "there are no strings in graphs; keep them in Python",
    "string_to_number": "there are no strings in graphs; keep them in Python",
    "as_string": "there are no strings in graphs; format fetched values",
    "strings": "there are no strings in graphs; keep them in Python",
    "regex_replace": "there are no strings in graphs; keep them in Python",
    "read_file": "there are no strings; read the file in Python and feed its value",
    "write_file": "there are no strings; write fetched values in Python",
    "train.string_input_producer": "there are no strings; read files in Python",
    "train.Example": "there are no records; write arrays with numpy.savez or weft.save",
    "train.Feature": "there are no records; write arrays with numpy.savez",
    "train.Features": "there are no records; write arrays with numpy.savez",
    "train.SyncReplicasOptimizer": "there is one device",
    "train.Server": "there is one process",
    "train.ClusterSpec": "there is one process",
    "train.replica_device_setter": "there is one device",
    "train.Supervisor": "use train.MonitoredTrainingSession",
    "train.import_meta_graph": "build the graph with your code, then Saver.restore",
    "train.export_meta_graph": "a graph is your code; Saver saves the variables",
    "train.AdagradDAOptimizer": "use train.AdagradOptimizer or train.FtrlOptimizer",
    "train.ProximalAdagradOptimizer": "use train.FtrlOptimizer",
    "import_graph_def": "build the graph with your code",
    "GraphDef": "use graph.snapshot(), Weft's own form of a graph",
    "saved_model": "use train.Saver, or weft.export for a compiled program",
    "report_uninitialized_variables": "there are no strings in graphs; use "
    "is_variable_initialized(v)",
    "IndexedSlices": "gradients of gather are whole tensors",
    "nn.ctc_greedy_decoder": "its shape depends on values; take the argmax of fetched "
    "logits and drop repeats and blanks in Python",
    "nn.ctc_beam_search_decoder": "its shape depends on values; decode fetched "
    "logits in Python",
    "edit_distance": "its labels are sparse; compute it on fetched values",
    "nn.embedding_lookup_sparse": "there are no sparse tensors; use "
    "weft.nn.functional.embedding_bag",
    "nn.raw_rnn": "use while_loop with the cell, or nn.dynamic_rnn",
    "nn.quantized_conv2d": "there are no quantized kernels here",
    "nn.fractional_max_pool": "use nn.max_pool",
    "lookup": "there are no strings in graphs; look words up in a Python dictionary",
    "contrib.seq2seq.BasicDecoder": "use nn.dynamic_rnn; decode step by step in Python",
    "contrib.seq2seq.dynamic_decode": "use while_loop with the cell and a TensorArray",
    "contrib.seq2seq.AttentionWrapper": "write the attention over nn.dynamic_rnn's "
    "outputs, or a cell of your own",
    "contrib.learn": "write the loop: session.run(train_op), or weft.Trainer",
    "contrib.crf": "use scan",
    "contrib.cudnn_rnn": "use nn.dynamic_rnn",
    "contrib.legacy_seq2seq": "use nn.static_rnn or nn.dynamic_rnn",
    "contrib.training": "keep hyperparameters in a Python object",
    "distribute": "there is one device",
    "profiler": "use weft's explain, or RunMetadata",
    "resource_loader": "use importlib.resources",
    "summary.audio": "use weft.training.SummaryWriter",
    "image.decode_jpeg": "there are no strings; decode in Python and feed the array",
    "image.decode_png": "there are no strings; decode in Python and feed the array",
    "image.decode_image": "there are no strings; decode in Python and feed the array",
    "setdiff1d": "its shape depends on values; call numpy.setdiff1d on fetched values",
    "contrib.data": "use data",
    "compat": "use weft.static itself: it is TensorFlow 1's interface",
    "ragged": "there are no ragged tensors; use padded_batch and sequence_mask",
    "enable_eager_execution": "weft itself is eager: import weft",
    "function": "use weft.compile",
    "GradientTape": "use gradients, or weft's own eager autograd",
    "Module": "use weft.nn.Module",
}

# of every other name in a namespace
OTHERS = {
    "contrib.seq2seq": "decoders and attention are not here, by choice; write them "
    "over nn.dynamic_rnn's outputs and while_loop",
}


def error(place: str, name: str) -> AttributeError:
    """The error for a name that is not there."""
    full = f"{place}.{name}" if place else name
    text = f"weft.static has no {full!r}"
    reason = REASONS.get(full) or OTHERS.get(place)
    return AttributeError(f"{text}: {reason}" if reason else text)
