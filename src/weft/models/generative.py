"""Generative models: an autoencoder and the DCGAN pair (Radford et al., 2015)."""

from __future__ import annotations

from collections.abc import Sequence

from weft import nn
from weft.core.tensor import Tensor
from weft.models.mlp import MLP


class Autoencoder(nn.Module):
    """Squeezes a vector through a narrow code and restores it.

    >>> weft.models.Autoencoder([64, 16, 2])(weft.rand(5, 64)).shape
    (5, 64)
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.encoder = MLP(sizes)
        self.decoder = MLP(list(sizes)[::-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x)).reshape(x.shape)


class Generator(nn.Module):
    """Images from noise by transposed convolutions.

    >>> weft.models.Generator(noise=8, width=4)(weft.randn(2, 8)).shape
    (2, 1, 32, 32)
    """

    def __init__(self, noise: int = 64, channels: int = 1, width: int = 32) -> None:
        super().__init__()

        def grow(cin: int, cout: int) -> list[nn.Module]:
            up = nn.ConvTranspose2d(cin, cout, 4, 2, 1, bias=False)
            return [up, nn.BatchNorm2d(cout), nn.ReLU()]

        self.layers = nn.Sequential(
            nn.ConvTranspose2d(noise, 4 * width, 4, bias=False),  # (N, ., 4, 4)
            nn.BatchNorm2d(4 * width),
            nn.ReLU(),
            *grow(4 * width, 2 * width),
            *grow(2 * width, width),
            nn.ConvTranspose2d(width, channels, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z: Tensor) -> Tensor:
        return self.layers(z.reshape(*z.shape, 1, 1))


class Discriminator(nn.Module):
    """The score of a 32x32 image being real.

    >>> weft.models.Discriminator(width=4)(weft.rand(2, 1, 32, 32)).shape
    (2,)
    """

    def __init__(self, channels: int = 1, width: int = 32) -> None:
        super().__init__()

        def shrink(cin: int, cout: int) -> list[nn.Module]:
            down = nn.Conv2d(cin, cout, 4, 2, 1, bias=False)
            return [down, nn.BatchNorm2d(cout), nn.LeakyReLU(0.2)]

        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            *shrink(width, 2 * width),
            *shrink(2 * width, 4 * width),
            nn.Conv2d(4 * width, 1, 4),  # (N, 1, 1, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).flatten()
