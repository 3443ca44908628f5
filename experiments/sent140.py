"""Sent140, as a plug-in: tweets with their sentiment, as token ids and a frozen table of word vectors."""

from __future__ import annotations

import dataclasses
import gzip
import re
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax import register_data
from cfljax.data import arrays, leaf, npz
from cfljax.data.tokens import token_vector
from cfljax.errors import DataError
from cfljax.extend import Source, option

_FILES = ("sent140.npz", "sent140_100k.npz")
_TOKEN = re.compile(r"[\w']+|[.,!?;]")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of Sent140."""

    default_partition = "user"

    glove: str | None = option(None, "GloVe's text file (glove.6B.300d.txt); left out: random vectors by hash of word", file=True)
    width: int = option(300, "numbers per word vector", low=1, high=4096)
    tokens: int = option(25, "tokens per tweet; shorter tweets are padded at the end", low=1, high=1000)
    lowercase: bool = option(True, "lower-case words first, as GloVe 6B's are (LEAF's own reader does not)")
    vocabulary: int | None = option(None, "keep only this many words, the commonest of training tweets", low=1)
    slices: int = option(772, "clients, if the file has no accounts: this many slices of time", low=1)


class _Texts(NamedTuple):
    text: list[str]
    y: np.ndarray
    user: np.ndarray
    test: np.ndarray
    """bool[n]: whether the tweet is a test sample."""


@register_data("sent140", Options)
def make(options: Options, rng: np.random.Generator, where: list[Path]) -> Source:
    """Tweets and their sentiment from $CFLJAX_DATA: 25 tokens each, frozen word vectors, one user per account.

    Read from LEAF's folder `sent140/` (train/*.json, test/*.json), or from `sent140.npz` with the arrays `text` (UTF-8
    bytes of all tweets), `offset`, `y`, `row` (order in time), which has no accounts: its users are slices of time, each
    with both labels, and a fifth of each slice and label is for testing. Padding and unknown words are token 0, a zero
    vector. Words are runs of letters, digits and apostrophes, and each of `. , ! ? ;`."""
    place = _place(where)
    texts = _from_leaf(place) if place.is_dir() else _from_npz(place, options.slices, rng)
    lists = [words_of(t, options.lowercase)[: options.tokens] for t in texts.text]
    vocabulary, table = _table(lists, texts.test, options)
    number = {word: i for i, word in enumerate(vocabulary, 1)}
    x = np.zeros((len(lists), options.tokens), np.int32)
    for row, found in zip(x, lists, strict=True):
        row[: len(found)] = [number.get(word, 0) for word in found]
    named = arrays.split_parts(texts.test, x=x, y=texts.y, user=texts.user) | {"table": table}
    return arrays.source("sent140", str(place), named, 2)


def _table(lists: list[list[str]], test: np.ndarray, options: Options) -> tuple[list[str], np.ndarray]:
    """Return the words that have a vector, the commonest in training tweets first, and their vectors f32[1 + words, width], of
    which row 0 is zero."""
    counts = Counter(word for found, held_out in zip(lists, test, strict=True) if not held_out for word in found)
    ranked = sorted({word for found in lists for word in found}, key=lambda word: (-counts[word], word))[: options.vocabulary]
    if options.glove is None:
        warnings.warn("sent140 without data.glove: words have random vectors, which costs accuracy", stacklevel=2)
        vectors = {word: token_vector(word, options.width) for word in ranked}
    else:
        file = Path(options.glove).expanduser()
        vectors = glove(file, ranked, options.width)
        if not vectors:
            raise DataError(f"{file}: has a vector for none of the words in the tweets")
    known = [word for word in ranked if word in vectors]
    table = np.zeros((1 + len(known), options.width), np.float32)
    for i, word in enumerate(known, 1):
        table[i] = vectors[word]
    return known, table


def _place(where: list[Path]) -> Path:
    """The folder or file with the tweets; a DataError if none is found."""
    for folder in where:
        for place in (folder / "sent140", folder):
            if place.is_dir() and leaf.detect("sent140", place):
                return place
        for file in [folder] if folder.is_file() else [folder / name for name in _FILES]:
            if file.is_file():
                return file
    raise DataError(
        f'data.name = "sent140": no folder sent140/ with train/*.json and no sent140.npz in {", ".join(map(str, where))}; '
        f"make it with LEAF (github.com/TalwalkarLab/leaf, data/sent140) and copy it into $CFLJAX_DATA/sent140"
    )


def _from_leaf(folder: Path) -> _Texts:
    train, test = leaf.read_parts(folder)
    y = np.concatenate([leaf.to_integers(part.y, folder / name) for name, part in (("train", train), ("test", test))])
    if set(np.unique(y)) <= {0, 4}:  # the corpus marks positive tweets with 4, LEAF's preprocessing with 1
        y = y // 4
    text = [_text(x, folder) for x in (*train.x, *test.x)]
    return _Texts(text, y, np.concatenate([train.user, test.user]), np.arange(len(y)) >= len(train.y))


def _text(x: object, folder: Path) -> str:
    """The text of a sample: one of LEAF's columns (id, date, query, account, text, …), or the sample itself."""
    fields = [x] if isinstance(x, str) else x
    if not isinstance(fields, list) or not fields or not isinstance(text := fields[4 if len(fields) > 4 else 0], str):
        raise DataError(f"{folder}: a sample is {str(x)[:60]!r}: must be a string, or LEAF's columns with the text as the fifth")
    return text


