"""From CSV, Parquet and saved Hugging Face data sets to samples: each becomes Arrow tables, whose
columns go by name."""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cfljax.data.bounded import parser_errors
from cfljax.data.importing_images import Picture, decode_images
from cfljax.data.names import is_decimal, pack_integers, parse_integer
from cfljax.data.parts import Wanted
from cfljax.errors import DataError, DataWarning

if TYPE_CHECKING:
    import datasets
    import pyarrow as arrow

MISSING_WORDS = {"", "NA", "N/A", "nan", "NaN", "null", "NULL", "None"}
"""Words that mean a missing value in a column of numbers; in a column of names they are names."""
_SPLIT = re.compile(r"(train|test|val(?:id(?:ation)?)?)(?![a-z])")


class Table(NamedTuple):
    """A table that was read: training or test samples."""

    where: str
    data: arrow.Table
    # Column -> the names of the classes that its numbers stand for
    class_names: dict[str, list[str]] = {}
    # The user of each row, if the folder names it
    users: np.ndarray | None = None

    def values(self, name: str, wanted: Wanted) -> np.ndarray:
        """Convert a column: numbers or objects [n], lists of numbers [n, …], images u8[n, height,
        width, channels]."""
        return _to_array(
            f"{self.where}: column {name}", self.data.column(name).combine_chunks(), wanted
        )

    def names(self, what: str, name: str) -> np.ndarray:
        """Convert a column of names. Strings are stripped and normalised in Unicode."""
        cells = self.data.column(name).to_pylist()
        gaps = sum(isinstance(cell, str) and cell in MISSING_WORDS for cell in cells)
        numbers = sum(
            isinstance(cell, str) and cell not in MISSING_WORDS and is_number(cell)
            for cell in cells
        )
        among_numbers = numbers > 0 and numbers + gaps == len(cells)
        for row, cell in enumerate(cells):
            if (
                cell is None
                or cell == ""
                or cell != cell
                or (among_numbers and cell in MISSING_WORDS)
            ):
                raise DataError(
                    f"{self.where}: the {what} is missing in row {row + 1} (column {name})"
                )
        if any(isinstance(cell, (list, dict)) for cell in cells):
            return np.array(cells)
        if all(isinstance(cell, bool) for cell in cells):
            return np.array(cells, bool)
        if all(isinstance(cell, int) for cell in cells):
            return pack_integers(cells)
        if all(isinstance(cell, float) for cell in cells):
            return np.array(cells, self.data.schema.field(name).type.to_pandas_dtype())
        words = [unicodedata.normalize("NFC", _to_text(cell)).strip() for cell in cells]
        integers = {word: parse_integer(word) for word in set(words)}
        if None not in integers.values():
            return pack_integers(integers[word] or 0 for word in words)
        if all(map(is_decimal, integers)):
            if what == "label":
                row = next(row for row, word in enumerate(words) if integers[word] is None)
                raise DataError(
                    f"{self.where}: labels are classes, and must be integers or names; the label "
                    f"in row {row + 1} is {words[row][:30]} (column {name})"
                )
            # 4.0 beside 4.5 is the 4 of another table, which may have no fraction.
            exact = ((word, integers[word]) for word in words)
            words = [word if integer is None else str(integer) for word, integer in exact]
        return np.array(words)


def _to_text(cell: Any) -> str:
    """Return the text of a cell. Bytes that are no text become hexadecimal digits."""
    if not isinstance(cell, bytes):
        return str(cell)
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return f"0x{cell.hex()}"


def read_csv(file: Path, _: Wanted) -> list[Table]:
    """Return [the table] of a CSV or TSV file with a header, whose cells stay strings: 01 is not 1,
    and NA may be a class."""
    import pandas as pd
    import pyarrow as arrow

    form: Any = {
        "sep": "\t" if ".tsv" in file.suffixes else ",",
        "skipinitialspace": True,
        "dtype": str,
        "keep_default_na": False,
    }
    with parser_errors(file, "as CSV"), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            head = pd.read_csv(file, header=None, nrows=1, **form)
            if len(head.columns) == 1 and ";" in head.iloc[0, 0]:
                head = pd.read_csv(file, header=None, nrows=1, **(form := form | {"sep": ";"}))
            frame = pd.read_csv(file, index_col=False, **form)
        except pd.errors.ParserWarning:
            raise DataError(
                f"{file}: a row has more cells than the header has names; give each column a name"
            ) from None
        except UnicodeDecodeError:
            raise DataError(
                f"{file}: is not in UTF-8; convert it, for example with iconv -f latin1 -t utf-8"
            ) from None
    names = [name for name in head.iloc[0] if name]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise DataError(f"{file}: two columns are called {twice[0]}; give them different names")
    return [
        Table(
            str(file),
            arrow.table({str(name): arrow.array(frame[name], arrow.string()) for name in frame}),
        )
    ]


