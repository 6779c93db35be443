"""House prices: a linear regression, then a small network, on a table of numbers.

    python examples/house_prices.py [--rows 2000] [--epochs 60] [--seed 0]

The table is made here: 13 features in units as different as rooms, years and
distances, and a price that depends on some of them in a straight line and on others
not. The columns are standardised with the training rows' mean and deviation. R² is
the share of the variance that the model explains; noise keeps it below 1.
"""

from __future__ import annotations

import argparse

import weft
from weft import nn, optim
from weft.utils.data import DataLoader, TensorDataset


def houses(count: int) -> tuple[weft.Tensor, weft.Tensor]:
    """Features (N, 13) in their own units, and prices in thousands (N, 1)."""
    u = weft.rand(count, 13)
    low = [0, 0, 1, 0, 0.3, 3, 2, 1, 1, 180, 12, 0, 1]
    high = [20, 100, 28, 1, 0.9, 9, 100, 12, 24, 720, 22, 400, 38]
    x = weft.tensor(low).float() + u * (weft.tensor(high) - weft.tensor(low)).float()
    crime, air, rooms, age, distance, poor = (u[:, i] for i in (0, 4, 5, 6, 7, 12))
    price = 240 + 150 * rooms - 60 * poor - 40 * air
    price = price + 120 * (rooms - 0.5) * (1 - poor) - 80 * crime.sqrt()
    price = price + 50 * (6 * distance).sin() + 60 * (2 * age - 1) ** 2
    return x, (price + 15 * weft.randn(count)).unsqueeze(1)


def fit(
    model: nn.Module, x: weft.Tensor, y: weft.Tensor, epochs: int, rate: float
) -> None:
    loader = DataLoader(TensorDataset(x, y), 64, shuffle=True)
    optimizer = optim.Adam(model.parameters(), lr=rate)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        mean = weft.metrics.Mean()
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            mean.update(loss.item(), len(inputs))
        schedule.step()
        if epoch % 10 == 0 or epoch == epochs - 1:
            print(f"  epoch {epoch:3}  loss {mean.compute():.4f}")


@weft.no_grad()
def r_squared(model: nn.Module, x: weft.Tensor, y: weft.Tensor) -> float:
    rest = ((model(x) - y) ** 2).sum()
    return (1 - rest / ((y - y.mean()) ** 2).sum()).item()


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    weft.manual_seed(options.seed)

    x, y = houses(options.rows)
    cut = options.rows * 4 // 5
    # The test rows must not leak into the scales.
    x = (x - x[:cut].mean(0)) / x[:cut].std(0)
    y = (y - y[:cut].mean(0)) / y[:cut].std(0)
    models = {
        "linear": nn.Linear(13, 1),
        "network": nn.Sequential(
            nn.Linear(13, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
        ),
    }
    scores = []
    for name, model in models.items():
        print(f"{name}, {sum(p.numel() for p in model.parameters())} parameters")
        fit(model, x[:cut], y[:cut], options.epochs, 1e-2)
        scores.append(r_squared(model, x[cut:], y[cut:]))
        print(f"  R² on {options.rows - cut} unseen houses {scores[-1]:.3f}")
    return scores[0], scores[1]


if __name__ == "__main__":
    main()