def _from_npz(file: Path, slices: int, rng: np.random.Generator) -> _Texts:
    z = npz.load_arrays(file, ("text", "offset", "y", "row"))
    raw, offset, y, row = z["text"], z["offset"].astype(np.int64), arrays.labels(z["y"], f"{file}: y", 2), z["row"]
    n = len(y)
    if raw.dtype != np.uint8 or raw.ndim != 1 or row.shape != (n,) or offset.shape != (n + 1,):
        raise DataError(f"{file}: must hold text (bytes), offset (one entry more than y), y and row (one entry per tweet)")
    if offset[0] < 0 or offset[-1] > len(raw) or (np.diff(offset) < 0).any():
        raise DataError(f"{file}: offset must rise from 0 to the length of text, {len(raw)}")
    few = np.bincount(y, minlength=2).min()
    if few < 2 * slices:
        raise DataError(f"data.slices = {slices}: {file} has {few} tweets of its rarer label; a slice needs two of each label")
    content = raw.tobytes()
    try:
        text = [content[a:b].decode() for a, b in zip(offset[:-1], offset[1:], strict=True)]
    except UnicodeDecodeError as e:
        raise DataError(f"{file}: the bytes between two entries of offset are not valid UTF-8") from e
    user, test = time_slices(y, row, slices, rng)
    return _Texts(text, y, user, test)


def time_slices(y: np.ndarray, row: np.ndarray, slices: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(i32[n] the slice of each tweet, bool[n] test): each label's tweets in the order of `row`, cut into equal slices."""
    user, test = np.empty(len(y), np.int32), np.zeros(len(y), bool)
    for label in np.unique(y):
        of_label = np.flatnonzero(y == label)
        for u, rows in enumerate(np.array_split(of_label[np.argsort(row[of_label], kind="stable")], slices)):
            user[rows] = u
            test[rng.permutation(rows)[: max(1, round(0.2 * len(rows)))]] = True
    return user, test


def words_of(text: str, lowercase: bool) -> list[str]:
    """The words of a text and its marks `. , ! ? ;`, in order."""
    return _TOKEN.findall(text.lower() if lowercase else text)


def glove(file: Path, wanted: Iterable[str], width: int) -> dict[str, np.ndarray]:
    """f32[width] for each wanted word that the file has. Each line is a word and its numbers; the file may be gzipped."""
    wanted, found = set(wanted), {}
    try:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if number > 1 and line.partition(" ")[0] not in wanted:
                    continue  # of millions of lines only the wanted ones are split, and the first, to check the width
                fields = line.rstrip("\n").rsplit(" ", width)  # from the right: some of GloVe's words hold spaces
                if len(fields) != width + 1 or not fields[0]:
                    raise DataError(f"{file}: line {number} is not a word and {width} numbers (data.width = {width})")
                if fields[0] in wanted:
                    found[fields[0]] = np.array(fields[1:], np.float32)
                    if not np.isfinite(found[fields[0]]).all():
                        raise DataError(f"{file}: line {number}: has a number that is NaN or infinite")
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{file}: cannot be read ({error})") from error
    return found