def read_parquet(where: Path, _: Wanted) -> list[Table]:
    """Return the tables (training, test) of a Parquet file or a folder of them. Names that begin
    with the word train, test or val say to which part a file belongs; without such names all files
    are the training part."""
    files = (
        [where]
        if where.is_file()
        else sorted(f for f in where.glob("*.parquet") if not f.name.startswith("."))
    )
    sides: dict[str, list[Path]] = {"train": [], "test": [], "val": [], "": []}
    for file in files:
        match = None if where.is_file() else _SPLIT.match(file.name.lower())
        sides[
            match[1].replace("validation", "val").replace("valid", "val") if match else ""
        ].append(file)
    if not any(sides[side] for side in ("train", "test", "val")):
        return [_read_parquet(where, files)]
    if not sides["train"]:
        sides["train"] = sides[""]
        sides[""] = []
    if not sides["train"]:
        raise DataError(f"{where}: has no training file (all names begin with test or val)")
    test = "test" if sides["test"] else "val"
    if left := sides[""] + (sides["val"] if test == "test" else []):
        warnings.warn(
            f"{where}: left out: {', '.join(f.name for f in left)}", DataWarning, stacklevel=2
        )
    return [_read_parquet(where, sides[side]) for side in ("train", test) if sides[side]]


def _read_parquet(where: Path, files: list[Path]) -> Table:
    """Read Parquet files as one table."""
    import pyarrow as arrow
    import pyarrow.parquet

    with parser_errors(where, "as Parquet"):
        return Table(
            str(where if len(files) > 1 else files[0]),
            arrow.concat_tables(map(pyarrow.parquet.read_table, files)),
        )


def is_hub_name(path: str) -> bool:
    """Return whether this is `hf:OWNER/NAME` or `hf:OWNER/NAME:CONFIGURATION`, a data set of
    Hugging Face's hub."""
    return bool(re.fullmatch(r"hf:[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(:[\w.+-]+)?", path))


def is_saved(folder: Path) -> bool:
    """Return whether `save_to_disk` of Hugging Face's datasets wrote this folder, or two of its
    splits."""
    return any(
        (folder / mark).is_file()
        for mark in ("dataset_dict.json", "state.json", "train/state.json")
    )


def read_saved(folder: Path, _: Wanted) -> list[Table]:
    """Return the tables (training, test) of a saved data set, or of a folder with one per client,
    as Flower's partitioners."""
    if is_saved(folder) or is_hub_name(str(folder)):
        return [concatenate_datasets(str(folder), {None: split}) for split in _load_splits(folder)]
    clients = {client: _load_splits(path) for client, path in clients_in(folder).items()}
    if len({len(splits) for splits in clients.values()}) > 1:
        without = next(client for client, splits in clients.items() if len(splits) == 1)
        raise DataError(
            f"{clients_in(folder)[without]}: has no test split, and other clients have one; "
            "give one to each, or to none"
        )
    return [
        concatenate_datasets(str(folder), dict(zip(clients, side, strict=True)))
        for side in zip(*clients.values(), strict=True)
    ]


def clients_in(folder: Path) -> dict[Any, Path]:
    """Return client -> its saved data set. Where several folders differ in a number only, as
    partition_0, partition_1, … do, the numbers are the clients, and other folders are left out;
    else the names are."""
    saved = [
        path
        for path in sorted(folder.iterdir())
        if not path.name.startswith(".") and is_saved(path)
    ]
    if not saved:
        raise DataError(f"{folder}: has no data set that save_to_disk wrote")
    kinds: dict[tuple[str, str], dict[Any, Path]] = {}
    for path in saved:
        if match := re.fullmatch(r"(.*?)(\d+)(\D*)", path.name):
            alike = kinds.setdefault((match[1], match[3]), {})
            if (other := alike.setdefault(int(match[2]), path)) != path:
                raise DataError(
                    f"{folder}: {other.name} and {path.name} have the same number; rename one"
                )
    numbered = max(kinds.values(), key=len, default={})
    if len(numbered) < 2:
        return {path.name: path for path in saved}
    if left := [path.name for path in saved if path not in numbered.values()]:
        line = (
            f"{folder}: left out, because the clients are {numbered[min(numbered)].name}, …: "
            f"{', '.join(left)}"
        )
        warnings.warn(line, DataWarning, stacklevel=2)
    return dict(sorted(numbered.items()))


