"""ResNet-18 (32x32) and ResNet-50 (224x224): forward passes, batch 1 and 16."""

from __future__ import annotations

from typing import Any

from benchmarks.suite import data, flops
from benchmarks.suite.case import Case, Lib, Run
from benchmarks.suite.workloads import resnet


def case(name: str, plan: resnet.Plan, batch: int) -> Case:
    size = plan.stem.size

    def build(lib: Lib) -> Run:
        def predict(lib: Lib, p: Any, s: Any, x: Any) -> Any:
            return resnet.forward(lib, plan, p, s, x, False)

        run = lib.model(predict, *resnet.weights(plan))
        x = lib.images(data.normal("x", batch, 3, size, size))
        return Run(lambda: run(x))

    return Case(
        name=f"{name}, batch {batch}",
        build=build,
        flops=plan.flops(batch),
        moved=flops.BYTES * float(data.size(resnet.weights(plan)[0])),
        tolerance=1e-3,
        series=(f"{name}, batch", batch),
    )


def cases(small: bool) -> list[Case]:
    if small:
        plans = {
            "ResNet, small": resnet.plan((1, 1), 8, width=8),
            "ResNet with bottlenecks, small": resnet.plan(
                (1, 1), 16, width=8, bottleneck=True, large=True
            ),
        }
    else:
        plans = {
            "ResNet-18": resnet.plan((2, 2, 2, 2), 32),
            "ResNet-50": resnet.plan(
                (3, 4, 6, 3), 224, bottleneck=True, large=True, classes=1000
            ),
        }
    return [case(name, plan, n) for name, plan in plans.items() for n in (1, 16)]
