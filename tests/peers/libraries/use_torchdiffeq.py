"""torchdiffeq: solvers of differential equations, and gradients through them."""

import torch
from common import case, fill, main, normal
from torchdiffeq import odeint, odeint_adjoint, odeint_event


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
        )
        fill(self)

    def forward(self, t, y):
        return self.net(y) * torch.cos(t)


def solved(solve, **options):
    field = Field().double()
    start = normal(3, 2).double().requires_grad_()
    times = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)
    path = solve(field, start, times, **options)
    path[-1].square().sum().backward()
    return {
        "path": path, "start": start.grad,
        "weights": [p.grad for p in field.parameters()],
    }  # fmt: skip


@case
def adaptive_steps():
    kinds = ("dopri5", "dopri8", "bosh3", "fehlberg2", "adaptive_heun")
    return {k: solved(odeint, method=k, rtol=1e-6, atol=1e-8) for k in kinds}


@case
def fixed_steps():
    kinds = ("euler", "midpoint", "rk4", "heun3", "explicit_adams", "implicit_adams")
    return {k: solved(odeint, method=k, options={"step_size": 0.1}) for k in kinds}


@case
def adjoint():
    return solved(odeint_adjoint, method="dopri5", rtol=1e-7, atol=1e-9)


@case
def events():
    time, path = odeint_event(
        lambda t, y: -y, torch.tensor([2.0], dtype=torch.float64),
        torch.tensor(0.0, dtype=torch.float64),
        event_fn=lambda t, y: y[0] - 1.0, atol=1e-9, rtol=1e-9,
    )  # fmt: skip
    return {"time": time, "path": path}


main()
