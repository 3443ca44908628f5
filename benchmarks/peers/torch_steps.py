"""Training steps of a network in PyTorch: a line {"ready": 1}, then for each line that arrives
{"seconds": s} of a step.

torch_steps.py NAME STEPS
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
from torch.nn import functional as F
from torch_models import STAGES, MobileNet, ResNet, Transformer

BATCH = 50


def network(name: str) -> torch.nn.Module:
    """The network of this name at cfljax's defaults, for 32 × 32 × 3 images of 10 classes or
    sequences of 80 of 80 tokens."""
    if name == "resnet20":
        return ResNet((3, 3, 3), 16, 2, 10, 3, projected=False, large=False)
    if name == "mobilenet_v2":
        small = tuple(
            (*stage[:3], 1 if number == 1 else stage[3]) for number, stage in enumerate(STAGES)
        )
        return MobileNet(small, 32, 1280, 1, 2, 10, 3)
    return Transformer(80, 80, 128, 2, 4, 512, 80, "next")


def main() -> None:
    name, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    torch.manual_seed(0)
    net, tokens = network(name), name == "transformer"
    x = torch.randint(80, (steps, BATCH, 80)) if tokens else torch.randn(steps, BATCH, 3, 32, 32)
    y = torch.randint(80 if tokens else 10, (steps, BATCH))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(number: int) -> None:
        optimiser.zero_grad()
        F.cross_entropy(net(x[number]), y[number]).backward()
        optimiser.step()

    step(0)
    print(
        json.dumps({"ready": f"torch {torch.__version__}, {torch.get_num_threads()} threads"}),
        flush=True,
    )
    for _ in sys.stdin:
        begin = time.perf_counter()
        for number in range(steps):
            step(number)
        print(json.dumps({"seconds": (time.perf_counter() - begin) / steps}), flush=True)


if __name__ == "__main__":
    main()
