"""Map the parameter names of torchvision, timm and PyTorch's encoder layers to this package's layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError

Arrays = Mapping[str, np.ndarray]


class Family(NamedTuple):
    """How one kind of file names its layers."""

    mark: str  # A parameter by which such a file is known
    block: str  # What the names in a block begin with. The blocks of a file are ours, in their order.
    inside: tuple[Mapping[str, str], ...]  # Layers of a block → ours: the first table of which the block has all layers
    outside: Mapping[str, str]  # Patterns of other layers, and of parameters that belong to none → ours


_BASIC = {"conv1": "conv_0", "bn1": "norm_0", "conv2": "conv_1", "bn2": "norm_1"}
_AROUND = {"downsample.0": "around", "downsample.1": "norm_around"}
_TOGETHER = "attention.together"  # Queries, keys and values in one layer

FAMILIES = (
    Family(  # ResNets of torchvision and timm
        "layer1.0.conv1.weight",
        r"layer\d+\.\d+\.",
        (_BASIC | _AROUND, _BASIC),
        {"conv1": "conv", "bn1": "norm", "fc": "head", "linear": "head"},
    ),
    Family(  # torchvision's MobileNetV2, whose first and last features are no blocks
        "features.1.conv.0.0.weight",
        r"features\.\d+\.(?=conv\.)",
        (
            {
                "conv.0.0": "conv_0", "conv.0.1": "norm_0", "conv.1.0": "conv_1", "conv.1.1": "norm_1", "conv.2": "conv_2",
                "conv.3": "norm_2",
            },
            {"conv.0.0": "conv_1", "conv.0.1": "norm_1", "conv.1": "conv_2", "conv.2": "norm_2"},
        ),
        {
            r"features\.0\.0": "conv", r"features\.0\.1": "norm", r"classifier\.1": "head",
            r"features\.\d+\.0": "last_conv", r"features\.\d+\.1": "last_norm",
        },
    ),
    Family(  # timm's MobileNetV2
        "blocks.0.0.conv_dw.weight",
        r"blocks\.\d+\.\d+\.",
        (
            {"conv_pw": "conv_0", "bn1": "norm_0", "conv_dw": "conv_1", "bn2": "norm_1", "conv_pwl": "conv_2", "bn3": "norm_2"},
            {"conv_dw": "conv_1", "bn1": "norm_1", "conv_pw": "conv_2", "bn2": "norm_2"},
        ),
        {"conv_stem": "conv", "bn1": "norm", "conv_head": "last_conv", "bn2": "last_norm", "classifier": "head"},
    ),
    Family(  # vision transformers of timm, and DeiT's
        "blocks.0.attn.qkv.weight",
        r"blocks\.\d+\.",
        (
            {
                "attn.qkv": _TOGETHER, "attn.proj": "attention.out", "norm1": "norm_0", "norm2": "norm_1",
                "mlp.fc1": "dense_0", "mlp.fc2": "dense_1",
            },
        ),
        {
            "patch_embed.proj.weight": "embed_kernel", "patch_embed.proj.bias": "embed_bias", "cls_token": "class_token",
            "pos_embed": "embed_positions", "norm": "last_norm", "head": "head",
        },
    ),
    Family(  # vision transformers of torchvision
        "encoder.layers.encoder_layer_0.ln_1.weight",
        r"encoder\.layers\.encoder_layer_\d+\.",
        (
            {
                "self_attention.in_proj": _TOGETHER, "self_attention.out_proj": "attention.out", "ln_1": "norm_0", "ln_2": "norm_1",
                "mlp.0": "dense_0", "mlp.3": "dense_1",
            },
        ),
        {
            "conv_proj.weight": "embed_kernel", "conv_proj.bias": "embed_bias", "class_token": "class_token",
            "encoder.pos_embedding": "embed_positions", "encoder.ln": "last_norm", "heads.head": "head",
        },
    ),
    Family(  # PyTorch's own `TransformerEncoderLayer`s in a list `layers`
        "layers.0.self_attn.in_proj_weight",
        r"layers\.\d+\.",
        (
            {
                "self_attn.in_proj": _TOGETHER, "self_attn.out_proj": "attention.out", "norm1": "norm_0", "norm2": "norm_1",
                "linear1": "dense_0", "linear2": "dense_1",
            },
        ),
        {"embed.weight": "embed_kernel", "embed.bias": "embed_bias"},
    ),
)  # fmt: skip


def rename_arrays(arrays: Arrays, blocks: Sequence[str], where: str) -> Arrays:
    """Rename the arrays as PyTorch's modules with our layers would name them; unchanged if they are of no known family. `blocks`:
    the names of the model's blocks, in order. Raises a SpecError about `where` if their number differs."""
    family = next((each for each in FAMILIES if each.mark in arrays), None)
    if family is None:
        return arrays
    plain = {re.sub(r"\.in_proj_(weight|bias)$", r".in_proj.\1", name): array for name, array in arrays.items()}
    theirs = sorted({begin for name in plain if (begin := _find_block(family, name))}, key=_numbers)
    if len(theirs) != len(blocks):
        raise SpecError(f"{where}: its network has {len(theirs)} blocks, and the model {len(blocks)}")
    ours = dict(zip(theirs, blocks, strict=True))
    whole = {b: [table for table in family.inside if all(f"{b}{layer}.weight" in plain for layer in table)] for b in theirs}
    inside = {begin: (tables or family.inside[-1:])[0] for begin, tables in whole.items()}
    found: dict[str, np.ndarray] = {}
    for name, array in plain.items():
        begin = _find_block(family, name)
        own = f"{ours[begin]}.{_rename(inside[begin], name[len(begin) :])}" if begin else _rename(family.outside, name)
        found |= _convert(own, array)
    return found


def blocks_of(names: Sequence[str]) -> list[str]:
    """List the names of a model's blocks ("block_1_0") in order, from the paths of its parameters."""
    return sorted({found[0] for name in names if (found := re.match(r"block(_\d+)+(?=/)", name))}, key=_numbers)


def _numbers(name: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", name)]


def _find_block(family: Family, name: str) -> str:
    """Return the prefix of the block that a parameter belongs to; "" outside of blocks."""
    found = re.match(family.block, name)
    return "" if found is None else found[0]


def _rename(table: Mapping[str, str], name: str) -> str:
    """Return our name of a parameter, found by its own name or its layer's; its own name if neither is known."""
    layer, _, last = name.rpartition(".")
    for part, end in ((name, ""), (layer, f".{last}")):
        ours = next((ours for theirs, ours in table.items() if re.fullmatch(theirs, part)), None)
        if ours is not None:
            return ours + end
    return name


def _convert(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    if f".{_TOGETHER}." in name and array.shape[0] % 3 == 0:
        parts = zip(("query", "key", "value"), np.split(array, 3), strict=True)
        return {name.replace(_TOGETHER, f"attention.{each}"): part for each, part in parts}
    form = _FORMS.get(name)
    return {name: array if form is None else form(array)}


_FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "embed_kernel": lambda of: of.transpose(2, 3, 1, 0) if of.ndim == 4 else of,  # of a convolution
    "class_token": lambda of: of[0, 0] if of.ndim == 3 and of.shape[:2] == (1, 1) else of,
    "embed_positions": lambda of: of[0] if of.ndim == 3 and len(of) == 1 else of,
}
