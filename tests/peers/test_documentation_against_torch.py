"""The examples in PyTorch's own documentation, run by PyTorch and by Weft.

The installed package's docstrings are read here, so nothing of them is kept. What an
example prints must be the same text with the same numbers. Random numbers come from
NumPy in both, so that random examples are compared as well.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import math
import re
import signal
import types
import warnings

import numpy as np
import pytest

import weft
import weft.distributions
import weft.fft
import weft.signal.windows
import weft.special
from weft import naming

torch = pytest.importorskip("torch")

MODULES = (
    "torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init",
    "torch.nn.utils.rnn", "torch.nn.utils.parametrize",
    "torch.nn.utils.prune", "torch.linalg", "torch.special", "torch.fft",
    "torch.signal.windows", "torch.func", "torch.autograd", "torch.autograd.functional",
    "torch.autograd.graph", "torch.autograd.forward_ad",
    "torch.optim.lr_scheduler", "torch.distributions", "torch.sparse",
)  # fmt: skip
# Examples that differ, and why.
DIFFERENT = {
    # numbers or objects that no two libraries share
    "torch.empty_like": "shows memory that was never written",
    "torch.empty_strided": "shows memory that was never written",
    "torch.sort": "PyTorch's order of equal elements is free",
    "torch.Tensor.grad_dtype": "a gradient has its tensor's dtype",
    "torch.nn.utils.skip_init": "shows memory that was never written",
    "torch.vmap": "shows an address",
    "torch.func.vmap": "shows an address",
    "torch.meshgrid": "shows an address",
    "torch.from_dlpack": "shows an address",
    # what Weft does not have, with the reason of docs/pytorch.md
    "torch.fake_quantize_per_channel_affine": "quantisation",
    "torch.fake_quantize_per_tensor_affine": "quantisation",
    "torch.quantized_batch_norm": "quantisation",
    "torch.quantized_max_pool1d": "quantisation",
    "torch.quantized_max_pool2d": "quantisation",
    "torch.conj": "a conjugate is computed, so is_conj() is False",
    "torch.resolve_conj": "a conjugate is computed, so is_conj() is False",
    "torch.resolve_neg": "a negative is computed, so is_neg() is False",
    "torch.set_flush_denormal": "denormal numbers are kept",
    "torch.func.functionalize": "Weft has no make_fx",
    "torch.func.rearrange": "a name that is missing",
    "torch.autograd.enforce_grad_layout_policy": "a gradient has one layout",
    "torch.autograd.graph.saved_tensors_hooks": "values are packed without history",
    "torch.sparse.mm": "no reductions but the sum",
    "torch.sparse.spdiags": "the order of the elements is free",
    "torch.hash_tensor": "a name that is missing",
    "torch.Tensor.hash_tensor": "a name that is missing",
    # where Weft answers and PyTorch refuses
    "torch.inference_mode": "inference tensors count their versions",
    "torch.lerp": "operands are promoted",
    "torch.quantile": "the dtype of q is free",
    "torch.Tensor.dim_order": "ambiguity_check",
    # signs of eigenvectors, and last bits
    "torch.svd": "signs of singular vectors",
    "torch.linalg.eigh": "signs of eigenvectors",
    "torch.linalg.householder_product": "shows a rounding error",
    "torch.linalg.ldl_solve": "shows a rounding error",
    "torch.linalg.lu_solve": "shows a rounding error",
    "torch.linalg.solve": "shows a rounding error",
    "torch.linalg.solve_triangular": "shows a rounding error",
    "torch.linalg.lstsq": "shows a rounding error",
    "torch.linalg.svdvals": "shows a rounding error",
    "torch.nn.Unfold": "shows a rounding error",
}
# Layers whose examples are large; tests/peers/test_layers_against_torch.py has them.
LARGE = re.compile(
    r"torch\.nn\.\w*(Conv|Pool|Norm|LSTM|GRU|RNN|Transformer|Upsampl|Pad|Drop|Fold|"
    r"fold|Attention|Bilinear|pool|conv)"
)
DRAWN = ("randn", "rand", "randint", "randperm", "randn_like", "empty")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf\b|nan\b)")
_PARSER = doctest.DocTestParser()


class Namespace:
    """``torch`` with random numbers of NumPy's."""

    def __init__(self, library):
        self.__dict__.update(_library=library, _rng=np.random.default_rng(0))

    def __getattr__(self, name):
        if name in DRAWN:
            return lambda *args, **kw: self._draw(name, args, kw)
        return getattr(self._library, name)

    def _draw(self, name, args, kw):
        lib, rng = self._library, self._rng
        plain = {"requires_grad", "dtype", "size"} >= kw.keys()
        if name == "randint" or not plain:
            values = rng.integers(0, 2**31, 64)
            found = getattr(lib, name)(*args, **kw)
            kind = str(found.dtype).rpartition(".")[2]
            low, high = (0, args[0]) if len(args) == 2 else (*args[:2], 0, 10)[:2]
            span = max(int(high) - int(low), 1) if name == "randint" else 1
            flat = np.resize(values, found.numel()) % span + low
            if name != "randint":
                flat = rng.normal(size=found.numel())
            return lib.from_numpy(flat.reshape(tuple(found.shape)).astype(kind))
        kind = str(kw.get("dtype") or "float32").rpartition(".")[2]
        if name == "randperm":
            return lib.from_numpy(rng.permutation(args[0]))
        if name == "randn_like":
            shape, kind = tuple(args[0].shape), str(args[0].dtype).rpartition(".")[2]
        else:
            shape = kw.get("size") or args
            shape = tuple(
                shape[0] if shape and not isinstance(shape[0], int) else shape
            )
        values = rng.uniform(size=shape) if name == "rand" else rng.normal(size=shape)
        if "complex" in kind:
            values = values + 1j * rng.normal(size=shape)
        out = lib.from_numpy(np.array(values).astype(kind))
        return out.requires_grad_() if kw.get("requires_grad") else out


