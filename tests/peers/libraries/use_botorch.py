"""botorch: models of black boxes, and where to look next."""

import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from common import case, main
from gpytorch.mlls import ExactMarginalLogLikelihood

X = torch.linspace(0, 1, 8, dtype=torch.float64).reshape(-1, 1)
Y = torch.sin(6 * X)


def model():
    return SingleTaskGP(
        X, Y, input_transform=Normalize(1), outcome_transform=Standardize(1)
    )


@case
def a_model_is_fitted():
    made = model()
    fit_gpytorch_mll(ExactMarginalLogLikelihood(made.likelihood, made))
    test = torch.linspace(0, 1, 5, dtype=torch.float64).reshape(-1, 1)
    with torch.no_grad():
        posterior = made.posterior(test)
    wide = (posterior.mean - torch.sin(6 * test)).abs().max() < 0.1
    return {"near": bool(wide), "shape": list(posterior.mean.shape)}


@case
def acquisitions():
    made = model()
    points = torch.linspace(0.05, 0.95, 4, dtype=torch.float64).reshape(4, 1, 1)
    points.requires_grad_()
    values = LogExpectedImprovement(made, best_f=0.5)(points)
    values.sum().backward()
    return {
        "log ei": values, "gradient": points.grad,
        "ucb": UpperConfidenceBound(made, beta=0.2)(points),
    }  # fmt: skip


@case
def the_next_point():
    torch.manual_seed(0)
    made = model()
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    point, value = optimize_acqf(
        UpperConfidenceBound(made, beta=0.2),
        bounds,
        q=1,
        num_restarts=4,
        raw_samples=16,
    )
    return {"point": (point * 100).round(), "value": (value * 100).round()}


main()
