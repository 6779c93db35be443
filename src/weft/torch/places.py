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
    "masked": "maskedtensor",
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
    "torch.distributed.*": "Weft runs in one process; torch.distributed.is_available() "
    "is False, so guard the call with it",
    "torch.nn.parallel.DistributedDataParallel": "Weft runs in one process; train "
    "the module itself, all cores are used",
    "torch.nn.DataParallel": "there are no GPUs to share a batch among; call the "
    "module itself, all cores are used",
    "torch.onnx.*": "Weft writes no ONNX files; torch.save(torch.compile(f), path) "
    "keeps a program",
    "torch.ao*": "Weft has no quantized tensors; use bfloat16, or int8 products with "
    "torch.mm(a, b, out_dtype=torch.int32)",
    "torch.quantization*": "Weft has no quantized tensors; use bfloat16",
    "torch.nn.quantized*": "Weft has no quantized tensors; use bfloat16",
    "torch.nn.qat*": "Weft has no quantized tensors; use bfloat16",
    "torch.nn.intrinsic*": "Weft has no quantized tensors; torch.compile fuses layers",
    "torch.quantize*": "Weft has no quantized tensors; use bfloat16",
    "torch.q*int*": "Weft has no quantized tensors; use bfloat16",
    "torch.*[qQ]uantize*": "Weft has no quantized tensors; use bfloat16",
    "torch._inductor*": "it is the inside of PyTorch's compiler; use torch.compile",
    "torch._functorch*": "use torch.func",
    "torch.package*": "use torch.save and torch.load",
    "torch.masked.*asked*": "PyTorch calls it a prototype; use where, and the "
    "functions of torch.masked",
    "torch.nested*": "pad the sequences and pass a mask, or use torch.nn.utils.rnn",
    "torch.cuda.*": "there is no GPU; torch.cuda.is_available() is False, so guard the "
    "call with it",
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
