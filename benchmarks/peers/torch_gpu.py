"""PyTorch on the device that it finds: a loop over clients, or with `--vmap` all participants at
once by `torch.func`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from networks import as_tensors, build, from_torch, to_torch
from protocol import Stage
from torch.nn import functional as F
from torch_loop import Plain, train_round

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def functional(net: torch.nn.Module) -> Any:
    """Return the mean loss of a batch as a function of the weights; masked samples do not count."""
    names = [name for name, _ in net.named_parameters()]

    def loss(
        weights: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        logits = torch.func.functional_call(net, dict(zip(names, weights, strict=True)), (x,))
        each = F.nll_loss(F.log_softmax(logits, -1), y, reduction="none")
        return (each * mask).sum() / mask.sum().clamp(min=1)

    return loss


def train_side_by_side(
    loss: Any, models: list, x: torch.Tensor, y: torch.Tensor, stage: Stage, ids: np.ndarray
) -> list:
    """Train all participants in lockstep, each from the model with the least loss on its data;
    return the means."""
    settings, counts = stage.settings, stage.count[ids]
    longest = int(counts.max())
    at = torch.from_numpy(
        stage.start[ids][:, None] + np.minimum(np.arange(longest), counts[:, None] - 1)
    ).to(DEVICE)
    mask = torch.from_numpy((np.arange(longest) < counts[:, None]).astype(np.float32)).to(DEVICE)
    count = torch.from_numpy(counts.astype(np.int64)).to(DEVICE)
    own_x, own_y, chosen = x[at], y[at], torch.zeros(len(ids), dtype=torch.long, device=DEVICE)
    stacked = [torch.stack([model[p] for model in models]) for p in range(len(models[0]))]
    if len(models) > 1:
        by_client = torch.func.vmap(loss, in_dims=(None, 0, 0, 0))
        with torch.no_grad():
            chosen = torch.func.vmap(by_client, in_dims=(0, None, None, None))(
                stacked, own_x, own_y, mask
            ).argmin(0)
    weights = [p[chosen].clone() for p in stacked]
    gradients = torch.func.vmap(torch.func.grad(loss))
    full = settings["batch"] == "full"
    batch = longest if full else settings["batch"]
    steps = (
        np.full(len(ids), settings["steps"]) if full else settings["epochs"] * -(-counts // batch)
    )
    per_epoch = torch.from_numpy(-(-counts // batch)).to(DEVICE)
    offsets, total = torch.arange(batch, device=DEVICE), torch.from_numpy(steps).to(DEVICE)
    order, rows = torch.zeros_like(at), torch.arange(len(ids), device=DEVICE)[:, None]
    for step in range(int(steps.max())):
        if full:
            bx, by, bm = own_x, own_y, mask
        else:
            in_epoch = step % per_epoch
            fresh = torch.argsort(torch.rand(mask.shape, device=DEVICE) + 2 * (1 - mask), 1)
            order = torch.where((in_epoch == 0)[:, None], fresh, order)
            index = in_epoch[:, None] * batch + offsets
            bm = (index < count[:, None]).float()
            picked = order.gather(1, index.clamp(max=longest - 1))
            bx, by = own_x[rows, picked], own_y[rows, picked]
        active = (step < total).float() * settings["lr"]
        for p, g in zip(weights, gradients(weights, bx, by, bm), strict=True):
            p -= active.reshape(-1, *[1] * (g.ndim - 1)) * g
    share = torch.ones(len(ids), device=DEVICE) if settings["method"] == "ifca" else count.float()
    mix = F.one_hot(chosen, len(models)).float() * share[:, None]
    sums = mix.sum(0)
    means = [
        torch.einsum("sk,s...->k...", mix, p)
        / sums.clamp(min=1e-9).reshape(-1, *[1] * (p.ndim - 1))
        for p in weights
    ]
    return [
        [m[k] if sums[k] > 0 else s[k] for m, s in zip(means, stacked, strict=True)]
        for k in range(len(models))
    ]


def main() -> None:
    stage = Stage()
    torch.manual_seed(0)
    data, labels = stage.samples()
    image = data.shape[1:]
    x, y = (each.to(DEVICE) for each in as_tensors(data, labels))
    net = build(stage.init).to(DEVICE)
    models = [
        [w.to(DEVICE) for w in to_torch(stage.init, image, k)]
        for k in range(len(next(iter(stage.init.values()))))
    ]
    side_by_side, trainer, loss = (
        "--vmap" in sys.argv,
        Plain(net, stage.settings["lr"]),
        functional(net),
    )

    def one_round(models: list, ids: np.ndarray) -> list:
        if side_by_side:
            new = train_side_by_side(loss, models, x, y, stage, ids)
        else:
            new = train_round(
                trainer, models, [(x[stage.of(c)], y[stage.of(c)]) for c in ids], stage.settings
            )
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
        return new

    one_round(models, stage.schedule[0])
    stage.ready(version=f"torch {torch.__version__} on {DEVICE.type}", compile_s=0.0)
    for ids in stage.rounds():
        models = one_round(models, ids)
    stage.finish(from_torch(models, stage.init, image))


if __name__ == "__main__":
    main()