def _imported(source, library, scope):
    """Do an import of the examples; whether the line is one."""
    lines = [line.strip() for line in source.strip().splitlines()]
    if not all(line.startswith(("import torch", "from torch")) for line in lines):
        return False
    for line in lines:
        match = re.match(r"from torch([\w.]*) import (.*)", line)
        path = match[1] if match else re.match(r"import torch([\w.]*)", line)[1]
        module = importlib.import_module(library.__name__ + path)
        for part in match[2].split(",") if match else ():
            name, _, alias = part.strip().partition(" as ")
            scope[alias or name] = getattr(module, name)
        if not match and " as " in line:
            scope[line.rpartition(" as ")[2]] = module
    return True


def printed(doc, library, seed=0):
    """What each example prints, or its error."""
    library.manual_seed(seed)
    scope = {
        "torch": Namespace(library), "nn": library.nn, "F": library.nn.functional,
        "optim": library.optim, "np": np, "math": math, "init": library.nn.init,
    }  # fmt: skip
    found = []
    for example in _PARSER.get_examples(doc):
        out = io.StringIO()
        try:
            signal.alarm(20)
            with contextlib.redirect_stdout(out):
                if not _imported(example.source, library, scope):
                    exec(compile(example.source, "<example>", "single"), scope)
            found.append((example.source, out.getvalue(), None))
        except Exception as error:
            found.append((example.source, "", error))
        finally:
            signal.alarm(0)
    return found


def alike(theirs, ours):
    """Whether two texts are the same but for white space and the last digits."""

    def plain(text):
        return re.sub(r"<[\w.]+ object at 0x[0-9a-f]+>|grad_fn=<\w+>", "", text)

    def words(text):
        return re.sub(r"\s+", "", _NUMBER.sub("#", text))

    theirs, ours = plain(theirs), plain(ours)
    one, two = ([float(n) for n in _NUMBER.findall(t)] for t in (theirs, ours))
    same = words(theirs) == words(ours) and len(one) == len(two)
    return same and np.allclose(one, two, rtol=1e-3, atol=2e-4, equal_nan=True)


def documented(module):
    try:
        owner = importlib.import_module(module)
    except ImportError:
        owner = getattr(torch, module.rpartition(".")[2])
    seen = set()
    for name in dir(owner):
        value = getattr(owner, name, None)
        doc = getattr(value, "__doc__", None)
        plain = isinstance(doc, str) and ">>>" in doc and not name.startswith("_")
        if plain and doc not in seen and not isinstance(value, types.ModuleType):
            seen.add(doc)
            yield f"{module}.{name}", doc


def _too_long(*_):
    raise TimeoutError("an example takes more than twenty seconds")


@pytest.fixture
def torch_texts():
    naming.rename("torch")
    before = signal.signal(signal.SIGALRM, _too_long)
    yield
    signal.signal(signal.SIGALRM, before)
    naming.rename("weft")
    weft.set_grad_enabled(True)
    torch.set_grad_enabled(True)
    weft.set_default_device(None)
    torch.set_default_device(None)
    weft.set_default_dtype(weft.float32)
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)
    weft.use_deterministic_algorithms(False)
    torch.set_printoptions(profile="default")
    weft.set_printoptions(profile="default")


@pytest.mark.parametrize("module", MODULES)
def test_examples_print_what_pytorch_prints(module, torch_texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    count, wrong = 0, []
    for name, doc in documented(module):
        if name in DIFFERENT or LARGE.match(name) or "cuda" in doc:
            continue
        if "set_default" in name:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                theirs, again = printed(doc, torch), printed(doc, torch, seed=1)
            except ValueError:
                continue  # the docstring is badly indented
            ours = printed(doc, weft)
        rows = zip(theirs, again, ours, strict=True)
        for (source, wanted, refused), (_, other, _), (_, got, error) in rows:
            if refused is not None:
                continue
            count += 1
            drawn = not alike(wanted, other)  # by the library itself
            if error is not None or not (drawn or alike(wanted, got)):
                wrong.append(f"{name}: {source}torch: {wanted}weft: {error or got}")
                break
    assert not wrong, "\n".join(wrong)
    assert count
