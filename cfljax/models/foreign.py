"""Map the parameter names of torchvision, timm and PyTorch's encoder layers to this package's
layers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError

Arrays = Mapping[str, np.ndarray]


class Family(NamedTuple):
    """How one kind of file names its layers."""

    # A parameter by which such a file is known
    mark: str
    # What the names in a block begin with. The blocks of a file are ours, in their order.
    block: str
    # Layers of a block → ours: the first table of which the block has all layers
    inside: list[Mapping[str, str]]
    # Patterns of other layers, and of parameters that belong to none → ours
    outside: Mapping[str, str]


FAMILIES = [
    Family(**each)
    for each in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["family"]
]
# Queries, keys and values in one layer
_TOGETHER = "attention.together"


def rename_arrays(arrays: Arrays, blocks: Sequence[str], where: str) -> Arrays:
    """Rename the arrays as PyTorch's modules with our layers would name them; unchanged if they are
    of no known family. `blocks`: the names of the model's blocks, in order. Raises a SpecError
    about `where` if their number differs."""
    family = next((each for each in FAMILIES if each.mark in arrays), None)
    if family is None:
        return arrays
    plain = {
        re.sub(r"\.in_proj_(weight|bias)$", r".in_proj.\1", name): array
        for name, array in arrays.items()
    }
    theirs = sorted({begin for name in plain if (begin := _find_block(family, name))}, key=_numbers)
    if len(theirs) != len(blocks):
        raise SpecError(
            f"{where}: its network has {len(theirs)} blocks, and the model {len(blocks)}"
        )
    ours = dict(zip(theirs, blocks, strict=True))

    def choose_table(block: str) -> Mapping[str, str]:
        for table in family.inside:
            if all(f"{block}{layer}.weight" in plain for layer in table):
                return table
        return family.inside[-1]

    inside = {block: choose_table(block) for block in theirs}
    found: dict[str, np.ndarray] = {}
    for name, array in plain.items():
        block = _find_block(family, name)
        if block:
            own = f"{ours[block]}.{_rename(inside[block], name[len(block) :])}"
        else:
            own = _rename(family.outside, name)
        found |= _convert(own, array)
    return found


def blocks_of(names: Sequence[str]) -> list[str]:
    """List the names of a model's blocks ("block_1_0") in order, from the paths of its
    parameters."""
    return sorted(
        {found[0] for name in names if (found := re.match(r"block(_\d+)+(?=/)", name))},
        key=_numbers,
    )


def _numbers(name: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", name)]


def _find_block(family: Family, name: str) -> str:
    """Return the prefix of the block that a parameter belongs to; "" outside of blocks."""
    found = re.match(family.block, name)
    return "" if found is None else found[0]


def _rename(table: Mapping[str, str], name: str) -> str:
    """Return our name of a parameter, found by its own name or its layer's; its own name if neither
    is known."""
    layer, _, last = name.rpartition(".")
    for part, end in ((name, ""), (layer, f".{last}")):
        ours = next((ours for theirs, ours in table.items() if re.fullmatch(theirs, part)), None)
        if ours is not None:
            return ours + end
    return name


def _convert(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """Return an array by our name, in our shape; queries, keys and values as three."""
    if f".{_TOGETHER}." in name and array.shape[0] % 3 == 0:
        parts = zip(("query", "key", "value"), np.split(array, 3), strict=True)
        return {name.replace(_TOGETHER, f"attention.{each}"): part for each, part in parts}
    form = _FORMS.get(name)
    return {name: array if form is None else form(array)}


_FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    # Of a convolution
    "embed_kernel": lambda of: of.transpose(2, 3, 1, 0) if of.ndim == 4 else of,
    "class_token": lambda of: of[0, 0] if of.ndim == 3 and of.shape[:2] == (1, 1) else of,
    "embed_positions": lambda of: of[0] if of.ndim == 3 and len(of) == 1 else of,
}
