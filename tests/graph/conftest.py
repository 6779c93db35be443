"""Texts that are compared with stored files; WEFT_UPDATE_GOLDEN=1 rewrites them."""

import os
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "golden"


@pytest.fixture
def golden():
    """A function that compares a text with ``tests/golden/<name>.txt``."""

    def compare(name, text):
        path = FOLDER / f"{name}.txt"
        if os.environ.get("WEFT_UPDATE_GOLDEN"):
            path.write_text(text + "\n", encoding="utf-8")
        stored = path.read_text(encoding="utf-8")
        assert text + "\n" == stored, (
            f"{path.name} differs; WEFT_UPDATE_GOLDEN=1 stores the new text"
        )

    return compare
