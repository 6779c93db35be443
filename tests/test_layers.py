"""Packages import only packages before them: the order is declared here.

Imports inside of functions count too. What a lower package needs of a higher one, it
asks for by name (``weft.late``).
"""

import ast
import pathlib

SOURCE = pathlib.Path(__file__).parents[1] / "src" / "weft"
ORDER = (
    "errors", "late", "naming", "dtype", "dtype_info", "config",
    "runtime", "core", "layouts", "sizes",
    "printing", "ops", "dlpack", "interchange", "linalg", "special", "fft", "signal",
    "random",
    "storage", "tensor_types", "comparing", "return_types",
    "autograd", "pickling", "func", "methods", "sparse",
    "graph", "memory", "compile", "amp",
    "nn", "masked", "distributions", "optim", "functional_names", "spectrogram",
    "utils", "datasets", "metrics", "models", "serialization", "training",
    "static", "layers", "symbolic", "array_api", "numpy_protocol", "testing",
    "foreach", "version", "types", "switches", "profiler", "cpu", "cuda", "xpu", "mtia",
    "mps", "accelerator", "backends", "futures", "distributed", "multiprocessing",
    "overrides", "nested", "hub", "kernels", "library", "compiler", "jit", "fx",
    "quantization", "export", "onnx", "language", "serve", "vision", "torch", "cli",
)  # fmt: skip
RANK = {name: k for k, name in enumerate(ORDER)}


def package_of(module):
    return module.removeprefix("weft.").partition(".")[0]


def imported(tree):
    """The modules that a module imports to run, with the lines."""
    names = (n.id for n in ast.walk(tree) if isinstance(n, ast.Name))
    assert "__import__" not in names
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith(
            "TYPE_CHECKING"
        ):
            for inner in node.body:
                inner.skipped = True
    for node in ast.walk(tree):
        if hasattr(node, "skipped"):
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "weft":
                yield from ((f"weft.{one.name}", node.lineno) for one in node.names)
            elif node.module.startswith("weft."):
                yield node.module, node.lineno


def upward():
    for path in sorted(SOURCE.rglob("*.py")):
        mine = path.relative_to(SOURCE).with_suffix("").parts[0]
        if mine in ("__init__", "__main__", "__config__"):
            continue  # the front door knows all
        for module, line in imported(ast.parse(path.read_text())):
            theirs = package_of(module)
            if theirs in RANK and RANK[theirs] > RANK[mine]:
                yield f"{path.relative_to(SOURCE)}:{line} imports {module}"


def test_every_package_has_its_place():
    names = {p.stem for p in SOURCE.iterdir() if p.suffix == ".py" or p.is_dir()}
    own = {n for n in names if not n.startswith("_")}
    assert own == set(ORDER)


def test_no_package_imports_a_later_one():
    assert list(upward()) == []


def test_an_upward_import_is_found():
    tree = ast.parse("def f():\n    from weft.compile.pipeline import run\n")
    assert list(imported(tree)) == [("weft.compile.pipeline", 2)]
