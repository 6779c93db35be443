"""Fits the polynomials of ``weft.compile.emit.math`` and prints them as Python.

    python tools/fit_polynomials.py > src/weft/compile/emit/math/coefficients.py

Each is the best polynomial in the largest weighted error (Remez' exchange, in 50
digits), so that ``weight`` times its distance from the function is as even as can be;
the weight makes that distance the relative error of the function in the end. Needs
mpmath.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from mpmath import mp, mpf

mp.dps = 50
LOG_2 = mp.log(2)


class Fit(NamedTuple):
    """What to approximate: a function, where, by which degrees, to what measure."""

    text: str
    function: Any
    weight: Any
    low: Any
    high: Any
    degrees: dict[int, int]  # by format; 48: single accuracy in double arithmetic


def solve(fit: Fit, points: list[Any], degree: int) -> list[Any]:
    """The polynomial whose weighted error is +e, -e, +e, ... at the points."""
    rows, values = mp.matrix(degree + 2), mp.matrix(degree + 2, 1)
    for i, x in enumerate(points):
        power = mpf(1)
        for j in range(degree + 1):
            rows[i, j], power = power, power * x
        rows[i, degree + 1] = (-1) ** i / fit.weight(x)
        values[i] = fit.function(x)
    return list(mp.lu_solve(rows, values))[:-1]


def exchange(errors: list[Any], grid: list[Any], count: int) -> list[Any]:
    """Where the error has its alternating extremes; the largest ``count`` of them."""
    extremes: list[tuple[Any, Any]] = []
    for x, e in zip(grid, errors, strict=True):
        if extremes and (extremes[-1][1] > 0) == (e > 0):
            if abs(e) > abs(extremes[-1][1]):
                extremes[-1] = (x, e)
        else:
            extremes.append((x, e))
    while len(extremes) > count:
        extremes.pop(0 if abs(extremes[0][1]) < abs(extremes[-1][1]) else -1)
    return [x for x, _ in extremes]


def remez(fit: Fit, degree: int) -> tuple[list[Any], Any]:
    """Coefficients, the lowest first, and the largest weighted error."""

    def chebyshev(n: int) -> list[Any]:
        middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
        nodes = [mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
        return sorted(middle + half * x for x in nodes)

    points, grid = chebyshev(degree + 2), chebyshev(24 * (degree + 2))
    targets = [(fit.function(x), fit.weight(x)) for x in grid]
    best: tuple[list[Any], Any] = ([], mp.inf)
    for _ in range(12):
        found = solve(fit, points, degree)
        errors = [
            w * (mp.polyval(found[::-1], x) - y)
            for x, (y, w) in zip(grid, targets, strict=True)
        ]
        largest = max(abs(e) for e in errors)
        if largest < best[1]:
            best = found, largest
        points = exchange(errors, grid, degree + 2)
        if len(points) < degree + 2 or largest < 1.001 * min(
            abs(e) for x, e in zip(grid, errors, strict=True) if x in points
        ):
            break
    return best


def rounded(value: Any, bits: int) -> str:
    return repr(float(np.float32(str(value))) if bits == 32 else float(value))


def scaled_erfc(x: Any) -> Any:
    """``(1 + 2x) exp(x*x) erfc(x)``."""
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def from_infinite(q: Any, k: int) -> Any:
    """The x in [0, inf) with ``(x - k) / (x + k) == q``."""
    return k * (1 + q) / (1 - q)


def erfinv_over_x(w: Any) -> Any:
    """``erfinv(x) / x`` as a function of ``w = -log(1 - x*x)``."""
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


DIGAMMA_ROOT = mp.findroot(mp.digamma, mpf("1.46"))


def stirling_rest(y: Any) -> Any:
    """What Stirling's formula lacks, times y."""
    main = (y - mpf("0.5")) * (mp.log(y) - 1) + mp.log(2 * mp.pi) / 2 - mpf("0.5")
    return y * (mp.loggamma(y) - main)


def one(_: Any) -> Any:
    return mpf(1)


