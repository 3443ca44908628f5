"""From texts to samples: tokens that are followed by the next one (the label), or texts with
classes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax.data import arrays, leaf, tokens
from cfljax.data.importing_columns import check_names, find_label, find_user
from cfljax.data.importing_tables import Table, is_number
from cfljax.data.parts import Part, Wanted, number_classes, number_users, split_test
from cfljax.errors import DataError, DataWarning, SpecError, suggest
from cfljax.registry import options
from cfljax.registry.options import Value
from cfljax.types import Source

DEFAULT_LENGTH = 80
# The padded size, in tokens, that all samples together may always have
_MAX_FREE_PADDED = 16 << 20
# Above it: the largest ratio of the padded size to the number of tokens
_MAX_PADDING_RATIO = 50


class Imported(NamedTuple):
    """A data set, with what is kept beside its arrays."""

    source: Source
    class_names: list[str]
    # The vocabulary of the texts; None: there are no texts
    tokens: options.Table | None


def read_tables(tables: list[Table], wanted: Wanted) -> tuple[list[Part], bool]:
    """Return the parts (training, test) of tables of texts, and whether labels are next tokens:
    `--next-token`, or no labels."""
    train = tables[0]
    text = str(wanted.text)
    left = [name for name in train.data.column_names if name != text]
    if wanted.next_token and wanted.label is not None:
        raise SpecError(
            f"--next-token: makes the next token the label, and --label {wanted.label} names "
            "another; leave one of the two out"
        )
    label = None if wanted.next_token else find_label(train, left, wanted)
    user = find_user(train, left, wanted)
    parts = []
    for table in tables:
        for flag, name in (("--text", text), ("--label", label), ("--user", user)):
            if name is not None and name not in table.data.column_names:
                raise DataError(
                    f"{flag} {name}: {table.where} has no such "
                    f"column{suggest(name, table.data.column_names)}"
                )
        texts = np.array(table.data.column(text).to_pylist(), object)
        bad = [not isinstance(each, str) or not each for each in texts]
        if any(bad) or all(map(is_number, texts)):
            row = bad.index(True) + 1 if any(bad) else 1
            raise DataError(
                f"{table.where}: column {text} has no text in row {row}; fill it, or leave "
                "the row out"
            )
        y = np.zeros(len(texts), np.int64) if label is None else table.names("label", label)
        users = table.users if user is None else table.names("user", user)
        parts.append(Part(texts, y, users, table.class_names.get(label or "")))
    for test in tables[1:]:
        check_names(train, test, label=label, user=user)
    return parts, label is None


def read_leaf(
    folder: Path, samples: tuple[leaf.UserSamples, leaf.UserSamples]
) -> tuple[list[Part], bool]:
    """Return the parts (training, test) of LEAF's texts, and whether their labels are next tokens.
    Shakespeare has texts and the character after each, Reddit words and the same words shifted by
    one; numbers as labels are classes."""
    # Labels are classes if all are numbers: 3, 3.0 or "3". Otherwise a digit is a character, too.
    labels = (y for part in samples for y in part.y)
    following = not all(
        isinstance(y, (int, float)) or (isinstance(y, str) and y.isdigit()) for y in labels
    )
    parts = []
    for side, part in zip(("train", "test"), samples, strict=True):
        where = str(folder / side)
        texts = np.empty(len(part.x), object)
        for at, (x, y) in enumerate(zip(part.x, part.y, strict=True)):
            texts[at] = _join_next(x, y if following else None, where)
        y_part = (
            np.zeros(len(part.y), np.int64)
            if following
            else leaf.to_integers(part.y, folder / side)
        )
        parts.append(Part(texts, y_part, part.user))
    return [part for part in parts if len(part.y)], following


def _join_next(x: Value, y: Value, where: str) -> tokens.Text:
    """Join a sample of LEAF with what follows it: a text, or a list of words. `y` None: a text
    alone."""
    if isinstance(x, str) and (y is None or isinstance(y, str)):
        return _clean(x if y is None else x + y)
    if (
        y is None
        and isinstance(x, list)
        and all(isinstance(field, str) for field in x)
        and len(x) > 4
    ):
        # A tweet of LEAF: a list of the columns of its CSV file, of which the fifth is the text
        return _clean(x[4])
    words = _flatten_words(x)
    following = _flatten_words(
        y["target_tokens"] if isinstance(y, dict) and "target_tokens" in y else y
    )
    if words is None or (following is None and y is not None):
        raise DataError(
            f"{where}: a sample is {str(x)[:40]!r} with the label {str(y)[:40]!r}: must be a "
            "text, or words, and what follows"
        )
    return words + (following or [])[-1:]


def _clean(text: str) -> str:
    """Replace unpaired surrogates, which JSON may have and no file can hold."""
    return text.encode("utf-8", "replace").decode()


def _flatten_words(value: Value) -> list[str] | None:
    """List the words of nested lists without padding; None if there is something else in them."""
    if isinstance(value, str):
        return [] if value == "<PAD>" else [_clean(value)]
    if not isinstance(value, list):
        return None
    found = [_flatten_words(each) for each in value]
    return None if None in found else [word for each in found for word in each or []]


def make_data_set(
    name: str, where: str, parts: list[Part], following: bool, wanted: Wanted
) -> Imported:
    """Make the data set of texts. Tokens are learned in training; without a test part a share of
    each user's texts becomes it."""
    train, test = parts if len(parts) > 1 else split_test(parts[0], wanted.test_fraction)
    listed = len(train.x) and not isinstance(train.x[0], str)
    kind = wanted.tokens or ("words" if listed or not following else "characters")
    learned = tokens.learn_tokens(kind, train.x.tolist(), wanted.vocabulary)
    length = wanted.length or DEFAULT_LENGTH
    width = wanted.vectors
    if following:
        sides = [
            _split_texts(where, name, side, learned, length)
            for name, side in (("training", train), ("test", test))
        ]
        names = learned.names
    else:
        names, labels = number_classes(where, train, test)
        sides = [
            (_pad([learned.encode(text)[:length] for text in side.x], length, False), y, side.user)
            for side, y in zip((train, test), labels, strict=True)
        ]
    if not len(sides[0][1]):
        raise DataError(
            f"{where}: no training text has two {kind}; a sample is some, and the one after them"
        )
    users = number_users(where, sides[0][2], sides[1][2])
    named = {
        "x_train": sides[0][0],
        "y_train": sides[0][1],
        "x_test": sides[1][0],
        "y_test": sides[1][1],
    } | users
    if width:
        table = np.stack(
            [
                np.zeros(width, np.float32),
                *(tokens.token_vector(token, width) for token in learned.names[1:]),
            ]
        )
        named["table"] = table
    # Without vectors models embed the tokens themselves, and get their ids
    else:
        named |= {key: named[key].astype(np.float32) for key in ("x_train", "x_test")}
    return Imported(arrays.source(name, where, named, len(names)), names, learned.table())


