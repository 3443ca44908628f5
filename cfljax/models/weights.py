"""From a safetensors file to the parameters of a model: names are mapped, shapes checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfljax.errors import SpecError
from cfljax.lazy import jax, load
from cfljax.models.flat import Net, find_head, paths_of
from cfljax.models.foreign import blocks_of, rename_arrays
from cfljax.types import Model

if TYPE_CHECKING:
    from cfljax.models.apply import Network

# The entry of a file's header that says how many models it has
MODELS_KEY = "models"
# How PyTorch's names of the statistics of batch normalisation end
STATISTICS_ENDINGS = ("running_mean", "running_var", "num_batches_tracked")


class Start(NamedTuple):
    """A model's parameters from a file."""

    # f32[d]; 0 for parameters that the file lacks
    flat: np.ndarray
    # bool[d]: the parameters that the file has
    known: np.ndarray
    # The head of another shape than the model's, in words; "" if it fits
    misfit: str
    # The parts of the file that the model does not use, in words
    spare: tuple[str, ...] = ()
    # Layers of batch normalisation whose means and variances the model does not use
    batches: int = 0


def has_batch_statistics(path: str) -> bool:
    """Return whether a safetensors file has means and variances of batch normalisation; False if it
    is not such a file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(Path(path).expanduser(), framework="np") as arrays:
            names = arrays.keys()
            return any(name.endswith(STATISTICS_ENDINGS[0]) for name in names)
    except (OSError, SafetensorError):
        return False


def replace_net_norm(made: Network | Net) -> Network | Net:
    """Give the network batch normalisation with fixed statistics, if it can; its body must be
    frozen."""
    from cfljax.models.nets_images import replace_norm

    net = made if isinstance(made, Net) else Net(made)
    network = replace_norm(net.network)
    return made if network is None else net._replace(network=network)


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """Read the arrays of a safetensors file by name, numbers as f32. Raise a SpecError if it is not
    one."""
    from safetensors import safe_open

    # With JAX comes ml_dtypes, by which numpy knows bfloat16
    load()
    where = f'model.weights = "{path}"'
    file = Path(path).expanduser()
    if not file.is_file():
        raise SpecError(f"{where}: there is no such file")
    try:
        with safe_open(file, framework="np") as arrays:
            names = arrays.keys()
            return {name: _to_float(arrays.get_tensor(name)) for name in names}
    except Exception as error:
        # Safetensors and numpy raise several kinds
        reason = " ".join(str(error).split())[:100]
        raise SpecError(f"{where}: is not a complete safetensors file ({reason})") from error


def _to_float(array: np.ndarray) -> np.ndarray:
    """Convert the array to f32. Integers, such as a counter of batch normalisation, are dropped."""
    if array.dtype.kind in "biu":
        return np.zeros(array.shape if array.size < 2 else (0,), np.float32)
    return array.astype(np.float32)


def count_models(path: str) -> int:
    """Return how many models a safetensors file has that `export(cluster="all")` wrote, each array
    with an axis of models before its own; 0: one model, without that axis."""
    from safetensors import safe_open

    arrays = read_arrays(path)
    with safe_open(Path(path).expanduser(), framework="np") as file:
        written = (file.metadata() or {}).get(MODELS_KEY, "0")
    shapes = {array.shape[:1] for array in arrays.values()}
    if written != "0" and not (written.isdigit() and shapes == {(int(written),)}):
        raise SpecError(
            f'model.weights = "{path}": says that it has {written[:20]} models, and not all of its '
            "arrays have so many"
        )
    return int(written)


def read_start(
    model: Model,
    path: str,
    forget_bias: float = 0.0,
    flattened: bool = True,
    at: int | None = None,
) -> Start:
    """Read the model's parameters from the file, by the names that `export` writes in either layout
    or the names of a known family (`foreign`). A head of another shape is initialised; everything
    else must fit. `at`: which model of a file with several. Raises a SpecError."""
    arrays = read_arrays(path)
    if at is not None:
        arrays = {name: array[at] for name, array in arrays.items()}
    leaves = paths_of(model)
    where = f'model.weights = "{path}"'
    names = [name for name, _ in leaves]
    taken = {name.replace("/", ".") for name in names}
    if any(
        name.rpartition("/")[2] == "kernel" and name.replace("/", ".") in arrays for name in names
    ):
        named = arrays
    else:
        arrays = dict(rename_arrays(arrays, blocks_of(names), where))
        named, taken = _from_torch(arrays, leaves, forget_bias, flattened)
    head = find_head(model)
    flat = np.zeros(model.size, np.float32)
    known = np.zeros(model.size, bool)
    at = 0
    misfit = ""
    missing = []
    for name, leaf in leaves:
        size = math.prod(leaf.shape)
        found = named.get(name.replace("/", "."))
        if found is not None and found.shape == leaf.shape:
            flat[at : at + size] = found.ravel()
            known[at : at + size] = True
        elif head is not None and name.startswith(f"{head}/"):
            there = "missing" if found is None else _format_shape(found.shape)
            misfit = misfit or f"{name} is {there}, here {_format_shape(leaf.shape)}"
        else:
            missing.append(
                f"{name} {'is missing' if found is None else _format_shape(found.shape)}, "
                f"here {_format_shape(leaf.shape)}"
            )
        at += size
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise SpecError(f'{where}: does not fit model "{model.name}": {missing[0]}{more}')
    # Of a head one half alone would be of no use
    if misfit:
        of_head = [name.startswith(f"{head}/") for name in names]
        known[np.repeat(of_head, [math.prod(leaf.shape) for _, leaf in leaves])] = False
    if not np.isfinite(flat).all():
        raise SpecError(f"{where}: holds numbers that are not finite")
    batches = sum(name.endswith(STATISTICS_ENDINGS[0]) and name not in taken for name in arrays)
    return Start(flat, known, misfit, _describe_spare(arrays, taken, batches), batches)


def _describe_spare(
    arrays: dict[str, np.ndarray], taken: set[str], counted: int
) -> tuple[str, ...]:
    """Describe the arrays that the model has no use for; `counted` are layers of batch
    normalisation."""
    rest = [name for name in arrays if name not in taken and not name.endswith(STATISTICS_ENDINGS)]
    words = []
    if counted:
        words.append(
            f"its {counted} layers of batch normalisation are of group normalisation here: "
            "they take scales and biases, but not "
            "their means and variances, so outputs are not those of its network before the "
            "whole of it has trained; "
            'model.norm = "batch" and model.frozen = "body" take all of them'
        )
    if rest:
        more = f" (and {len(rest) - 1} more)" if len(rest) > 1 else ""
        words.append(f"the model has no place for {rest[0]}{more}")
    return tuple(words)


def _from_torch(
    arrays: dict[str, np.ndarray],
    leaves: list[tuple[str, jax.ShapeDtypeStruct]],
    forget_bias: float,
    flattened: bool,
) -> tuple[dict[str, np.ndarray], set[str]]:
    """Convert arrays of PyTorch's modules to our names, and list those looked for: the inverse of
    `export.state_dict`."""
    kinds = {name: leaf.shape for name, leaf in leaves}
    found: dict[str, np.ndarray] = {}
    taken: set[str] = set()

    def get(name: str) -> np.ndarray | None:
        taken.add(name)
        return arrays.get(name)

    channels = [
        shape[3] for name, shape in kinds.items() if name.endswith("/kernel") and len(shape) == 4
    ]
    dense = [name for name, shape in kinds.items() if name.endswith("/kernel") and len(shape) == 2]
    for name, shape in kinds.items():
        owner, _, last = name.replace("/", ".").rpartition(".")
        prefix = f"{owner}." if owner else ""
        recurrent = f"{owner.replace('.', '/')}/recurrent" in kinds
        value = _convert_parameter(last, len(shape), get, prefix, recurrent, forget_bias)
        is_after_images = bool(flattened and channels) and dense[:1] == [name]
        if value is not None and is_after_images and value.shape[0] % channels[-1] == 0:
            # PyTorch flattens images channel by channel, this package pixel by pixel
            by_channel = value.reshape(channels[-1], -1, value.shape[1])
            value = by_channel.swapaxes(0, 1).reshape(value.shape)
        if value is not None:
            found[f"{owner}.{last}" if owner else last] = value
    return found, taken


def _convert_parameter(
    last: str,
    axes: int,
    get: Callable[[str], np.ndarray | None],
    prefix: str,
    recurrent: bool,
    forget_bias: float,
) -> np.ndarray | None:
    """Convert a parameter of a layer; None if the file lacks it.

    Args:
      last: What the parameter is called in its layer.
      axes: How many axes it has here.
      get: Returns an array of the file.
      prefix: What the names of the layer's arrays begin with.
      recurrent: Whether the layer is an LSTM.
      forget_bias: What our LSTM adds to the bias of its forget gate.
    """
    if recurrent and last == "bias":
        # PyTorch has two biases, which are added
        of_inputs = get(f"{prefix}bias_ih_l0")
        of_hidden = get(f"{prefix}bias_hh_l0")
        for each in (of_inputs, of_hidden):
            if each is None or each.ndim != 1 or len(each) % 4:
                return None
        assert of_inputs is not None and of_hidden is not None
        bias: np.ndarray = of_inputs + of_hidden
        width = len(bias) // 4
        bias[width : 2 * width] -= np.float32(forget_bias)
        return bias
    if recurrent:
        value = get(f"{prefix}{'weight_ih_l0' if last == 'kernel' else 'weight_hh_l0'}")
        return None if value is None else value.T
    value = get(prefix + {"kernel": "weight", "scale": "weight"}.get(last, last))
    if value is None or last != "kernel" or value.ndim != axes:
        return value
    # PyTorch has the outputs first
    if axes == 4:
        return value.transpose(2, 3, 1, 0)
    return value.T if axes == 2 else value


def _format_shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "one number"
