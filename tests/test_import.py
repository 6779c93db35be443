"""Importing weft stays light, and the package ships its types."""

import importlib.metadata
import pathlib
import subprocess
import sys

import pytest

import weft


def modules_after(statement):
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    return set(run.stdout.split())


def test_nothing_heavy_is_imported():
    extra = modules_after("import weft") - modules_after("import numpy")
    roots = {name.partition(".")[0] for name in extra}
    assert not roots & {"llvmlite", "safetensors", "tqdm", "torch", "hypothesis"}
    assert roots - set(sys.stdlib_module_names) <= {"weft", "ml_dtypes", "numpy"}


def test_namespaces_load_when_used():
    before = modules_after("import weft")
    assert "weft.func" not in before
    assert "weft.array_api" not in before
    assert "weft.func" in modules_after("import weft; weft.func.grad")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        weft.no_such_name


def test_types_are_shipped():
    assert (pathlib.Path(weft.__file__).parent / "py.typed").exists()


def test_version_matches_the_package():
    assert importlib.metadata.version("weft") == weft.__version__


def test_dir_lists_lazy_namespaces():
    assert {"func", "linalg", "array_api", "testing"} <= set(dir(weft))


def test_names_declared_later_are_those_of_their_modules():

    # Seen from a module that declared nothing yet: a fresh process.
    code = """
import importlib, weft
from weft.core.tensor import Tensor
from weft.ops import public
later = dict(public.LATER)
methods = {n for n, m in vars(Tensor).items() if type(m) is public.Later}
exported, members = set(public.EXPORTED), set(vars(Tensor))
for module in sorted(set(later.values())):
    importlib.import_module(module)
print(sorted(set(public.EXPORTED) - exported - set(later)))
print(sorted(set(later) - set(public.EXPORTED)))
print(sorted(set(vars(Tensor)) - members))
print(sorted(n for n in methods if type(vars(Tensor)[n]) is public.Later))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert run.stdout.split("\n") == ["[]", "[]", "[]", "[]", ""]
