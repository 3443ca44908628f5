"""Image classification sets that tensorflow-datasets has prepared as ArrayRecord files; read
without TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfljax.data import arrays
from cfljax.data.bounded import parser_errors, read_json
from cfljax.data.cifar import COARSE_LABELS
from cfljax.data.idx import convert_emnist, is_letters
from cfljax.data.npz import load_arrays
from cfljax.data.sources import FileOptions, Reader
from cfljax.errors import DataError
from cfljax.files import write_whole
from cfljax.registry.checksums import hash_files
from cfljax.registry.options import Value
from cfljax.types import Source

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_INFO = "dataset_info.json"
# Data sets with this many samples are cached decoded: decoding 100,000 PNG files takes most of a
# minute
MIN_CACHED_SAMPLES = 5000
_NAMES = ("x_train", "y_train", "x_test", "y_test")


def detect(name: str, data_dir: Path, cache: Path) -> Reader | None:
    """Return a reader if `data_dir` holds a prepared set of that name (`mnist`, `emnist/balanced`,
    `mnist:3.0.1`)."""
    base, _, version = name.partition(":")
    folder = version_folder(data_dir / base, version)
    if folder:
        return Reader(partial(read, name, folder, cache), partial(files, folder))
    parts = sorted({p.parent.parent.name for p in (data_dir / base).glob(f"*/*/{_INFO}")})
    if parts and not version:
        raise DataError(
            f'data.name = "{name}": {data_dir / base} has parts; name one: '
            + ", ".join(f"{base}/{p}" for p in parts)
        )
    return None


def files(folder: Path) -> list[tuple[str, Path]]:
    """Return (role, file) of a prepared version."""
    return [(file.name, file) for file in sorted(folder.iterdir()) if file.is_file()]


def version_folder(folder: Path, version: str = "") -> Path | None:
    """Return the newest prepared version below `folder`, or the one asked for."""
    found = {}
    for info in folder.glob(f"{version or '*'}/{_INFO}"):
        numbers = info.parent.name.split(".")
        if all(n.isdigit() for n in numbers):
            found[tuple(map(int, numbers))] = info.parent
    return found[max(found)] if found else None


def read(name: str, folder: Path, cache: Path, options: FileOptions) -> Source:
    """Read one prepared version: its splits `train` and `test` (else `validation`). `cache` keeps
    decoded images."""
    check_format(name, folder)
    import tensorflow_datasets as tfds

    with parser_errors(folder, "as a prepared data set"):
        builder = tfds.builder_from_directory(str(folder))
        splits = {s: int(builder.info.splits[s].num_examples) for s in builder.info.splits}
        image, label = _find_keys(builder.info, folder)
        shape = builder.info.features[image].shape
        classes = builder.info.features[label].num_classes
        kind = np.dtype(builder.info.features[image].np_dtype)
    test = next((s for s in ("test", "validation") if s in splits), None)
    if "train" not in splits or test is None:
        raise DataError(
            f"{folder}: must have the splits train and test (or validation); it has "
            f"{', '.join(splits) or 'none'}"
        )
    if kind != np.uint8:
        raise DataError(
            f"{folder}: images are {kind}; only images of 8 bits can be used; import them "
            "scaled, as arrays"
        )
    if len(shape) != 3 or None in shape:
        raise DataError(
            f"{folder}: images have the shape {shape}; only images of one size can be used"
        )

    def decode() -> dict[str, np.ndarray]:
        pairs = [
            _read_split(builder, split, splits[split], shape, image, label, folder)
            for split in ("train", test)
        ]
        return dict(zip(_NAMES, (*pairs[0], *pairs[1]), strict=True))

    z = decode_cached(folder, cache, splits["train"] + splits[test], decode)
    for part in ("train", "test"):
        z[f"x_{part}"], z[f"y_{part}"] = convert_emnist(name, z[f"x_{part}"], z[f"y_{part}"])
    if folder.parent.name == "cifar100" and classes == len(COARSE_LABELS):
        z["coarse"] = COARSE_LABELS
    return arrays.source(
        name, str(folder), z, options.classes or (26 if is_letters(name) else classes)
    )


def check_format(name: str, folder: Path) -> None:
    """Raise a DataError unless files are ArrayRecord and the classes that features.json names (to
    import) tensorflow-datasets'."""
    info = read_json(folder / _INFO)
    features = read_json(folder / "features.json")
    form = info.get("fileFormat") if isinstance(info, dict) else None
    if form != "array_record":
        raise DataError(
            f"{folder}: is prepared as {form or 'tfrecord'}, which needs TensorFlow to read; "
            f"run `python -m cfljax.data prepare {name} --dir ANOTHER_FOLDER` and set "
            "data.path to it"
        )
    foreign = [
        c
        for c in _list_classes(features)
        if not str(c).startswith("tensorflow_datasets.core.features.")
    ]
    if foreign:
        raise DataError(
            f"{folder / 'features.json'}: names the class {foreign[0]}, which is not one of "
            "tensorflow-datasets'"
        )


def _list_classes(tree: Value) -> list[Value]:
    if isinstance(tree, list):
        return [c for item in tree for c in _list_classes(item)]
    if not isinstance(tree, dict):
        return []
    here = [
        tree[k]
        for k in ("pythonClassName", "type")
        if k in tree and not isinstance(tree[k], (dict, list))
    ]
    return here + [c for value in tree.values() for c in _list_classes(value)]


def _find_keys(info: tfds.core.DatasetInfo, folder: Path) -> tuple[str, str]:
    from tensorflow_datasets import features

    kinds = {"image": features.Image, "label": features.ClassLabel}
    supervised = [k for k in (info.supervised_keys or ()) if isinstance(k, str)]
    names = []
    for what, kind in kinds.items():
        having = [k for k, f in info.features.items() if isinstance(f, kind)]
        preferred = [k for k in having if k in supervised] or having
        if len(preferred) != 1:
            raise DataError(
                f"{folder}: has {len(preferred)} {what} features; there must be one image "
                "and one class label"
            )
        names.append(preferred[0])
    return names[0], names[1]


def _read_split(
    builder: tfds.core.DatasetBuilder,
    split: str,
    count: int,
    shape: tuple[int, ...],
    image: str,
    label: str,
    folder: Path,
) -> tuple[np.ndarray, np.ndarray]:
    with parser_errors(f"{folder}: split {split}", then=": prepare it again"):
        examples = builder.as_data_source(split=split)
        if len(examples) != count:
            raise DataError(
                f"{folder}: split {split} has {len(examples)} of {count} examples: prepare it again"
            )
        x = np.empty((count, *shape), np.uint8)
        y = np.empty(count, np.int64)
        for i, example in enumerate(examples):
            x[i] = np.asarray(example[image]).reshape(shape)
            y[i] = example[label]
    return x, y


def decode_cached(
    folder: Path, cache: Path, count: int, decode: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the four arrays that `decode()` returns for the files of `folder`. They come from
    `cache` if it has them for files with the same contents; otherwise they are decoded and stored
    there. `count`: the number of samples."""
    if count < MIN_CACHED_SAMPLES:
        return decode()
    file = cache / f"{folder.parent.name}-{folder.name}-{hash_files(files(folder))[:16]}.npz"
    # Not kept yet, or damaged
    with contextlib.suppress(DataError):
        return load_arrays(file, _NAMES)
    arrays_of = decode()
    # A full or read-only disk costs time, not the run
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(file) as part, part.open("wb") as f:
            np.savez(f, **arrays_of)  # type: ignore[arg-type]
    return arrays_of
