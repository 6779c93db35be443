"""The blocks of ``docs/life_of_a_step.md`` are what the compiler makes."""

import pathlib
import platform
import re

import llvmlite.binding as llvm
import pytest
from eight_programs import any_machine, example, lowered

from weft.compile import pipeline
from weft.compile.emit.isa import Isa
from weft.compile.explain.passes import changes
from weft.compile.program.memory_layout import lay_out
from weft.compile.program.text import aliasing_text, groups_text, layout_text
from weft.compile.targets.cpu.target import CpuTarget

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "life_of_a_step.md"
HIDDEN = (
    "0.weight permute matmul expand add mul mul_1 erf add_1 mul_2 grad/mul/add "
    "grad/matmul/permute grad/matmul/matmul grad/permute/permute grad/permute/clone_3 "
    "SGD/0.weight/mul SGD/0.weight/sub 0.weight/assign"
)
VERSION = "# LLVM {}.{}".format(*llvm.llvm_version_info)
AVX2 = Isa("x86_64-unknown-linux-gnu", "x86-64-v3", "", 256)


def excerpt(text, names):
    """The lines of a graph that define some nodes, with dots for those between."""
    wanted = {f"  %{name}: " for name in names.split()}
    found = []
    for line in text.split("\n"):
        if line.startswith(tuple(wanted)) or not line.startswith("  %"):
            found.append(line)
        elif found[-1] != "  …":
            found.append("  …")
    return "\n".join(found)


def units(text, *results):
    """The groups that make some values."""
    every = re.findall(r"^group.*?^}.*?$", text, re.M | re.DOTALL)
    return "\n".join(
        unit for unit in every if any(f"%{name}: " in unit for name in results)
    )


def block(text, label):
    """A basic block of LLVM's text."""
    return re.search(rf"^{label}:\n.*?(?=^\S)", text, re.M | re.DOTALL)[0].rstrip()


def widest_loop(assembly):
    """The loop of a function that uses most vector registers."""
    loops = re.findall(r"^(\.\w+):\n((?:\t.*\n)*?\tj\w+\t\1\n)", assembly, re.M)
    label, body = max(loops, key=lambda loop: loop[1].count("ymm"))
    return f"{label}:\n{body}".expandtabs(8).rstrip()


def made(scope):
    """The blocks of the page, for the step that its first block defines."""
    one = example(scope["step"], scope["x"], scope["y"], name="step")
    steps = []
    variables = one.graph.variables.values()
    pipeline.run(one.graph, pipeline.PASSES, steps.append, variables)
    steps = {s.name: s for s in steps if s.after is not s.before}
    moved = steps["transpose_products"]
    low = lowered(one)
    gelu, update = (kernel_that_makes(low, n) for n in ("mul_2", "SGD/0.weight/sub"))
    cpu = CpuTarget(AVX2)
    return {
        "captured": excerpt(str(one.graph), HIDDEN),
        "passes": "\n".join(
            f"{name:20} {len(s.before)} → {len(s.after)}" for name, s in steps.items()
        ),
        "transpose_products": "\n".join(
            f"{sign} {line}" for sign, line in changes(moved.before, moved.after)
        ),
        "groups": units(groups_text(low.fusion), "mul_2", "SGD/0.bias/sub"),
        "gelu": str(gelu),
        "update": str(update),
        "aliases": aliasing_text(low.aliasing),
        "steps": layout_text(lay_out(low, {})),
        "llvm": block(cpu.source(update), r"j\.body"),
        "assembly": f"{VERSION}\n{widest_loop(cpu.assembly(update))}",
    }


def kernel_that_makes(low, name):
    launches = [getattr(s, "epilogue", None) or s for s in low.steps]
    (found,) = [s for s in launches if name in [n.name for n in s.made]]
    return found.kernel


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the assembly is of x86-64")
def test_the_page_shows_what_is_made(golden):
    scope = {}
    exec(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1], scope)
    with any_machine():
        blocks = made(scope)
    of_another = re.search(r"```\n(# LLVM .*?)\n```", PAGE.read_text(), re.DOTALL)
    if of_another and VERSION not in of_another[1] and not golden.update:
        blocks["assembly"] = of_another[1]  # other versions choose other instructions
    golden.blocks(PAGE, blocks)
    assert "Of 38, these" in PAGE.read_text()
    assert len(pipeline.PASSES) == 38
