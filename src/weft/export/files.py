"""Files of exported programs: a zip archive around Weft's own program file.

program.safetensors     the program, as ``weft.save`` writes it
manifest.json           what its variables are, and the ranges of its sizes
examples.safetensors    the example inputs, where there are some
extra/…                 texts that the user adds
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

from weft.errors import ArgumentError, FileFormatError
from weft.export.dynamic_shapes import ValueRange
from weft.export.exported_program import ExportedProgram, recaptured
from weft.export.graph_signature import InputKind
from weft.graph.captured_program import Captured
from weft.late import find
from weft.nn import Parameter
from weft.serialization import load as load_file
from weft.serialization import save as save_file

_PROGRAM, _MANIFEST, _EXAMPLES, _EXTRA = (
    "program.safetensors", "manifest.json", "examples.safetensors", "extra/"
)  # fmt: skip


def save(
    ep: ExportedProgram,
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
    pickle_protocol: int = 2,
) -> None:
    """Write an exported program, with its state, to a file.

    Reading it back runs no code of the file's.

    >>> import io
    >>> ep = weft.export.export(weft.nn.Linear(3, 2), (weft.ones(1, 3),))
    >>> file = io.BytesIO()
    >>> weft.export.save(ep, file)
    >>> weft.export.load(io.BytesIO(file.getvalue())).graph_signature.parameters
    ('weight', 'bias')
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            "The 'ep' parameter must be an instance of 'ExportedProgram', got "
            f"'{type(ep).__name__}' instead."
        )
    program, kinds = recaptured(ep)
    frozen = [name for name, x in ep.named_parameters() if not x.requires_grad]
    manifest = {
        "variables": {name: [kind.name, kept] for name, (kind, kept) in kinds.items()},
        "ranges": {name: list(r) for name, r in ep.range_constraints.items()},
        "frozen": frozen,
        "names": ep._names,
    }
    with zipfile.ZipFile(f, "w") as archive:
        archive.writestr(_PROGRAM, _written(program))
        archive.writestr(_MANIFEST, json.dumps(manifest))
        if ep.example_inputs is not None:
            archive.writestr(_EXAMPLES, _written(ep.example_inputs))
        for name, text in (extra_files or {}).items():
            archive.writestr(_EXTRA + name, text)


def _written(value: Any) -> bytes:
    file = io.BytesIO()
    save_file(value, file, format="safetensors")
    return file.getvalue()


def load(
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
) -> ExportedProgram:
    """The exported program in a file; ``extra_files`` takes its texts.

    >>> import io
    >>> weft.export.load(io.BytesIO(b"nothing"))
    Traceback (most recent call last):
        ...
    weft.errors.FileFormatError: export.load: this is no file of an exported program
    """
    try:
        with zipfile.ZipFile(f) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        manifest = json.loads(files[_MANIFEST])
        kinds = {
            name: (InputKind[kind], bool(kept))
            for name, (kind, kept) in manifest["variables"].items()
        }
        ranges = {
            name: ValueRange(int(low), int(high))
            for name, (low, high) in manifest["ranges"].items()
        }
        frozen, names = set(manifest["frozen"]), list(manifest["names"])
        program = load_file(io.BytesIO(files[_PROGRAM]))
        cells = {name: program.cells[name] for name in kinds}
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, AttributeError) as e:
        raise FileFormatError(
            "export.load: this is no file of an exported program"
        ) from e
    for name, (kind, _) in kinds.items():
        if kind is InputKind.PARAMETER:
            value = cells[name].tensor
            cells[name].tensor = Parameter(value, requires_grad=name not in frozen)
    examples = files.get(_EXAMPLES)
    given = None if examples is None else load_file(io.BytesIO(examples))
    if extra_files is not None:
        for name in extra_files:
            extra_files[name] = files[_EXTRA + name].decode()
    return ExportedProgram(program, kinds, ranges, names, given)


def load_program(path: str) -> ExportedProgram | Captured:
    """The program in a file of ``weft.export.save`` or ``weft.save``, or of ONNX."""
    if path.endswith(".onnx"):
        onnx = find("onnx")
        program: Captured = onnx.captured(onnx.load(path))
        return program
    with open(path, "rb") as file:
        try:
            exported = _MANIFEST in zipfile.ZipFile(file).namelist()
        except zipfile.BadZipFile:
            exported = False
    found = load(path) if exported else load_file(path)
    if not isinstance(found, ExportedProgram | Captured):
        raise ArgumentError(
            f"expected a program in {path}, got a {type(found).__name__}; "
            "weft.save(weft.graph.capture(model, example), path) writes one"
        )
    return found
