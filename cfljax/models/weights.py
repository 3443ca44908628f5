"""From a safetensors file to the parameters of a model: names are mapped, shapes checked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfljax.errors import SpecError
from cfljax.lazy import jax, load
from cfljax.models.flat import Net, head_of, paths_of
from cfljax.models.foreign import blocks_of, renamed
from cfljax.types import Model

if TYPE_CHECKING:
    from cfljax.models.apply import Network

COUNTED = ("running_mean", "running_var", "num_batches_tracked")
"""What batch normalisation keeps besides its scale and bias."""


class Start(NamedTuple):
    """What a file says of a model's parameters."""

    flat: np.ndarray
    """f32[d]; zeros where it says nothing."""
    known: np.ndarray
    """bool[d]: where it says something."""
    misfit: str
    """The head of another shape than the model's, in words; "" if it fits."""
    spare: tuple[str, ...] = ()
    """What of the file has no place in the model, in words."""
    batches: int = 0
    """How many of its layers of batch normalisation have means and variances for which the model has no place."""


def counts_batches(path: str) -> bool:
    """Whether a safetensors file has means and variances of batch normalisation; False if it is none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(Path(path).expanduser(), framework="np") as arrays:
            return any(name.endswith(COUNTED[0]) for name in arrays.keys())  # noqa: SIM118 (it is no dict)
    except (OSError, SafetensorError):
        return False


def with_its_statistics(made: Network | Net) -> Network | Net:
    """The network with means and variances of batch normalisation in place of group normalisation, if it is one that can have them.
    They do not train, so its body must be frozen."""
    from cfljax.models.nets_images import with_statistics

    net = made if isinstance(made, Net) else Net(made)
    network = with_statistics(net.network)
    return made if network is None else net._replace(network=network)


def read(path: str) -> dict[str, np.ndarray]:
    """Return the arrays of a safetensors file by name, numbers as f32. Raise a SpecError if it is none."""
    from safetensors import safe_open

    load()  # with JAX comes ml_dtypes, by which numpy knows bfloat16
    where = f'model.weights = "{path}"'
    file = Path(path).expanduser()
    if not file.is_file():
        raise SpecError(f"{where}: there is no such file")
    try:
        with safe_open(file, framework="np") as arrays:
            return {name: _numbers(arrays.get_tensor(name)) for name in arrays.keys()}  # noqa: SIM118 (it is no dict)
    except Exception as error:  # safetensors and numpy raise several kinds
        reason = " ".join(str(error).split())[:100]
        raise SpecError(f"{where}: is no whole safetensors file ({reason})") from error


def _numbers(array: np.ndarray) -> np.ndarray:
    """Return the array as f32. Whole numbers, such as a counter of batch normalisation, count as none."""
    if array.dtype.kind in "biu":
        return np.zeros(array.shape if array.size < 2 else (0,), np.float32)
    return array.astype(np.float32)


def start_of(model: Model, path: str, forget_bias: float = 0.0, flattened: bool = True) -> Start:
    """What the file says of the model's parameters, by the names that `export` writes in either layout or those of a known family
    (`foreign`). A head of another shape begins anew; all else must fit. Raises SpecError."""
    arrays, leaves, where = read(path), paths_of(model), f'model.weights = "{path}"'
    names = [name for name, _ in leaves]
    taken = {name.replace("/", ".") for name in names}
    if any(name.rpartition("/")[2] == "kernel" and name.replace("/", ".") in arrays for name in names):
        named = arrays
    else:
        arrays = dict(renamed(arrays, blocks_of(names), where))
        named, taken = _of_torch(arrays, leaves, forget_bias, flattened)
    head = head_of(model) if _has_head(model) else None
    flat, known, at, misfit, missing = np.zeros(model.size, np.float32), np.zeros(model.size, bool), 0, "", []
    for name, leaf in leaves:
        size, found = math.prod(leaf.shape), named.get(name.replace("/", "."))
        if found is not None and found.shape == leaf.shape:
            flat[at : at + size], known[at : at + size] = found.ravel(), True
        elif head is not None and name.startswith(f"{head}/"):
            misfit = misfit or f"{name} is {'missing' if found is None else _shape(found.shape)}, here {_shape(leaf.shape)}"
        else:
            missing.append(f"{name} {'is missing' if found is None else _shape(found.shape)}, here {_shape(leaf.shape)}")
        at += size
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise SpecError(f'{where}: does not fit model "{model.name}": {missing[0]}{more}')
    if misfit:  # of a head one half alone would be of no use
        known[_places(model, f"{head}/")] = False
    if not np.isfinite(flat).all():
        raise SpecError(f"{where}: holds numbers that are not finite")
    batches = sum(name.endswith(COUNTED[0]) and name not in taken for name in arrays)
    return Start(flat, known, misfit, _spare(arrays, taken, batches), batches)


def _spare(arrays: dict[str, np.ndarray], taken: set[str], counted: int) -> tuple[str, ...]:
    """What of the arrays has no place among those that were taken, in words; `counted` are layers of batch normalisation."""
    rest = [name for name in arrays if name not in taken and not name.endswith(COUNTED)]
    words = []
    if counted:
        words.append(
            f"its {counted} layers of batch normalisation are of group normalisation here: they take scales and biases, but not "
            "their means and variances, so outputs are not those of its network before the whole of it has trained; "
            'model.frozen = "body" takes all of them'
        )
    if rest:
        more = f" (and {len(rest) - 1} more)" if len(rest) > 1 else ""
        words.append(f"the model has no place for {rest[0]}{more}")
    return tuple(words)


def _has_head(model: Model) -> bool:
    try:
        return bool(head_of(model))
    except SpecError:
        return False


def _places(model: Model, prefix: str) -> np.ndarray:
    leaves = paths_of(model)
    return np.repeat([name.startswith(prefix) for name, _ in leaves], [math.prod(leaf.shape) for _, leaf in leaves])


def _of_torch(
    arrays: dict[str, np.ndarray], leaves: list[tuple[str, jax.ShapeDtypeStruct]], forget_bias: float, flattened: bool
) -> tuple[dict[str, np.ndarray], set[str]]:
    """(the arrays of PyTorch's modules by our names, the names of those that were looked for): the way back of
    `export.state_dict`."""
    kinds = {name: leaf.shape for name, leaf in leaves}
    found: dict[str, np.ndarray] = {}
    taken: set[str] = set()

    def get(name: str) -> np.ndarray | None:
        taken.add(name)
        return arrays.get(name)

    channels = [shape[3] for name, shape in kinds.items() if name.endswith("/kernel") and len(shape) == 4]
    dense = [name for name, shape in kinds.items() if name.endswith("/kernel") and len(shape) == 2]
    for name, shape in kinds.items():
        owner, _, last = name.replace("/", ".").rpartition(".")
        of = lambda word, owner=owner: get(f"{owner}.{word}" if owner else word)  # noqa: E731
        recurrent = f"{owner.replace('.', '/')}/recurrent" in kinds
        value = _converted(last, len(shape), of, recurrent, forget_bias)
        if value is not None and flattened and channels and name == dense[0] and value.shape[0] % channels[-1] == 0:
            value = value.reshape(channels[-1], -1, value.shape[1]).swapaxes(0, 1).reshape(value.shape)
        if value is not None:
            found[f"{owner}.{last}" if owner else last] = value
    return found, taken


def _converted(last: str, axes: int, of: object, recurrent: bool, forget_bias: float) -> np.ndarray | None:
    """A parameter called `last` from the arrays `of(word)` of its layer."""
    get = of if callable(of) else None
    assert get is not None
    if recurrent:
        if last == "bias":
            parts = [get("bias_ih_l0"), get("bias_hh_l0")]
            if any(each is None or each.ndim != 1 or len(each) % 4 for each in parts):
                return None
            bias = parts[0] + parts[1]
            width = len(bias) // 4
            bias[width : 2 * width] -= np.float32(forget_bias)
            return bias
        value = get("weight_ih_l0" if last == "kernel" else "weight_hh_l0")
        return None if value is None else value.T
    value = get({"kernel": "weight", "scale": "weight"}.get(last, last))
    if value is None or last != "kernel" or value.ndim != axes:
        return value
    return value.transpose(2, 3, 1, 0) if axes == 4 else value.T if axes == 2 else value


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "one number"
