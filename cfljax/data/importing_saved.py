"""What `save_to_disk` of Hugging Face's datasets wrote, read without that package: one data set, or a folder with one for each
client, as Flower's partitioners give them."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfljax.data.bounded import read_json, readable
from cfljax.data.importing_arrow import from_arrow
from cfljax.data.parts import Columns, Wanted
from cfljax.errors import DataError, DataWarning
from cfljax.registry.options import Table

if TYPE_CHECKING:
    import pyarrow as arrow

_MARKS = ("dataset_dict.json", "state.json", "train/state.json")
"""A folder with one of these is a saved data set."""
_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")


def read_datasets(folder: Path, wanted: Wanted) -> list[Columns]:
    """The tables (training, test) of a saved data set, or of all clients of a folder that has one for each."""
    if _is_saved(folder):
        return [_together(str(side), {None: side}, wanted) for side in _sides(folder)]
    clients = {client: _sides(place) for client, place in clients_in(folder).items()}
    if len({len(sides) for sides in clients.values()}) > 1:
        without = next(sides[0] for sides in clients.values() if len(sides) == 1)
        raise DataError(f"{without}: has no test split, and other clients have one; give one to each client, or to none")
    each = zip(("training", "test"), zip(*clients.values(), strict=True), strict=False)
    return [_together(f"{folder}: {part} samples", dict(zip(clients, side, strict=True)), wanted) for part, side in each]


def clients_in(folder: Path) -> dict[str | int, Path]:
    """Client -> its saved data set. Where several folders differ in a number only, as partition_0, partition_1, … do, the numbers
    are the clients, and other folders are left out; else the names are."""
    saved = [place for place in sorted(folder.iterdir()) if not place.name.startswith(".") and _is_saved(place)]
    kinds: dict[tuple[str, str], dict[Any, Path]] = defaultdict(dict)
    for place in saved:
        if match := _NUMBERED.fullmatch(place.name):
            kinds[match[1], match[3]][int(match[2])] = place
    numbered = max(kinds.values(), key=len, default={})
    if len(numbered) < 2:
        if not saved:
            raise DataError(f"{folder}: has no data set that save_to_disk wrote")
        return {place.name: place for place in saved}
    if left := [place.name for place in saved if place not in numbered.values()]:
        line = f"{folder}: left out, as the clients are {numbered[min(numbered)].name}, …: {', '.join(left)}"
        warnings.warn(line, DataWarning, stacklevel=2)
    return dict(sorted(numbered.items()))


def _is_saved(folder: Path) -> bool:
    return any((folder / mark).is_file() for mark in _MARKS)


def _sides(folder: Path) -> list[Path]:
    """The folders of the parts (training, test) of a saved data set."""
    if (folder / "state.json").is_file():
        return [folder]
    if (folder / "dataset_dict.json").is_file():
        splits = _json(folder / "dataset_dict.json").get("splits")
        splits = splits if isinstance(splits, list) else []
    else:
        splits = [place.parent.name for place in sorted(folder.glob("*/state.json"))]
    test = next((s for s in ("test", "validation", "valid") if s in splits), None)
    if "train" not in splits:
        raise DataError(f"{folder}: has no split train; it has {', '.join(map(str, splits)) or 'none'}")
    return [folder / name for name in ("train", test) if name is not None]


def _together(where: str, places: Mapping[Any, Path], wanted: Wanted) -> Columns:
    """The tables of clients as one, with the owner of each row; with the client None, a table without owners."""
    import pyarrow as arrow

    tables = [_table(place) for place in places.values()]
    features = [_json(place / "dataset_info.json").get("features") or {} for place in places.values()]
    for place, table, kinds in zip(places.values(), tables, features, strict=True):
        if _classes(kinds) != _classes(features[0]):
            raise DataError(f"{place}: names other classes than {next(iter(places.values()))}; give all clients the same features")
        if None not in places and not len(table):
            raise DataError(f"{place}: has no samples; leave the folder out, or partition the data anew")
    with readable(where, "as one table", "; give all clients the same columns, of the same types"):
        whole = from_arrow(where, arrow.concat_tables(tables), wanted, features[0])
    owners = None if None in places else np.repeat(np.array(list(places)), [len(table) for table in tables])
    return whole._replace(owners=owners)


def _classes(features: Table) -> dict[str, list[str]]:
    return {name: kind["names"] for name, kind in features.items() if isinstance(kind, dict) and kind.get("names")}


def _json(file: Path) -> Table:
    content = read_json(file)
    return content if isinstance(content, dict) else {}


def _table(folder: Path) -> arrow.Table:
    """The table of one saved Dataset: Arrow streams."""
    import pyarrow as arrow

    state = _json(folder / "state.json")
    if state.get("_indices_data_files"):
        raise DataError(f"{folder}: is a selection of another data set; call flatten_indices() before save_to_disk")
    files = [entry.get("filename") for entry in state.get("_data_files") or []]
    if not files or not all(isinstance(f, str) and Path(f).name == f for f in files):
        raise DataError(f"{folder / 'state.json'}: names no data files beside it")
    with readable(folder, "as Arrow"):
        return arrow.concat_tables([arrow.ipc.open_stream(arrow.memory_map(str(folder / name))).read_all() for name in files])