EXP_RANGE = LOG_2 / 2 * mpf("1.002")
QUARTER = (mp.pi / 4) ** 2 * mpf("1.002")
EIGHTH = mp.tan(mp.pi / 8) ** 2 * mpf("1.001")
LOG_RANGE = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mpf("1.001")
TINY = mpf(10) ** -12

FITS = {
    "EXP": Fit(
        "(exp(r) - 1 - r) / r**2, |r| <= log(2) / 2",
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: abs(r) + TINY,
        -EXP_RANGE,
        EXP_RANGE,
        {32: 4, 64: 10},
    ),
    "EXPM1": Fit(
        "the same, one degree more where 1 is not added",
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: abs(r) + TINY,
        -EXP_RANGE,
        EXP_RANGE,
        {32: 5, 64: 10},
    ),
    "EXP2": Fit(
        "(2**r - 1) / r, |r| <= 1/2",
        lambda r: mp.expm1(r * LOG_2) / r,
        lambda r: abs(r) + TINY,
        mpf("-0.501"),
        mpf("0.501"),
        {32: 5, 64: 11},
    ),
    "LOG": Fit(
        "(log((1 + s) / (1 - s)) / s - 2) / z, z = s*s, m in [sqrt(1/2), sqrt(2)]",
        lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z,
        lambda z: z,
        TINY,
        LOG_RANGE,
        {48: 4, 64: 6},
    ),
    "LOG_TAIL": Fit(
        "((log((1 + s) / (1 - s)) / s - 2) / z - 2/3) / z, as above",
        lambda z: ((2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z - mpf(2) / 3) / z,
        lambda z: z,
        mpf("1e-6"),
        LOG_RANGE,
        {64: 7},
    ),
    "LOG_DIRECT": Fit(
        "(log(1 + f) - f + f*f/2) / f**3, 1 + f in [sqrt(1/2), sqrt(2)]",
        lambda f: (mp.log1p(f) - f + f * f / 2) / f**3,
        lambda f: f * f + TINY,
        mp.sqrt(mpf(1) / 2) - mpf("1.0005"),
        mp.sqrt(mpf(2)) - mpf("0.9995"),
        {32: 8},
    ),
    "SIN": Fit(
        "(sin(r) / r - 1) / z, z = r*r, |r| <= pi / 4",
        lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
        lambda z: z,
        TINY,
        QUARTER,
        {32: 2, 64: 5},
    ),
    "COS": Fit(
        "(cos(r) - 1 + z/2) / z**2, as above",
        lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2,
        lambda z: z**2,
        TINY,
        QUARTER,
        {32: 2, 64: 5},
    ),
    "TAN": Fit(
        "(tan(r) / r - 1) / z, z = r*r, |r| <= pi / 4",
        lambda z: (mp.tan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
        lambda z: z,
        TINY,
        QUARTER,
        {32: 6, 64: 14},
    ),
    "ATAN": Fit(
        "(atan(t) / t - 1) / z, z = t*t, |t| <= tan(pi / 8)",
        lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
        lambda z: z,
        TINY,
        EIGHTH,
        {32: 4, 64: 11},
    ),
    "ASIN": Fit(
        "(asin(t) / t - 1) / z, z = t*t, |t| <= 1/2",
        lambda z: (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
        lambda z: z,
        TINY,
        mpf("0.25"),
        {32: 4, 64: 12},
    ),
    "SINH": Fit(
        "(sinh(x) / x - 1) / z, z = x*x, |x| <= 1",
        lambda z: (mp.sinh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
        lambda z: z,
        TINY,
        mpf(1),
        {32: 3, 64: 6},
    ),
    "TANH": Fit(
        "(tanh(x) / x - 1) / z, z = x*x, |x| <= 0.55",
        lambda z: (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
        lambda z: z,
        TINY,
        mpf("0.3026"),
        {32: 4, 64: 10},
    ),
    "ERF": Fit(
        "erf(x) / x - 1, z = x*x, |x| <= 1",
        lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1,
        one,
        TINY,
        mpf("1.001"),
        {32: 6, 64: 12},
    ),
    "ERF_LOG": Fit(
        "-log(erfc(x)), 1 <= x <= 4.1",
        lambda x: -mp.log(mp.erfc(x)),
        lambda x: mp.erfc(x),
        mpf("0.999"),
        mpf("4.1"),
        {32: 6},
    ),
    "ERFCX": Fit(
        "(1 + 2x) exp(x*x) erfc(x), q = (x - 4) / (x + 4), 0 <= x <= 30",
        lambda q: scaled_erfc(from_infinite(q, 4)),
        one,
        mpf(-1),
        mpf(26) / 34,
        {48: 13, 64: 24},
    ),
    "ERFINV_NEAR": Fit(
        "erfinv(x) / x, w = -log(1 - x*x) <= 6.25, in w - 3.125",
        lambda u: erfinv_over_x(u + mpf("3.125")),
        one,
        mpf("-3.1249"),
        mpf("3.126"),
        {48: 13, 64: 25},
    ),
    "ERFINV_FAR": Fit(
        "erfinv(x) / x, 6.25 <= w <= 16.7, in sqrt(w) - 3.25",
        lambda u: erfinv_over_x((u + mpf("3.25")) ** 2),
        one,
        mpf("-0.751"),
        mpf("0.837"),
        {48: 11, 64: 23},
    ),
    "ERFINV_END": Fit(
        "erfinv(x) / x, 16 <= w <= 37, in sqrt(w) - 5",
        lambda u: erfinv_over_x((u + 5) ** 2),
        one,
        mpf("-1.001"),
        mpf("1.09"),
        {64: 21},
    ),
    "LGAMMA": Fit(
        "lgamma(2 + z) / z, |z| <= 1/2",
        lambda z: mp.loggamma(2 + z) / z,
        one,
        mpf("-0.5"),
        mpf("0.5"),
        {64: 18},
    ),
    "STIRLING": Fit(
        "y (lgamma(y) - (y - 1/2) (log(y) - 1) - log(2 pi)/2 + 1/2), z = 1/y**2",
        lambda z: stirling_rest(1 / mp.sqrt(z)),
        one,
        mpf(10) ** -10,
        1 / mpf(64),
        {64: 6},
    ),
    "DIGAMMA": Fit(
        "digamma(x) / (x - its root), 1 <= x <= 2, in x - 1.5",
        lambda u: mp.digamma(u + mpf("1.5")) / (u + mpf("1.5") - DIGAMMA_ROOT),
        one,
        mpf("-0.501"),
        mpf("0.501"),
        {64: 21},
    ),
    "DIGAMMA_FAR": Fit(
        "(log(x) - 1/(2x) - digamma(x)) / z, z = 1/x**2, x >= 8",
        lambda z: (-mp.log(z) / 2 - mp.sqrt(z) / 2 - mp.digamma(1 / mp.sqrt(z))) / z,
        one,
        mpf(10) ** -10,
        1 / mpf(64),
        {64: 6},
    ),
    "SIN_PI": Fit(
        "sin(pi r) / r, z = r*r, |r| <= 1/2",
        lambda z: mp.sin(mp.pi * mp.sqrt(z)) / mp.sqrt(z),
        one,
        TINY,
        mpf("0.25"),
        {64: 8},
    ),
    "COS_PI": Fit(
        "cos(pi r) / (1/4 - z), as above",
        lambda z: mp.cos(mp.pi * mp.sqrt(z)) / (mpf("0.25") - z),
        one,
        mpf(0),
        mpf("0.24999"),
        {64: 8},
    ),
}


def main() -> None:
    print(
        '"""Polynomials fitted by tools/fit_polynomials.py, the lowest term first."""'
    )
    print("\n# fmt: off")
    for name, fit in FITS.items():
        print(f"\n# {fit.text}\n{name} = {{")
        for bits, degree in fit.degrees.items():
            found, error = remez(fit, degree)
            print(f"{name}[{bits}]: 2**{float(mp.log(error, 2)):.1f}", file=sys.stderr)
            texts = [rounded(c, bits) for c in found]
            lines = [", ".join(texts[k : k + 3]) for k in range(0, len(texts), 3)]
            body = ",\n        ".join(lines)
            print(f"    {bits}: (\n        {body},\n    ),")
        print("}")


if __name__ == "__main__":
    main()
