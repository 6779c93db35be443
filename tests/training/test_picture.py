"""Curves as SVG: what a picture shows, at which size."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from weft.training import plot_curves

SVG = "{http://www.w3.org/2000/svg}"


def drawn(tmp_path, curves, **options):
    path = tmp_path / "curve.svg"
    plot_curves(curves, path, **options)
    return ElementTree.parse(path).getroot()


def texts(picture):
    return [element.text for element in picture.iter(f"{SVG}text")]


def points(picture):
    lines = picture.iter(f"{SVG}polyline")
    return [
        np.array([p.split(",") for p in line.get("points").split()], float)
        for line in lines
    ]


def test_title_axis_ticks_and_legend_are_there(tmp_path):
    curves = {"loss": [(0, 4.0), (100, 1.0)], "a < b": [(0, 3.0), (100, 2.0)]}
    shown = texts(drawn(tmp_path, curves, title="Small & quick"))
    assert shown[0] == "Small & quick"
    assert shown[-2:] == ["loss", "a < b"]
    assert "step" in shown
    assert {"0", "20", "40", "60", "80", "100"} <= set(shown)  # across
    assert {"1", "1.5", "2", "2.5", "3", "3.5", "4"} <= set(shown)  # up


def test_points_lie_where_the_axes_say(tmp_path):
    picture = drawn(tmp_path, {"loss": [(0, 4.0), (50, 1.0), (100, 2.5)]})
    (curve,) = points(picture)
    assert curve.tolist() == [
        [70, 58],
        [425, 432],
        [780, 245],
    ]  # 800 x 480 less margins


def test_what_is_not_finite_is_left_out(tmp_path):
    rows = [(0, 1.0), (1, float("nan")), (2, float("inf")), (3, 1e308), (4, 0.5)]
    (curve,) = points(drawn(tmp_path, {"loss": rows}))
    assert len(curve) == 2
    with pytest.raises(ValueError, match="no finite point"):
        plot_curves({"loss": [(0, float("inf"))]}, tmp_path / "x.svg")


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, 1e-320, 1e290])
def test_flat_curves_lie_in_the_middle(tmp_path, value):
    picture = drawn(tmp_path, {"flat": [(0, value), (99, value)]})
    assert points(picture)[0][:, 1].tolist() == [245, 245]


def test_a_million_points_take_no_more_than_two_in_a_column(tmp_path):
    steps = np.arange(1_000_000)
    values = np.where(steps == 777_777, 9.0, np.sin(steps))
    (curve,) = points(drawn(tmp_path, {"loss": list(zip(steps, values, strict=True))}))
    assert len(curve) <= 2 * 711
    assert curve[:, 1].min() == 58  # the one that stands out is there
    assert (np.diff(curve[:, 0]) >= 0).all()
