"""Tokens made from the data, without any download: characters or words. The vocabulary is learned
from the training texts alone. Token 0 fills up short texts, token 1 is what training texts do not
have."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cfljax.registry.options import Table

# The numbers of the special tokens
PADDING = 0
UNKNOWN = 1
_SPECIAL = ["<padding>", "<unknown>"]
# The default size of the vocabulary
DEFAULT_VOCABULARY = {"characters": 1000, "words": 10_000}
_WORD = re.compile(r"[\w']+|[^\w\s]")
# Standard deviation of the numbers in a token's vector
_VECTOR_DEVIATION = 0.4

# A text, or the words of one
Text = str | Sequence[str]


class Tokens(NamedTuple):
    """A vocabulary and its encoder."""

    kind: str
    # The token of each number
    names: list[str]
    # A text -> its tokens
    encode: Callable[[Text], list[int]]

    def table(self) -> Table:
        """Return what is stored beside the data."""
        return {"kind": self.kind, "names": self.names}


def learn_tokens(kind: str, texts: Iterable[Text], most: int | None = None) -> Tokens:
    """Learn the tokens of training texts: the most common, at most `most` including padding and
    unknown."""

    def split(text: Text) -> list[str]:
        if kind == "words":
            return _WORD.findall(text) if isinstance(text, str) else list(text)
        return list(text if isinstance(text, str) else " ".join(text))

    counts = Counter(piece for text in texts for piece in split(text))
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))[
        : (most or DEFAULT_VOCABULARY[kind]) - 2
    ]
    number = {piece: 2 + at for at, piece in enumerate(ranked)}
    return Tokens(
        kind, _SPECIAL + ranked, lambda text: [number.get(piece, UNKNOWN) for piece in split(text)]
    )


def token_vector(token: str, width: int) -> np.ndarray:
    """Return f32[width]: numbers that depend on the token alone, the same on every machine."""
    bits = hashlib.shake_256(token.encode()).digest(2 * width)
    uniform = np.frombuffer(bits, "<u2").astype(np.float32) / np.float32(65535) * 2 - 1
    # A uniform number in [−1, 1] has the variance 1/3
    return uniform * np.float32(_VECTOR_DEVIATION * 3**0.5)


def decode_tokens(table: Table, numbers: Iterable[int]) -> str:
    """Decode tokens to text with the table stored beside the data; padding is left out."""
    names = table["names"]
    kind = table["kind"]
    shown = [
        names[n] if n != UNKNOWN else "\N{REPLACEMENT CHARACTER}"
        for n in numbers
        if n != PADDING and n < len(names)
    ]
    return (" " if kind == "words" else "").join(shown)
