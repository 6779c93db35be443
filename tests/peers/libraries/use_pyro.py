"""pyro: inference by gradients and by sampling."""

import pyro
import pyro.distributions as dist
import torch
from common import case, main, normal
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta, AutoNormal
from torch.distributions import constraints

DATA = normal(10).double() + 1.0


@case
def densities():
    trace = pyro.poutine.trace(
        pyro.poutine.condition(model, data={"mean": torch.tensor(0.3)})
    ).get_trace(DATA)
    return {"log": trace.log_prob_sum(), "sites": list(trace.nodes)}


def model(data):
    mean = pyro.sample("mean", dist.Normal(0.0, 2.0))
    with pyro.plate("data", len(data)):
        pyro.sample("x", dist.Normal(mean, 1.0), obs=data)


@case
def maximum_a_posteriori():
    pyro.clear_param_store()
    guide = AutoDelta(model, init_loc_fn=lambda site: torch.zeros(site["fn"].shape()))
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [svi.step(DATA) for _ in range(5)]
    return {"losses": losses, "mean": guide.median()["mean"]}


@case
def variational_inference():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    guide = AutoNormal(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO(num_particles=20))
    for _ in range(150):
        svi.step(DATA)
    exact = float(DATA.sum() / (len(DATA) + 0.25))
    found = float(guide.median()["mean"])
    return {"near": abs(found - exact) < 0.15, "sites": list(pyro.get_param_store())}


@case
def a_guide_of_its_own():
    pyro.clear_param_store()

    def guide(data):
        scale = pyro.param("scale", torch.tensor(0.5), constraint=constraints.positive)
        loc = pyro.param("loc", torch.tensor(0.0))
        pyro.sample("mean", dist.Delta(loc + 0 * scale))

    svi = SVI(model, guide, pyro.optim.SGD({"lr": 0.001}), Trace_ELBO())
    losses = [svi.step(DATA) for _ in range(5)]
    return {"losses": losses, "loc": pyro.param("loc"), "scale": pyro.param("scale")}


@case
def enumeration():
    pyro.clear_param_store()

    @config_enumerate
    def mixture(data):
        weights = pyro.param(
            "w", torch.tensor([0.4, 0.6]), constraint=constraints.simplex
        )
        locs = pyro.param("locs", torch.tensor([-1.0, 1.5]))
        with pyro.plate("data", len(data)):
            which = pyro.sample("which", dist.Categorical(weights))
            pyro.sample("x", dist.Normal(locs[which], 1.0), obs=data)

    svi = SVI(mixture, lambda data: None, pyro.optim.Adam({"lr": 0.05}),
              TraceEnum_ELBO(max_plate_nesting=1))  # fmt: skip
    losses = [svi.step(DATA.float()) for _ in range(5)]
    return {"losses": losses, "locs": pyro.param("locs"), "w": pyro.param("w")}


@case
def monte_carlo():
    pyro.set_rng_seed(0)
    mcmc = MCMC(NUTS(model), num_samples=60, warmup_steps=40, disable_progbar=True)
    mcmc.run(DATA.float())
    draws = mcmc.get_samples()["mean"]
    exact = float(DATA.sum() / (len(DATA) + 0.25))
    return {"shape": list(draws.shape), "near": abs(float(draws.mean()) - exact) < 0.3}


main()
