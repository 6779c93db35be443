"""A variational autoencoder whose noise comes from NumPy."""

import json

import numpy as np
import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 12)
        self.fc21 = nn.Linear(12, 3)
        self.fc22 = nn.Linear(12, 3)
        self.fc3 = nn.Linear(3, 12)
        self.fc4 = nn.Linear(12, 16)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar, eps):
        std = torch.exp(0.5 * logvar)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x, eps):
        mu, logvar = self.encode(x.view(-1, 16))
        z = self.reparameterize(mu, logvar, eps)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 16), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def main():
    rng = np.random.default_rng(0)
    model = VAE().to(torch.device("cpu"))
    state = {
        name: torch.from_numpy(0.2 * rng.standard_normal(tuple(v.shape))).float()
        for name, v in model.state_dict().items()
    }
    model.load_state_dict(state)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    data = (rng.random((64, 1, 4, 4)) < np.linspace(0.1, 0.9, 16).reshape(4, 4)) * 1.0
    dataset = torch.utils.data.TensorDataset(torch.tensor(data).float())
    loader = torch.utils.data.DataLoader(dataset, batch_size=24, shuffle=False)
    losses = []
    model.train()
    for _ in range(5):
        for (batch,) in loader:
            eps = torch.as_tensor(
                rng.standard_normal((len(batch), 3)), dtype=torch.float
            )
            recon, mu, logvar = model(batch, eps)
            loss = loss_function(recon, batch, mu, logvar)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item() / len(batch))
    print(json.dumps({"losses": losses, "score": recon[0, :4].tolist()}))


if __name__ == "__main__":
    main()
