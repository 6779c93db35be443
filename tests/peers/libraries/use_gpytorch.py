"""gpytorch: exact and variational Gaussian processes."""

import gpytorch
import torch
from common import case, main

X = torch.linspace(0, 1, 12, dtype=torch.float64)
Y = torch.sin(6 * X) + 0.1 * torch.cos(30 * X)


class Exact(gpytorch.models.ExactGP):
    def __init__(self, likelihood, kernel):
        super().__init__(X, Y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(
            self.mean_module(x), self.covar_module(x)
        )


def fitted(kernel):
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Exact(likelihood, kernel).double()
    likelihood.double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train()
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = -mll(model(X), Y)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    model.eval()
    likelihood.eval()
    test = torch.linspace(0, 1.2, 5, dtype=torch.float64)
    with torch.no_grad():
        latent = model(test)
        seen = likelihood(latent)
    return {
        "losses": losses, "mean": seen.mean, "variance": seen.variance,
        "covariance": latent.covariance_matrix, "low": seen.confidence_region()[0],
        "parameters": dict(model.named_parameters()),
    }  # fmt: skip


@case
def exact_rbf():
    return fitted(gpytorch.kernels.RBFKernel())


@case
def exact_other_kernels():
    k = gpytorch.kernels
    return {
        "matern": fitted(k.MaternKernel(nu=2.5)),
        "periodic": fitted(k.PeriodicKernel()),
        "sum": fitted(k.RBFKernel() + k.LinearKernel()),
        "product": fitted(k.RQKernel() * k.CosineKernel()),
    }


class Variational(gpytorch.models.ApproximateGP):
    def __init__(self, points):
        family = gpytorch.variational.CholeskyVariationalDistribution(points.size(0))
        strategy = gpytorch.variational.VariationalStrategy(
            self, points, family, learn_inducing_locations=True
        )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(
            self.mean_module(x), self.covar_module(x)
        )


@case
def variational():
    model = Variational(X[::3, None].clone()).double()
    model.variational_strategy._variational_distribution.mean_init_std = 0
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    parameters = [*model.parameters(), *likelihood.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = -elbo(model(X[:, None]), Y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        mean = model(X[:4, None]).mean
    return {"losses": losses, "mean": mean}


@case
def linear_operators():
    from linear_operator import to_linear_operator
    from linear_operator.operators import DiagLinearOperator, ToeplitzLinearOperator

    root = torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(4, 5)
    dense = (root @ root.T + torch.eye(4, dtype=torch.float64)).requires_grad_()
    operator = to_linear_operator(dense) + DiagLinearOperator(
        torch.arange(1.0, 5, dtype=torch.float64)
    )
    right = torch.arange(8.0, dtype=torch.float64).reshape(4, 2)
    out = {
        "solve": torch.linalg.solve(operator, right),
        "product": torch.matmul(operator, right),
        "logdet": torch.logdet(operator), "diagonal": torch.diagonal(operator),
        "root": operator.cholesky().to_dense(),
        "toeplitz": ToeplitzLinearOperator(torch.arange(4.0, 0, -1)).to_dense(),
        "inverse quadratic": operator.inv_quad_logdet(right, logdet=True)[0],
    }  # fmt: skip
    (out["solve"].sum() + out["logdet"]).backward()
    return {**out, "gradient": dense.grad}


main()
