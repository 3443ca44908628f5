"""The workloads W1 to W6 as specs, a toy one for tests, and how many floating-point operations a
round of each needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Workload(NamedTuple):
    """One round's work, as tables of a spec."""

    about: str
    data: dict[str, Any]
    model: dict[str, Any]
    method: dict[str, Any]
    train: dict[str, Any]
    tolerance: float
    """How far the systems' accuracies may lie apart: they shuffle with generators of their own."""
    turn: int = 1
    """Rounds that a system trains in a row before the next has its turn."""
    also: dict[str, dict[str, Any]] = {}
    """Names of other execution plans that are measured beside cfljax's own choice."""

    def spec(
        self, rounds: int, data_folder: Path | None = None, plan: Any = None
    ) -> dict[str, Any]:
        """A spec of one run that evaluates at the start and the end only."""
        data = dict(self.data) | ({} if data_folder is None else {"path": str(data_folder)})
        train = (
            self.train
            | {"rounds": rounds, "eval_every": rounds}
            | ({} if plan is None else {"plan": plan})
        )
        return {
            "data": data,
            "model": self.model,
            "method": [self.method],
            "train": train,
            "seeds": [0],
        }


_FEDGROUP = {"name": "mnist", "partition": "fedprox", "clients": 1000, "normalise": "pixel_all"}
_TWENTY_EPOCHS = {"participation": 20, "epochs": 20, "batch": 10, "lr": 0.03}

WORKLOADS = {
    "W1": Workload(
        "FedAvg, MNIST-MCLR in FedGroup's setting: 1,000 unequal clients, 20 per round, 20 "
        "epochs, batch 10",
        _FEDGROUP,
        {"name": "mclr"},
        {"name": "fedavg"},
        _TWENTY_EPOCHS,
        0.03,
        turn=8,
    ),
    "W2": Workload(
        "the same with an MLP of 128 hidden units",
        _FEDGROUP,
        {"name": "mlp", "hidden": [128]},
        {"name": "fedavg"},
        _TWENTY_EPOCHS,
        0.03,
        turn=8,
    ),
    "W3": Workload(
        "FedAvg, CNN (3x3 32, 3x3 64, dense 128) on CIFAR-10, upright and upside down: 200 "
        "clients of 500, 20 per round, "
        "1 epoch, batch 50",
        {
            "name": "cifar10",
            "partition": "rotated",
            "groups": 2,
            "clients": 200,
            "samples_per_client": 500,
        },
        {"name": "cnn", "channels": [32, 64], "kernel": 3, "dense": [128]},
        {"name": "fedavg"},
        {"participation": 20, "epochs": 1, "batch": 50, "lr": 0.05},
        0.05,
    ),
    "W4": Workload(
        "IFCA, rotated MNIST, MLP of 200 hidden units: 1,200 clients of 200, 120 per round, "
        "4 losses, then 10 full-batch steps",
        {
            "name": "mnist",
            "partition": "rotated",
            "groups": 4,
            "clients": 1200,
            "samples_per_client": 200,
        },
        {"name": "mlp", "hidden": [200]},
        {"name": "ifca", "clusters": 4},
        {"participation": 120, "steps": 10, "batch": "full", "lr": 0.1},
        0.02,
    ),
    "W5": Workload(
        "FedAvg, ResNet-20 with group normalisation on CIFAR-10, upright and upside down: "
        "200 clients of 500, 20 per round, "
        "1 epoch, batch 50",
        {
            "name": "cifar10",
            "partition": "rotated",
            "groups": 2,
            "clients": 200,
            "samples_per_client": 500,
        },
        {"name": "resnet20"},
        {"name": "fedavg"},
        {"participation": 20, "epochs": 1, "batch": 50, "lr": 0.05},
        0.05,
    ),
    "W6": Workload(
        "IFCA, rotated MNIST, MLP of 200 hidden units: 2,400 clients of 100, all in every "
        "round: 4 losses, 10 full-batch steps; "
        "their updates are 1.5 GB, so cfljax trains them in blocks",
        {
            "name": "mnist",
            "partition": "rotated",
            "groups": 4,
            "clients": 2400,
            "samples_per_client": 100,
        },
        {"name": "mlp", "hidden": [200]},
        {"name": "ifca", "clusters": 4},
        {"participation": 2400, "steps": 10, "batch": "full", "lr": 0.1},
        0.02,
        also={"cfljax-at-once": {"stream": 0}},
    ),
    "toy": Workload(
        "FedAvg, logistic regression on blobs: for the tests of the benchmark itself",
        {
            "name": "blobs",
            "samples": 400,
            "features": 6,
            "classes": 4,
            "partition": "quantity",
            "clients": 8,
            "normalise": "none",
        },
        {"name": "mclr"},
        {"name": "fedavg"},
        {"participation": 4, "epochs": 2, "batch": 5, "lr": 0.1},
        0.05,
        also={"cfljax-in-blocks": {"stream": 2}},
    ),
}


def layers(kernels: list[tuple[int, ...]], image: tuple[int, ...]) -> list[float]:
    """Operations of each layer's forward pass for one sample: a kernel is [inputs, outputs] or [k,
    k, inputs, outputs], and convolutions come first, each followed by 2 x 2 pooling."""
    pixels, cost = int(np.prod(image[:2])), []
    for shape in kernels:
        cost.append(2.0 * np.prod(shape) * (pixels if len(shape) == 4 else 1))
        pixels //= 4
    return cost


def layers_of_resnet(kernels: dict[str, tuple[int, ...]], image: tuple[int, ...]) -> list[float]:
    """The same for a ResNet, by the names of its kernels: each stage "block_STAGE_NUMBER" but the
    first halves the image, and the head sees the mean."""
    cost = []
    for name, shape in kernels.items():
        stage = int(name.split("_")[1]) if name.startswith("block_") else 0
        pixels = -(-image[0] // 2**stage) * -(-image[1] // 2**stage)
        cost.append(2.0 * np.prod(shape) * (pixels if len(shape) == 4 else 1))
    return cost


def operations_of(forward: list[float], samples: int, losses: int = 0) -> float:
    """Real operations: a trained sample costs a forward pass, the weight gradients, and input
    gradients for all layers but the first; choosing a cluster costs `losses` forward passes more.
    Counts no padding and no masking."""
    return samples * (3 * sum(forward) - forward[0]) + losses * sum(forward)


def operations(
    kernels: list[tuple[int, ...]], image: tuple[int, ...], samples: int, losses: int = 0
) -> float:
    """`operations_of` a chain of layers."""
    return operations_of(layers(kernels, image), samples, losses)