def _split_texts(
    where: str, name: str, part: Part, learned: tokens.Tokens, length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Split texts into segments of `length` tokens, each with the token after it, which is the
    first of the next segment. Return x i32[n, length], y i64[n], users. Short segments are padded
    at the front. A segment before an unknown token is left out with a warning, as that is no
    word."""
    segments = []
    y = []
    text_of_segment = []
    unknown = 0
    for at, text in enumerate(part.x):
        numbers = learned.encode(text)
        ends = (
            [*range(length, len(numbers) - 1, length), len(numbers) - 1] if len(numbers) > 1 else []
        )
        unknown += sum(numbers[end] == tokens.UNKNOWN for end in ends)
        for end in (end for end in ends if numbers[end] != tokens.UNKNOWN):
            segments.append(numbers[max(0, end - length) : end])
            y.append(numbers[end])
            text_of_segment.append(at)
    if unknown:
        line = (
            f"{where}: {unknown} of {unknown + len(y)} {name} samples are left out, because the "
            "next token is not in the vocabulary"
        )
        warnings.warn(f"{line}; a larger --vocabulary keeps more", DataWarning, stacklevel=2)
    user = None if part.user is None else part.user[np.array(text_of_segment, np.int64)]
    return _pad(segments, length, True), np.array(y, np.int64), user


def _pad(segments: list[list[int]], length: int, front: bool) -> np.ndarray:
    """Pad the segments to i32[n, length], at the front or at the end."""
    size = len(segments) * length
    if size > max(_MAX_FREE_PADDED, _MAX_PADDING_RATIO * sum(map(len, segments))):
        raise SpecError(
            f"--length {length}: {len(segments)} samples of that length would need "
            f"{size // 10**6} million zeros as padding; "
            "give a smaller one"
        )
    x = np.full((len(segments), length), tokens.PADDING, np.int32)
    for row, segment in zip(x, segments, strict=True):
        if segment:
            begin = length - len(segment) if front else 0
            row[begin : begin + len(segment)] = segment
    return x


def check_flags(wanted: Wanted) -> None:
    """Reject numbers that make no tokens."""
    if wanted.length is not None and not 1 <= wanted.length <= 10_000:
        raise SpecError(f"--length {wanted.length}: must be from 1 to 10000 tokens")
    if wanted.vocabulary is not None and not 3 <= wanted.vocabulary <= arrays.MAX_CLASSES:
        raise SpecError(
            f"--vocabulary {wanted.vocabulary}: must be from 3 to {arrays.MAX_CLASSES} tokens"
        )
    if not 0 <= wanted.vectors <= 4096:
        raise SpecError(f"--vectors {wanted.vectors}: must be from 1 to 4096 numbers")
