"""Graphs as pictures: DOT text, SVG, and a page to walk through them."""

from weft.graph.views.dot import to_dot
from weft.graph.views.page import to_html
from weft.graph.views.svg import to_svg

__all__ = ["to_dot", "to_html", "to_svg"]
