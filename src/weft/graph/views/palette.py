"""Colours of the kinds of nodes, for light and for dark surroundings."""

from __future__ import annotations

from weft.graph.views.data import read

# kind: (fill, border), dark fill, dark border
_COLOURS = {
    "input": ("#e3f6e5", "#3c9a4b", "#173b1e", "#5cc06c"),
    "constant": ("#f0f0f0", "#8a8a8a", "#33363b", "#8d939c"),
    "state": ("#fdf1d0", "#c08a12", "#423411", "#d9a93a"),
    "forward": ("#e1edfd", "#3b74c9", "#172f52", "#6fa3ec"),
    "backward": ("#fde3e1", "#c9473b", "#4d1c19", "#ef8177"),
    "update": ("#efe3fb", "#8548c2", "#341c4f", "#b98aea"),
}


def style() -> str:
    """The style sheet of pictures and pages."""
    light = "".join(_rule(kind, c[0], c[1]) for kind, c in _COLOURS.items())
    dark = "".join(_rule(kind, c[2], c[3]) for kind, c in _COLOURS.items())
    return read("graph.css").replace("/*light*/", light).replace("/*dark*/", dark)


def fill(kind: str) -> tuple[str, str]:
    """Fill and border of a kind on white paper."""
    return _COLOURS[kind][0], _COLOURS[kind][1]


def _rule(kind: str, inside: str, border: str) -> str:
    return f".{kind}{{--fill:{inside};--border:{border}}}"