def _load_splits(folder: Path) -> list[datasets.Dataset]:
    """Load the splits (training, test) of a saved data set, or of one on Hugging Face's hub."""
    try:
        from datasets import load_dataset, load_from_disk
    except ImportError as error:
        raise DataError(
            f'{folder}: reading it needs the package datasets: pip install ".[import]" in '
            "the checkout"
        ) from error
    if is_hub_name(str(folder)):
        with parser_errors(folder, "from Hugging Face's hub"):
            name, _, configuration = str(folder).removeprefix("hf:").partition(":")
            return choose_splits(folder, load_dataset(name, configuration or None))
    with parser_errors(folder, "as a saved data set"):
        whole = (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()
        found: Any = (
            load_from_disk(str(folder))
            if whole
            else {
                path.parent.name: load_from_disk(str(path.parent))
                for path in sorted(folder.glob("*/state.json"))
            }
        )
    return choose_splits(folder, found)


def choose_splits(folder: Path | str, found: Any) -> list[datasets.Dataset]:
    """Choose the training split, and the test split if there is one, else that for validation."""
    if not isinstance(found, dict):
        return [found]
    if "train" not in found:
        raise DataError(f"{folder}: has no split train; it has {', '.join(found) or 'none'}")
    test = next((name for name in ("test", "validation", "valid") if name in found), None)
    return [found[name] for name in ("train", test) if name is not None]


def concatenate_datasets(where: str, sets: dict[Any, datasets.Dataset]) -> Table:
    """Return the data sets of clients as one table, with the user of each row; the table of the
    client None has no users."""
    import pyarrow as arrow

    first = next(iter(sets.values()))
    for client, held in sets.items():
        if client is not None and not len(held):
            raise DataError(
                f"{where}: {client} has no samples; remove the folder, or partition the data again"
            )
        if held.features != first.features:
            line = f"{where}: {client} has other columns, types or classes than {next(iter(sets))}"
            raise DataError(f"{line}; give all clients the same")
    users = None
    if None not in sets:
        numbered = all(isinstance(client, int) for client in sets)
        names = pack_integers(sets) if numbered else np.array(list(sets))
        users = np.repeat(names, [len(held) for held in sets.values()])
    named = {
        c: list(map(str, kind.names))
        for c, kind in first.features.items()
        if getattr(kind, "names", None)
    }
    return Table(
        where,
        arrow.concat_tables(held.with_format("arrow")[:] for held in sets.values()),
        named,
        users,
    )


def _to_array(where: str, column: arrow.Array, wanted: Wanted) -> np.ndarray:
    import pyarrow as arrow

    kind = column.type
    # An extension type, such as Array2D of Hugging Face's datasets, is stored as nested lists
    if isinstance(kind, arrow.BaseExtensionType):
        kind = column.type.storage_type
        column = column.storage
    if column.null_count:
        raise DataError(f"{where} is empty in {column.null_count} rows")
    is_image = arrow.types.is_struct(kind) and "bytes" in [f.name for f in kind]
    if is_image or arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind):
        cells = [
            cell["bytes"] or Path(cell["path"]) if is_image else cell for cell in column.to_pylist()
        ]
        opened: list[Picture] = [
            (
                f"{where}: the image in row {row + 1}",
                cell if isinstance(cell, Path) else io.BytesIO(cell),
            )
            for row, cell in enumerate(cells)
        ]
        return decode_images(opened, wanted)
    shape = []
    while (
        arrow.types.is_list(kind)
        or arrow.types.is_large_list(kind)
        or arrow.types.is_fixed_size_list(kind)
    ):
        inner = column.flatten()
        n = len(column)
        width = len(inner) // max(n, 1)
        if not arrow.types.is_fixed_size_list(kind) and not np.all(
            np.diff(column.offsets.to_numpy()) == width
        ):
            raise DataError(f"{where} has lists of different lengths")
        shape.append(width)
        column, kind = inner, inner.type
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    if shape and values.dtype.kind not in "biuf":
        raise DataError(f"{where} holds lists of {kind}, which are not numbers: --drop it")
    return values.reshape(-1, *shape) if shape else values


def is_number(cell: object) -> bool:
    """Return whether a cell can be read as a number."""
    try:
        float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True
