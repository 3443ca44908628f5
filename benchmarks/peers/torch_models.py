"""ResNets, MobileNetV2 and transformers in PyTorch, with the names of cfljax's layers: for
comparisons of values and of speed. Imported where torch is installed."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


LAYERS = (
    ("attention.out", "self_attn.out_proj"),
    ("dense_0", "linear1"),
    ("dense_1", "linear2"),
    ("norm_0", "norm1"),
    ("norm_1", "norm2"),
)
"""Names of cfljax's layers in a block, and of PyTorch's."""


class Residual(nn.Module):
    """He et al.'s basic block, with group normalisation."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, groups: int, projected: bool
    ) -> None:
        super().__init__()
        self.conv_0 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm_0 = nn.GroupNorm(groups, outputs)
        self.conv_1 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm_1 = nn.GroupNorm(groups, outputs)
        self.stride, self.more = stride, outputs - inputs
        changes = stride > 1 or self.more
        if changes and projected:
            self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.norm_around = nn.GroupNorm(groups, outputs)
        self.how = "same" if not changes else "projected" if projected else "padded"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm_1(self.conv_1(F.relu(self.norm_0(self.conv_0(x)))))
        if self.how == "projected":
            x = self.norm_around(self.around(x))
        elif self.how == "padded":
            x = F.pad(
                x[:, :, :: self.stride, :: self.stride],
                (0, 0, 0, 0, self.more // 2, self.more - self.more // 2),
            )
        return F.relu(x + y)


class ResNet(nn.Module):
    """`resnet20` (depths (3, 3, 3), width 16) and `resnet18` (depths (2, 2, 2, 2), width 64,
    projected)."""

    def __init__(
        self,
        depths: tuple[int, ...],
        width: int,
        groups: int,
        classes: int,
        inputs: int,
        projected: bool,
        large: bool,
    ) -> None:
        super().__init__()
        self.conv = (
            nn.Conv2d(inputs, width, 7, 2, 3, bias=False)
            if large
            else nn.Conv2d(inputs, width, 3, 1, 1, bias=False)
        )
        self.norm, self.large, self.names = nn.GroupNorm(groups, width), large, []
        before = width
        for stage, depth in enumerate(depths):
            for number in range(depth):
                name, stride = f"block_{stage}_{number}", 2 if stage and not number else 1
                self.add_module(name, Residual(before, width << stage, stride, groups, projected))
                self.names.append(name)
                before = width << stage
        self.head = nn.Linear(before, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.conv(x)))
        x = F.max_pool2d(x, 3, 2, 1) if self.large else x
        for name in self.names:
            x = self.get_submodule(name)(x)
        return self.head(x.mean((2, 3)))


class Inverted(nn.Module):
    """MobileNetV2's block."""

    def __init__(self, inputs: int, outputs: int, stride: int, wider: int, groups: int) -> None:
        super().__init__()
        width = inputs * wider
        if wider > 1:
            self.conv_0, self.norm_0 = (
                nn.Conv2d(inputs, width, 1, bias=False),
                nn.GroupNorm(groups, width),
            )
        self.conv_1 = nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False)
        self.norm_1 = nn.GroupNorm(groups, width)
        self.conv_2, self.norm_2 = (
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.GroupNorm(groups, outputs),
        )
        self.wider, self.same = wider > 1, stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu6(self.norm_0(self.conv_0(x))) if self.wider else x
        y = self.norm_2(self.conv_2(F.relu6(self.norm_1(self.conv_1(y)))))
        return x + y if self.same else y


