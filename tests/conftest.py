"""Shared set-up: a clean state, golden texts, the coverage matrix at the end."""

import difflib
import importlib.util
import os
import pathlib
import re
import tempfile

import hypothesis
import numpy as np
import pytest

import weft
from weft.testing import table

# Kernels compiled by tests are kept apart from the user's.
os.environ.setdefault(
    "WEFT_CACHE_DIR",
    os.path.join(
        tempfile.gettempdir(), f"weft-tests-{getattr(os, 'getuid', os.getlogin)()}"
    ),
)
os.environ.setdefault("WEFT_CACHE_SIZE", "2048")  # MiB: those of all tests fit

# Eager results are what others are compared with: they are NumPy's. The tests of eager
# kernels switch them on, and WEFT_EAGER_KERNELS=1 does for all.
if "WEFT_EAGER_KERNELS" not in os.environ:
    weft.config.eager_kernels = False

# The same examples in every run; WEFT_EXPLORE=1 looks for new ones.
hypothesis.settings.register_profile(
    "weft", derandomize=not os.environ.get("WEFT_EXPLORE"), deadline=None
)
hypothesis.settings.load_profile("weft")


@pytest.fixture(autouse=True)
def clean_state():
    """Each test starts from one seed and must leave the modes as they were."""
    weft.manual_seed(0)
    yield
    assert weft.is_grad_enabled()
    assert not weft.is_inference_mode_enabled()
    assert weft.get_default_dtype() is weft.float32
    assert not weft.config.strict_ieee


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def lines():
    """``tools/lines.py``, which counts once."""
    path = pathlib.Path(__file__).parents[1] / "tools" / "lines.py"
    spec = importlib.util.spec_from_file_location("lines", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- golden texts


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="store the texts that tests make"
    )


class Golden:
    """Compares texts with stored files, or stores them (``--update-golden``)."""

    folder = pathlib.Path(__file__).parent / "golden"

    def __init__(self, update):
        self.update = update

    def __call__(self, name, text):
        """Compare a text with ``tests/golden/<name>.txt``."""
        self.file(self.folder / f"{name}.txt", text + "\n")

    def file(self, path, text):
        """Compare a text with a file."""
        if self.update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        stored = path.read_text(encoding="utf-8") if path.exists() else ""
        if text != stored:
            lines = difflib.unified_diff(
                stored.splitlines(), text.splitlines(), "stored", "made", lineterm=""
            )
            pytest.fail(
                f"{path.name} is not what is made now; if that is right, store it with "
                "pytest --update-golden\n" + "\n".join(lines),
                pytrace=False,
            )

    def blocks(self, path, blocks):
        """Compare the code blocks of a page that come after ``<!-- made: name -->``."""
        made = re.compile(r"(<!-- made: (\w+) -->\n```\w*\n).*?(```)", re.DOTALL)
        page = path.read_text(encoding="utf-8")
        assert [name for _, name, _ in made.findall(page)] == list(blocks)
        self.file(path, made.sub(lambda m: f"{m[1]}{blocks[m[2]]}\n{m[3]}", page))


@pytest.fixture
def golden(request):
    return Golden(request.config.getoption("--update-golden"))


def pytest_runtest_setup(item):
    """Skip the tests that need a GPU where there is none."""
    if item.get_closest_marker("cuda") and not weft.cuda.is_available():
        pytest.skip("there is no GPU")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Skip the tests that run code for a level of CPUs that this machine is not."""
    try:
        return (yield)
    except weft.errors.ArgumentError as error:
        if type(error).__name__ == "LevelError":
            pytest.skip(str(error))
        raise


def pytest_terminal_summary(terminalreporter):
    """Print which check of which operator record passed, and which are native code."""
    for key, title in (
        ("coverage", "operator coverage (- : does not apply)"),
        ("compiled", "native code (call: NumPy's, -: no such dtype)"),
    ):
        rows = {}
        for kind in ("passed", "failed"):
            for report in terminalreporter.getreports(kind):
                rows.update(v for k, v in report.user_properties if k == key)
        if len(rows) > 1:
            terminalreporter.section(title)
            terminalreporter.write_line(table(dict(sorted(rows.items()))))
