"""``weft.export(program, example, path)``: programs that run without Python."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.export.programs import Programs, programs_of
from weft.late import find
from weft.serialization.atomic import replacing
from weft.serialization.files import save

OBJECTS = (".o", ".obj")
# The machines that libraries are for, by their suffixes; None is this one.
LIBRARIES = {
    ".so": None, ".dll": "x86_64-windows", ".dylib": "aarch64-macos", ".wasm": "wasm32",
    ".html": "wasm32",
}  # fmt: skip
_PAGES = {".wasm": ".html"}  # which have a library in them
SUFFIXES = (".c", *OBJECTS, *LIBRARIES, ".onnx")


def write_artifact(
    program: Any,
    example: Any = None,
    path: str | os.PathLike[str] | None = None,
    *,
    target: str | None = None,
    cpu: str | Sequence[str] | None = None,
    threads: int | None = None,
    dynamic_shapes: Any = None,
    weights: str = "inside",
    vocabulary: str | None = None,
) -> list[str]:
    """Write a program as an artefact that runs without Weft; gives its files.

    ``program`` is a module, a function, an exported, captured or loaded program, or a
    dictionary of several by the names of their entry points, which share their state;
    ``example`` has the arguments of modules and functions. What ``path`` ends in comes
    out: ``.c`` is a C99 file, ``.o`` object code, ``.so``, ``.dll`` and ``.dylib`` a
    library, each with its header; ``.wasm`` is a module with its script, and ``.html``
    a page to draw on, or to write in with the letters of a ``vocabulary``; ``.onnx`` is
    a model for other libraries (see ``weft.onnx.export``). ``weights`` are ``"inside"``
    or ``"beside"``, in a file of their own. Sizes that ``dynamic_shapes`` names are
    open. ``target="c"`` writes C for any path.

    Machine code is for this machine, or for another ``target`` such as
    ``"aarch64-linux"``; for this CPU, or for one that ``cpu`` names; of several levels
    of x86-64, a library takes the best when it is loaded. ``threads`` are the most
    that a library uses: as many as Weft uses here, or one on other machines.

    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> files = weft.export(
    ...     weft.nn.Linear(3, 2), weft.ones(1, 3), os.path.join(folder, "net.c"))
    >>> [os.path.basename(file) for file in files]
    ['net.c', 'net.h']
    """
    if path is None:
        raise ArgumentError("export: expected a path, such as 'model.c'")
    place = os.fspath(path)
    stem, suffix = os.path.splitext(place)
    if target == "c":
        place, suffix, target = f"{stem}.c", ".c", None
    if suffix not in SUFFIXES:
        raise ArgumentError(
            f"export: expected a path that ends in {', '.join(SUFFIXES[:-1])} or "
            f"{SUFFIXES[-1]}, got {place!r}"
        )
    options = {"target": target, "cpu": cpu, "threads": threads}
    given = [name for name, value in options.items() if value is not None]
    portable = suffix in (".c", ".onnx")
    if portable and given:
        raise ArgumentError(
            f"export: {given[0]!r} is an option of machine code; what {suffix!r} files "
            "hold is compiled later, by those who run them"
        )
    machine, most = (None, 1) if portable else _machine(suffix, **options)
    if weights not in ("inside", "beside"):
        raise ArgumentError(
            f"export: expected weights='inside' or 'beside', got {weights!r}"
        )
    if suffix == ".onnx":
        return _write_onnx(program, example, place, dynamic_shapes, weights)
    entries = _entries(program, example)
    if vocabulary is not None and suffix != ".html":
        raise ArgumentError("export: 'vocabulary' is an option of pages ('.html')")
    if weights == "beside" and machine is not None and machine.family == "wasm32":
        raise ArgumentError(
            "export: weights beside need files, which WebAssembly has not; expected "
            "weights='inside'"
        )
    programs = programs_of(entries, dynamic_shapes)
    pack = _packed if weights == "beside" else None
    files = (
        _c_files(programs, place, pack)
        if machine is None
        else _object_files(programs, place, pack, machine, most, vocabulary)
    )
    return _written(files)


def _machine(suffix: str, target: Any, cpu: Any, threads: Any) -> tuple[Any, int]:
    """The machine that code is for, and the most threads of a library."""
    from weft.compile.targets.object.machines import host_name, machine_of

    machine = machine_of(target or LIBRARIES.get(suffix) or host_name(), cpu)
    wanted = machine.library_suffix
    if suffix in LIBRARIES and suffix not in (wanted, _PAGES.get(wanted)):
        raise ArgumentError(
            f"export: libraries for {machine.name} end in {wanted}, got {suffix}"
        )
    usual = weft.get_num_threads() if machine.is_host and machine.has_threads else 1
    most = usual if threads is None else threads
    if type(most) is not int or not 1 <= most <= 1024:
        raise ArgumentError(f"export: expected threads from 1 to 1024, got {threads!r}")
    if most > 1 and not machine.has_threads:
        raise ArgumentError(
            f"export: code for {machine.name} has no threads so far; expected "
            f"threads=1, got {threads}"
        )
    return machine, most


def _write_onnx(
    program: Any, example: Any, place: str, dynamic_shapes: Any, weights: str
) -> list[str]:
    beside = True if weights == "beside" else None
    model = find("onnx").export(
        program, example, place, dynamic_shapes=dynamic_shapes, external_data=beside
    )
    large = beside or any(one.data_location for one in model.graph.initializer)
    return [place, f"{place}.data"] if large else [place]


def _entries(program: Any, example: Any) -> dict[str, Any]:
    if not isinstance(program, Mapping):
        return {"run": (program, example)}
    if not isinstance(example, Mapping) or set(example) != set(program):
        raise ArgumentError(
            f"export: expected a dictionary of examples for {sorted(program)}, got "
            f"{sorted(example) if isinstance(example, Mapping) else example!r}"
        )
    return {name: (one, example[name]) for name, one in program.items()}


def _packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A safetensors file."""
    file = io.BytesIO()
    save({k: Tensor(a) for k, a in arrays.items()}, file, format="safetensors")
    return file.getvalue()


