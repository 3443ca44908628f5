"""The plain PyTorch loop over clients; with `--lean` functional gradients and foreach updates
instead of modules and SGD."""

from __future__ import annotations

import os
import sys

import torch
from networks import as_tensors, build, from_torch, to_torch
from protocol import Stage
from torch.nn import functional as F

Weights = list[torch.Tensor]


class Plain:
    """A module, `torch.optim.SGD`, `backward()`: what a first version of most programs looks
    like."""

    def __init__(self, net: torch.nn.Module, lr: float) -> None:
        self.net, self.lr = net, lr

    def load(self, weights: Weights) -> None:
        with torch.no_grad():
            for p, w in zip(self.net.parameters(), weights, strict=True):
                p.copy_(w)
        self.optimiser = torch.optim.SGD(self.net.parameters(), lr=self.lr)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> float:
        with torch.no_grad():
            return F.cross_entropy(self.net(x), y).item()

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.optimiser.zero_grad()
        F.cross_entropy(self.net(x), y).backward()
        self.optimiser.step()

    def weights(self) -> Weights:
        return [p.detach() for p in self.net.parameters()]


class Lean(Plain):
    """The same arithmetic without an optimiser object or gradient buffers."""

    def load(self, weights: Weights) -> None:
        self.values = [w.clone().requires_grad_() for w in weights]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        at = iter(self.values)
        for layer in self.net:
            if isinstance(layer, torch.nn.Linear):
                x = F.linear(x, next(at), next(at))
            elif isinstance(layer, torch.nn.Conv2d):
                x = F.conv2d(x, next(at), next(at), padding=layer.padding)
            else:
                x = layer(x)
        return x

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> float:
        with torch.no_grad():
            return F.cross_entropy(self.forward(x), y).item()

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        gradients = torch.autograd.grad(F.cross_entropy(self.forward(x), y), self.values)
        with torch.no_grad():
            torch._foreach_add_(self.values, gradients, alpha=-self.lr)

    def weights(self) -> Weights:
        return [v.detach() for v in self.values]


def train_client(trainer: Plain, x: torch.Tensor, y: torch.Tensor, settings: dict) -> None:
    """Epochs of shuffled mini-batches, or steps on all samples."""
    if settings["batch"] == "full":
        for _ in range(settings["steps"]):
            trainer.step(x, y)
        return
    for _ in range(settings["epochs"]):
        order = torch.randperm(len(y))
        for batch in order.split(settings["batch"]):
            trainer.step(x[batch], y[batch])


def choose(trainer: Plain, models: list[Weights], x: torch.Tensor, y: torch.Tensor) -> int:
    """The model with the smallest loss on these samples."""
    if len(models) == 1:
        return 0
    losses = []
    for model in models:
        trainer.load(model)
        losses.append(trainer.loss(x, y))
    return losses.index(min(losses))


def train_round(
    trainer: Plain, models: list[Weights], clients: list, settings: dict
) -> list[Weights]:
    """FedAvg, or IFCA: each client trains the model with the smallest loss on its data; a mean per
    model."""
    sums = [[torch.zeros_like(w) for w in model] for model in models]
    total = [0.0] * len(models)
    for x, y in clients:
        chosen = choose(trainer, models, x, y)
        trainer.load(models[chosen])
        train_client(trainer, x, y, settings)
        share = 1.0 if settings["method"] == "ifca" else float(len(y))
        total[chosen] += share
        for s, w in zip(sums[chosen], trainer.weights(), strict=True):
            s.add_(w, alpha=share)
    return [
        [s / t for s in sum_] if t else model
        for sum_, t, model in zip(sums, total, models, strict=True)
    ]


def main() -> None:
    stage = Stage()
    torch.set_num_threads(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    torch.manual_seed(0)
    data, labels = stage.samples()
    image = data.shape[1:]
    x, y = as_tensors(data, labels)
    del data
    net = build(stage.init)
    trainer = (Lean if "--lean" in sys.argv else Plain)(net, stage.settings["lr"])
    number = len(next(iter(stage.init.values())))
    models = [to_torch(stage.init, image, k) for k in range(number)]
    stage.ready(
        version=f"torch {torch.__version__}", threads=torch.get_num_threads(), compile_s=0.0
    )
    for ids in stage.rounds():
        models = train_round(
            trainer, models, [(x[stage.of(c)], y[stage.of(c)]) for c in ids], stage.settings
        )
    stage.finish(from_torch(models, stage.init, image))


if __name__ == "__main__":
    main()