class MobileNet(nn.Module):
    """`mobilenet_v2` by its stages (how much wider, channels, blocks, stride)."""

    def __init__(
        self,
        stages: tuple[tuple[int, int, int, int], ...],
        first: int,
        last: int,
        stride: int,
        groups: int,
        classes: int,
        inputs: int,
    ) -> None:
        super().__init__()
        self.conv, self.norm = (
            nn.Conv2d(inputs, first, 3, stride, 1, bias=False),
            nn.GroupNorm(groups, first),
        )
        self.names, before = [], first
        for stage, (wider, channels, depth, stride) in enumerate(stages):
            for number in range(depth):
                name = f"block_{stage}_{number}"
                self.add_module(
                    name, Inverted(before, channels, 1 if number else stride, wider, groups)
                )
                self.names.append(name)
                before = channels
        self.last_conv, self.last_norm = (
            nn.Conv2d(before, last, 1, bias=False),
            nn.GroupNorm(groups, last),
        )
        self.head = nn.Linear(last, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu6(self.norm(self.conv(x)))
        for name in self.names:
            x = self.get_submodule(name)(x)
        return self.head(F.relu6(self.last_norm(self.last_conv(x))).mean((2, 3)))


class Transformer(nn.Module):
    """`transformer` and `vit_tiny`, of PyTorch's own encoder layers."""

    def __init__(
        self,
        vocabulary: int,
        length: int,
        width: int,
        depth: int,
        heads: int,
        hidden: int,
        classes: int,
        kind: str,
    ) -> None:
        super().__init__()
        self.embed_tokens = nn.Parameter(torch.zeros(vocabulary, width)) if vocabulary else None
        self.embed_positions = nn.Parameter(torch.zeros(length, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, hidden, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.last_norm, self.head, self.kind = nn.LayerNorm(width), nn.Linear(width, classes), kind
        self.register_buffer(
            "mask",
            torch.triu(torch.full((length, length), -math.inf), 1) if kind == "next" else None,
        )

    def sequence(self, x: torch.Tensor) -> torch.Tensor:
        """The normalised sequence after the last block, of an embedded one."""
        x = x + self.embed_positions
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=self.mask is not None)
        return self.last_norm(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.sequence(F.embedding(x, self.embed_tokens))
        return self.head(x[:, -1] if self.kind == "next" else x.mean(1))


class Vision(Transformer):
    """`vit_tiny`."""

    def __init__(
        self, patch: int, inputs: int, length: int, width: int, depth: int, heads: int, classes: int
    ) -> None:
        super().__init__(0, length, width, depth, heads, 4 * width, classes, "class")
        self.embed = nn.Conv2d(inputs, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(width))
        for norm in (
            self.last_norm,
            *(each for layer in self.layers for each in (layer.norm1, layer.norm2)),
        ):
            norm.eps = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        token = self.class_token.expand(len(x), 1, -1)
        return self.head(self.sequence(torch.cat([token, x], 1))[:, 0])


class Characters(nn.Module):
    """`char_lstm`."""

    def __init__(
        self, vocabulary: int, embedding: int, width: int, depth: int, classes: int
    ) -> None:
        super().__init__()
        self.embed_tokens = nn.Parameter(torch.zeros(vocabulary, embedding))
        self.names = [f"lstm_{number}" for number in range(depth)]
        for number, name in enumerate(self.names):
            self.add_module(name, nn.LSTM(width if number else embedding, width, batch_first=True))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.embedding(x, self.embed_tokens)
        for name in self.names:
            x = self.get_submodule(name)(x)[0]
        return self.head(x[:, -1])


def load(module: nn.Module, arrays: dict[str, np.ndarray]) -> nn.Module:
    """The module with the arrays of `Result.state_dict` in it: layers of attention go into
    PyTorch's own."""
    named = {}
    for name, array in arrays.items():
        if not name.startswith("block_") or not hasattr(module, "layers"):
            named[{"embed_kernel": "embed.weight", "embed_bias": "embed.bias"}.get(name, name)] = (
                array
            )
            continue
        block, _, rest = name.partition(".")
        layer = f"layers.{block.removeprefix('block_')}"
        if rest.startswith(("attention.query", "attention.key", "attention.value")):
            end = rest.rpartition(".")[2]
            parts = [
                arrays[f"{block}.attention.{each}.{end}"] for each in ("query", "key", "value")
            ]
            named[f"{layer}.self_attn.in_proj_{end}"] = np.concatenate(parts)
            continue
        for ours, theirs in LAYERS:
            rest = f"{theirs}{rest.removeprefix(ours)}" if rest.startswith(ours) else rest
        named[f"{layer}.{rest}"] = array
    if "embed.weight" in named:
        named["embed.weight"] = named["embed.weight"].transpose(3, 2, 0, 1)
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in named.items()}
    missing, unexpected = module.load_state_dict(tensors, strict=False)
    if unexpected or set(missing) - {"mask"}:
        raise ValueError(f"no place for {unexpected}, nothing for {missing}")
    return module
