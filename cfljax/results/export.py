"""Convert the parameters of a model from a tree to named arrays, also in PyTorch's layout, and
write safetensors files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfljax.errors import SpecError, StoreError
from cfljax.lazy import jax
from cfljax.registry.options import Table
from cfljax.store.arrays import pack
from cfljax.store.atomic import store_errors, sync_folder, write_bytes

if TYPE_CHECKING:
    from cfljax.types import Tree


class _Layer(NamedTuple):
    name: str
    arrays: dict[str, np.ndarray]


def name_arrays(params: Tree) -> dict[str, np.ndarray]:
    """Name the parameters by their paths, in the order of the layers: `dense_0.kernel` f32[inputs,
    outputs]."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.array(leaf)
        for path, leaf in leaves
    }


def state_dict(
    params: Tree, forget_bias: float = 0.0, flattened: bool = True
) -> dict[str, np.ndarray]:
    """Convert the parameters to the arrays of PyTorch's modules: `weight` [outputs, inputs] of
    `Linear`, [outputs, inputs, rows, columns] of `Conv2d`, `weight_ih_l0`, … of `LSTM`. The inputs
    of a dense layer after a convolution are in PyTorch's order (channel, row, column).

    Args:
        params: the network's own tree.
        forget_bias: the constant in the forget gate of LSTM layers, which PyTorch has in the bias.
        flattened: a dense layer after a convolution sees all its pixels; False: their mean."""
    layers: dict[str, dict[str, np.ndarray]] = {}
    for path, array in name_arrays(params).items():
        owner, _, name = path.rpartition(".")
        layers.setdefault(owner, {})[name] = array
    found: dict[str, np.ndarray] = {}
    # The channels of the convolution just before a layer; 0: there is none
    channels = 0
    for layer in _sort_layers([_Layer(name, arrays) for name, arrays in layers.items()]):
        converted, channels = _convert_to_torch(layer.arrays, channels, forget_bias)
        begin = f"{layer.name}." if layer.name else ""
        channels = channels if flattened else 0
        found |= {begin + name: np.array(array, order="C") for name, array in converted.items()}
    return found


def _sort_layers(layers: list[_Layer]) -> list[_Layer]:
    """Sort convolutions and recurrent layers before dense ones: trees are sorted by name, and
    `head` comes before `layer`."""
    return sorted(
        layers,
        key=lambda layer: (
            getattr(layer.arrays.get("kernel"), "ndim", 0) == 2 and "recurrent" not in layer.arrays
        ),
    )


def _convert_to_torch(
    layer: Mapping[str, np.ndarray], channels: int, forget_bias: float
) -> tuple[dict[str, np.ndarray], int]:
    """Return (the arrays of a layer in PyTorch's layout, channels of the convolution just before
    the next layer)."""
    kernel = layer.get("kernel")
    if kernel is None:
        renamed = {"weight" if name == "scale" else name: array for name, array in layer.items()}
        # Sorted, because PyTorch has the weight before the bias
        return dict(sorted(renamed.items(), key=lambda item: item[0] != "weight")), channels
    rest = {name: array for name, array in layer.items() if name != "kernel"}
    if "recurrent" in layer:
        bias = layer["bias"].copy()
        width = layer["recurrent"].shape[0]
        bias[width : 2 * width] += np.float32(forget_bias)
        weights = {"weight_ih_l0": kernel.T, "weight_hh_l0": layer["recurrent"].T}
        return weights | {"bias_ih_l0": bias, "bias_hh_l0": np.zeros_like(bias)}, 0
    if kernel.ndim == 4:
        return {"weight": kernel.transpose(3, 2, 0, 1)} | rest, kernel.shape[3]
    if kernel.ndim != 2:
        raise SpecError(
            f"a kernel of the shape {kernel.shape}: fits no Linear, Conv2d or LSTM of "
            'PyTorch; export with layout = "jax"'
        )
    if channels and kernel.shape[0] % channels == 0:
        kernel = kernel.reshape(-1, channels, kernel.shape[1]).swapaxes(0, 1).reshape(kernel.shape)
    return {"weight": kernel.T} | rest, 0


def write_safetensors(
    path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], about: Mapping[str, str]
) -> Path:
    """Write the arrays to a `.safetensors` file, whole or not at all. `about`: texts that its
    header has beside them."""
    from safetensors.numpy import save

    file = Path(path)
    if file.suffix != ".safetensors":
        raise SpecError(f'export "{file}": must end with .safetensors')
    with store_errors(file):
        write_bytes(
            file,
            save(
                {name: np.ascontiguousarray(array) for name, array in arrays.items()}, dict(about)
            ),
        )
    return file


INDEX_FILE = "clusters.json"


def write_clusters(
    folder: str | os.PathLike[str],
    models: Mapping[int, Mapping[str, np.ndarray]],
    clients: np.ndarray,
    about: Table,
) -> Path:
    """Write the models of clusters as `cluster_K.npz`, and `clusters.json`: the cluster of each
    client (`clients` i32[C], −1: none), the file of each cluster, and what is said `about` the run.
    The folder appears when it is complete."""
    target = Path(folder)
    if target.exists():
        raise StoreError(f"{target}: exists already; remove it, or choose another folder")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    files = {str(cluster): f"cluster_{cluster}.npz" for cluster in models}
    index = {**about, "clusters": files, "clients": clients.tolist()}
    try:
        with store_errors(target):
            part.mkdir(parents=True)
            for cluster, arrays in models.items():
                write_bytes(
                    part / files[str(cluster)],
                    pack({name or "params": array for name, array in arrays.items()}),
                )
            write_bytes(part / INDEX_FILE, json.dumps(index).encode())
            part.rename(target)
            sync_folder(target.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target
