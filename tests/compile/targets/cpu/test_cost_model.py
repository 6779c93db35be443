"""Every threshold of the CPU is a documented field of its cost model."""

import ast
import pathlib

import weft.compile.targets.cpu
from weft.compile import targets
from weft.compile.targets.cpu import cost_model
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.tuning.choices import Columns, Loops

FOLDER = pathlib.Path(weft.compile.targets.cpu.__file__).parent

# Numbers that are facts of a format, a record or an algorithm, not thresholds.
FACTS = {
    "attention/forward.py": {"_AT_A_TIME"},  # the code combines exactly four rows
    "attention/record.py": {"ADDED", "CHOSEN"},  # kinds of masks in a job
    "convolution/windows.py": {"_SPREAD"},  # masks of a bit trick
    "driver.py": {"FIELDS", "MOST_SIZES"},  # of a row, and of an epilogue's copy
    "elf.py": {
        "_KIND", "_MACHINE", "_PROGRAM", "_SYMBOLS", "_RELOCATIONS", "_NO_BITS",
        "_UNWINDING", "_WRITTEN", "_LOADED", "_SPECIAL", "_RELATIVE", "_CALL", "_TABLE",
        "_STUB", "_MOST",
    },  # numbers of the format, and what its relative addresses reach
    "executable.py": {"NOWHERE"},  # no slot
    "pool_code.py": {
        "MAX_THREADS", "SLOTS", "SLOT", "FUTEX_NUMBERS", "MASK_BYTES",
        "_FOR_EVER", "_FUTEX_WAIT", "_FUTEX_WAKE",
    },  # the layout of a pool's block, and numbers of the system
    "object_code.py": {"LEVELS"},  # widths of vectors of instruction sets
    "matmul/tiling.py": {"SHAPES", "WIDE"},  # register tiles, and the index of one
}  # fmt: skip


def numbers(module):
    """The module-level names that are bound to literal numbers."""
    for statement in ast.parse(module.read_text()).body:
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
            continue
        value = statement.value
        leaves = [n.value for n in ast.walk(value) if isinstance(n, ast.Constant)]
        others = (ast.Name, ast.Attribute, ast.Call, ast.JoinedStr)
        literal = not any(isinstance(n, others) for n in ast.walk(value))
        if literal and any(type(n) in (int, float) for n in leaves):
            whole = getattr(statement, "targets", None) or [statement.target]
            names = (n for target in whole for n in ast.walk(target))
            yield from (n.id for n in names if isinstance(n, ast.Name))


def test_numbers_of_the_target_are_in_its_cost_model():
    found = {
        path.relative_to(FOLDER).as_posix(): set(numbers(path))
        for path in FOLDER.rglob("*.py")
        if path.name != "cost_model.py"
    }
    assert {name: names for name, names in found.items() if names} == FACTS


def test_every_field_says_why():
    lines = pathlib.Path(cost_model.__file__).read_text().splitlines()
    fields = [line for line in lines if ": int" in line or ": tuple[int" in line]
    assert len(fields) > 100
    assert [line for line in fields if "#" not in line] == []


def test_tuning_begins_with_the_cost_model():
    for name in Loops._fields:
        assert getattr(Loops(), name) == getattr(COST.loops, name)
    assert Columns() == (COST.convolution.columns, COST.winograd.tiles)
    assert targets.default().cost is COST