def _c_files(programs: Programs, place: str, pack: Any) -> dict[str, bytes]:
    from weft.compile.targets.c.compiled import c_file

    stem = os.path.splitext(place)[0]
    name, made_of = os.path.basename(stem), _made_of()
    made = c_file(name, programs.entries, programs.state, pack=pack, made_of=made_of)
    files = {place: made.source.encode(), f"{stem}.h": made.header.encode()}
    return files | _beside(stem, made.weights)


def _object_files(
    programs: Programs,
    place: str,
    pack: Any,
    machine: Any,
    threads: int,
    vocabulary: str | None,
) -> dict[str, bytes]:
    from weft.compile.targets.object.compiled import object_file
    from weft.compile.targets.object.javascript import script
    from weft.compile.targets.object.link import linked
    from weft.compile.targets.object.page import page

    stem, suffix = os.path.splitext(place)
    name, entries = os.path.basename(stem), programs.entries
    made = object_file(
        name, entries, programs.state, machine, threads=threads, pack=pack,
        made_of=_made_of(),
    )  # fmt: skip
    code = made.code
    if suffix not in OBJECTS:
        code = linked(code, machine, made.public, os.path.basename(place))
    if suffix == ".html":
        text = page(made.interface, made.most, code, vocabulary)
        return {place: text.encode()}
    if suffix == ".wasm":
        return {place: code, f"{stem}.js": script(made.interface, made.most).encode()}
    files = {place: code, f"{stem}.h": made.header.encode()}
    return files | _beside(stem, made.weights)


def _made_of() -> str:
    return f"made by Weft {weft.__version__}"


def _beside(stem: str, weights: bytes) -> dict[str, bytes]:
    return {f"{stem}.safetensors": weights} if weights else {}


def _written(files: Mapping[str, bytes]) -> list[str]:
    """Write all files, or none."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(replacing(file)) for file in files]
        for file, content in zip(opened, files.values(), strict=True):
            file.write(content)
    return list(files)
