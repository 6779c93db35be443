"""Matrix products: square, tall, wide, batched, transposed."""

from __future__ import annotations

from typing import Any

from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run

SLOW = 5e8  # operations that would take tinygrad too long


def case(
    name: str, m: int, n: int, k: int, batch: int = 1, turned: str = "",
    series: tuple[str, float] | None = None,
) -> Case:  # fmt: skip
    """``turned`` names the operands that are given transposed."""
    lead = (batch,) if batch > 1 else ()
    a = data.normal("a", *lead, *((k, m) if "a" in turned else (m, k)))
    b = data.normal("b", *lead, *((n, k) if "b" in turned else (k, n)))

    def product(a: Any, b: Any) -> Any:
        return (a.T if "a" in turned else a) @ (b.T if "b" in turned else b)

    def build(lib: Lib) -> Run:
        run = lib.function(product)
        x, y = lib.array(a), lib.array(b)
        return Run(lambda: run(x, y))

    return Case(
        name=name,
        build=build,
        flops=flops.product(m, n, k, batch),
        moved=float(flops.BYTES * batch * (m * k + k * n + m * n)),
        eager=True,
        tinygrad=flops.product(m, n, k, batch) < SLOW,
        series=series,
    )


def cases(small: bool) -> list[Case]:
    by = 16 if small else 1
    made = []
    for n in (64, 128, 256, 512, 1024, 2048):
        n //= by
        series = ("square product", n)
        made.append(case(f"{n} x {n} x {n}", n, n, n, series=series))
    wide, middle, thin = 8192 // by, 1024 // by, 64 // by
    return [
        *made,
        case(f"tall {wide} x {thin} x {middle}", wide, thin, middle),
        case(f"wide {thin} x {wide} x {middle}", thin, wide, middle),
        case(f"deep {thin} x {thin} x {wide}", thin, thin, wide),
        case(f"row 1 x {middle} x {middle}", 1, middle, middle),
        case("256 of 32 x 32 x 32", 32, 32, 32, batch=256 // by),
        case("96 of 256 x 64 x 64", 256 // by, 64, 64, batch=96 // by),
        case(f"A.T @ B, {middle}", middle, middle, middle, turned="a"),
        case(f"A @ B.T, {middle}", middle, middle, middle, turned="b"),
        case(f"A.T @ B.T, {middle}", middle, middle, middle, turned="ab"),
    ]
