"""A convolutional classifier on generated digits, as PyTorch's tutorials train one."""

import argparse
import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(0.0)
        self.fc1 = nn.Linear(8 * 5 * 5, 32)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.norm(self.conv2(x)))
        x = F.max_pool2d(x, 2)
        x = torch.flatten(x, 1)
        x = self.dropout(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def fill(model, seed):
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = 0.1 * rng.standard_normal(tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(noise))


def pictures(count, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, count)
    images = 0.3 * rng.standard_normal((count, 1, 12, 12))
    for image, label in zip(images, labels, strict=True):
        row, column = 6 * (label // 2), 6 * (label % 2)
        image[0, row : row + 6, column : column + 6] += 1.0
    return torch.tensor(images, dtype=torch.float32), torch.tensor(labels)


def train(args, model, device, loader, optimizer, epoch, log):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad(set_to_none=True)
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        log.append(loss.item())
        if batch_idx % args.log_interval == 0:
            print(f"epoch {epoch} batch {batch_idx}: loss {loss.item():.4f}")


def test(model, device, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data.to(device))
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.to(device).view_as(pred)).sum().item()
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--log-interval", type=int, default=4)
    args = parser.parse_args()
    use_cuda = torch.cuda.is_available()
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if use_cuda else "cpu")
    kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
    train_loader = DataLoader(TensorDataset(*pictures(128, 0)), batch_size=32, **kwargs)
    test_loader = DataLoader(TensorDataset(*pictures(64, 1)), batch_size=64, **kwargs)
    model = Net().to(device)
    fill(model, 2)
    optimizer = optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    losses = []
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch, losses)
        scheduler.step()
    score = test(model, device, test_loader)
    print(json.dumps({"losses": losses, "score": score}))


if __name__ == "__main__":
    main()
