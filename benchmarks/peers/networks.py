"""The workloads' networks in PyTorch, and their weights to and from the shared naming. Used by the
peers built on PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch_models import ResNet


def build(init: dict[str, np.ndarray]) -> nn.Module:
    """A network with the layers of the shared first models: "conv_i" with pooling and ReLU, then
    dense layers; or a ResNet."""
    if _is_resnet(init):
        return _resnet(init)
    convolutions = sorted({name.split("/")[0] for name in init if name.startswith("conv")})
    dense = sorted({name.rsplit("/", 1)[0] for name in init if "dense" in name})
    layers: list[nn.Module] = []
    for layer in convolutions:
        size, _, inputs, outputs = init[f"{layer}/kernel"].shape[1:]
        layers += [nn.Conv2d(inputs, outputs, size, padding=size // 2), nn.MaxPool2d(2), nn.ReLU()]
    layers.append(nn.Flatten())
    for number, layer in enumerate(dense):
        inputs, outputs = init[f"{layer}/kernel"].shape[1:]
        layers += ([nn.ReLU()] if number else []) + [nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers)


GROUPS = 2
"""Of a ResNet's normalisation: the default of cfljax."""


def _is_resnet(init: dict[str, np.ndarray]) -> bool:
    return any(name.startswith("block_") for name in init)


def _resnet(init: dict[str, np.ndarray]) -> nn.Module:
    blocks = {
        tuple(map(int, name.split("/")[0].split("_")[1:]))
        for name in init
        if name.startswith("block_")
    }
    depths = tuple(
        sum(stage == of for stage, _ in blocks)
        for of in range(1 + max(stage for stage, _ in blocks))
    )
    inputs, width = init["conv/kernel"].shape[3:]
    projected = any("/around/" in name for name in init)
    return ResNet(depths, width, GROUPS, init["head/bias"].shape[1], inputs, projected, large=False)


def _names(init: dict[str, np.ndarray]) -> list[str]:
    """The parameters in the network's order."""
    if _is_resnet(init):
        pieces = [name.split(".") for name, _ in _resnet(init).named_parameters()]
        weight = lambda owner: "scale" if owner.startswith("norm") else "kernel"  # noqa: E731
        return [
            "/".join([*owner, weight(owner[-1]) if last == "weight" else last])
            for *owner, last in pieces
        ]
    layers = sorted(
        {name.rsplit("/", 1)[0] for name in init}, key=lambda name: ("dense" in name, name)
    )
    return [f"{layer}/{part}" for layer in layers for part in ("kernel", "bias")]


def to_torch(init: dict[str, np.ndarray], image: tuple[int, ...], k: int) -> list[torch.Tensor]:
    """Model k as a list of tensors in the order of `build(...).parameters()`."""
    tensors, last_channels = [], 0
    for name in _names(init):
        value = init[name][k]
        if value.ndim == 4:
            last_channels, value = value.shape[-1], value.transpose(3, 2, 0, 1)
        elif value.ndim == 2:
            if last_channels and not _is_resnet(
                init
            ):  # rows are (height, width, channel) there and (channel, height, width) here
                value = (
                    value.reshape(*_after_pooling(init, image), last_channels, -1)
                    .transpose(2, 0, 1, 3)
                    .reshape(value.shape)
                )
                last_channels = 0
            value = value.T
        tensors.append(torch.from_numpy(np.ascontiguousarray(value)))
    return tensors


def from_torch(
    models: list[list[torch.Tensor]], init: dict[str, np.ndarray], image: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """The models, [K, ...] each, under the shared names."""
    each: dict[str, list[np.ndarray]] = {name: [] for name in _names(init)}
    for model in models:
        last_channels = 0
        for name, tensor in zip(each, model, strict=True):
            value = tensor.detach().cpu().numpy()
            if value.ndim == 4:
                last_channels, value = value.shape[0], value.transpose(2, 3, 1, 0)
            elif value.ndim == 2:
                value = value.T
                if last_channels and not _is_resnet(init):
                    rows, columns = _after_pooling(init, image)
                    value = (
                        value.reshape(last_channels, rows, columns, -1)
                        .transpose(1, 2, 0, 3)
                        .reshape(value.shape)
                    )
                    last_channels = 0
            each[name].append(np.array(value))
    return {name: np.stack(values) for name, values in each.items()}


def _after_pooling(init: dict[str, np.ndarray], image: tuple[int, ...]) -> tuple[int, int]:
    convolutions = sum(value.ndim == 5 for value in init.values())
    return image[0] // 2**convolutions, image[1] // 2**convolutions


def as_tensors(x: np.ndarray, y: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples as the networks take them: colour images with their channels first."""
    if x.ndim == 4:
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    return torch.from_numpy(x), torch.from_numpy(y)
