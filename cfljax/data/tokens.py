"""Tokens made from the data, without any download: characters, words, or byte pairs (Sennrich et al. 2016, on bytes). The
vocabulary is learned from the training texts alone. Token 0 fills up short texts, token 1 is what training texts do not have."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cfljax.registry.options import Table

TOKEN_KINDS = ("characters", "words", "pairs")
PADDING, UNKNOWN = 0, 1
_SPECIAL = ["<padding>", "<unknown>"]
DEFAULT_VOCABULARY = {"characters": 1000, "words": 10_000, "pairs": 1000}
"""The default size of the vocabulary."""
_WORD = re.compile(r"[\w']+|[^\w\s]")
_PIECE = re.compile(r"\s?\S+|\s+")
"""A word with the space before it: byte pairs do not reach from one word into the next."""

_SCALE = 0.4
"""Standard deviation of the width of a token's vector's vector."""

Text = str | Sequence[str]
"""A text, or the words of one."""
Pair = tuple[bytes, bytes]


class Tokens(NamedTuple):
    """A vocabulary and its encoder."""

    kind: str
    names: list[str]
    """The token of each number; of byte pairs the bytes, each as the character of its number."""
    encode: Callable[[Text], list[int]]
    """A text -> its tokens."""

    def table(self) -> Table:
        """Return what is stored beside the data."""
        return {"kind": self.kind, "names": self.names}


def split_words(text: Text) -> list[str]:
    """Split a text into its words and punctuation marks."""
    return _WORD.findall(text) if isinstance(text, str) else list(text)


def learn_tokens(kind: str, texts: Iterable[Text], most: int | None = None) -> Tokens:
    """Learn the tokens of training texts: the most common, at most `most` including padding and unknown."""
    most = most or DEFAULT_VOCABULARY[kind]
    whole = (text if isinstance(text, str) else " ".join(text) for text in texts)
    if kind == "pairs":
        return _learn_pairs(whole, most)
    letters: Callable[[Text], Sequence[str]] = lambda text: text if isinstance(text, str) else " ".join(text)  # noqa: E731
    split = split_words if kind == "words" else letters
    counts = Counter(piece for text in (texts if kind == "words" else whole) for piece in split(text))
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))[: most - 2]
    number = {piece: 2 + at for at, piece in enumerate(ranked)}
    return Tokens(kind, _SPECIAL + ranked, lambda text: [number.get(piece, UNKNOWN) for piece in split(text)])


def _learn_pairs(texts: Iterable[str], most: int) -> Tokens:
    counts = Counter(piece for text in texts for piece in _PIECE.findall(text))
    words = {piece: [bytes([b]) for b in piece.encode()] for piece in counts}
    base = sorted({symbol for word in words.values() for symbol in word})
    merges = merge_pairs(words, counts, most - 2 - len(base))
    rank = {pair: at for at, pair in enumerate(merges)}
    symbols = [*base, *(a + b for a, b in merges)]
    number: dict[bytes, int] = {}
    for at, symbol in enumerate(symbols):
        number.setdefault(symbol, 2 + at)
    kept: dict[str, list[int]] = {}

    def encode(text: Text) -> list[int]:
        found: list[int] = []
        for piece in _PIECE.findall(text if isinstance(text, str) else " ".join(text)):
            if piece not in kept:
                kept[piece] = [number.get(symbol, UNKNOWN) for symbol in _encode_word(piece.encode(), rank)]
            found += kept[piece]
        return found

    return Tokens("pairs", _SPECIAL + [symbol.decode("latin-1") for symbol in symbols], encode)


def merge_pairs(words: dict[str, list[bytes]], counts: Counter[str], most: int) -> list[Pair]:
    """Choose the pairs of neighbours to merge, one after another: each time the most common, in a tie the first in order. `words`
    are rewritten in the merged symbols."""
    pairs: Counter[Pair] = Counter()
    where: dict[Pair, set[str]] = {}
    for word, symbols in words.items():
        for pair in zip(symbols[:-1], symbols[1:], strict=True):
            pairs[pair] += counts[word]
            where.setdefault(pair, set()).add(word)
    merges: list[Pair] = []
    while len(merges) < most and pairs:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < 2:
            break
        merges.append(best)
        for word in where.pop(best):
            before, after = words[word], _merge_pair(words[word], best)
            for pair in zip(before[:-1], before[1:], strict=True):
                pairs[pair] -= counts[word]
                if pairs[pair] <= 0:
                    del pairs[pair]
            for pair in zip(after[:-1], after[1:], strict=True):
                pairs[pair] += counts[word]
                where.setdefault(pair, set()).add(word)
            words[word] = after
    return merges


def _merge_pair(symbols: list[bytes], pair: Pair) -> list[bytes]:
    out: list[bytes] = []
    at = 0
    while at < len(symbols):
        if tuple(symbols[at : at + 2]) == pair:
            out.append(pair[0] + pair[1])
            at += 2
        else:
            out.append(symbols[at])
            at += 1
    return out


def _encode_word(text: bytes, rank: dict[Pair, int]) -> list[bytes]:
    symbols = [bytes([b]) for b in text]
    while len(symbols) > 1:
        best = min(zip(symbols[:-1], symbols[1:], strict=True), key=lambda pair: rank.get(pair, len(rank)))
        if best not in rank:
            break
        symbols = _merge_pair(symbols, best)
    return symbols


def token_vector(token: str, width: int) -> np.ndarray:
    """Return f32[width]: numbers that depend on the token alone, the same on every machine."""
    bits = hashlib.shake_256(token.encode()).digest(2 * width)
    uniform = np.frombuffer(bits, "<u2").astype(np.float32) / np.float32(65535) * 2 - 1
    return uniform * np.float32(_SCALE * 3**0.5)


def decode_tokens(table: Table, numbers: Iterable[int]) -> str:
    """Decode tokens to text with the table stored beside the data; padding is left out."""
    names, kind = table["names"], table["kind"]
    shown = [names[n] if n != UNKNOWN else "\N{REPLACEMENT CHARACTER}" for n in numbers if n != PADDING and n < len(names)]
    if kind == "pairs":
        raw = b"".join(b"?" if name == "\N{REPLACEMENT CHARACTER}" else name.encode("latin-1") for name in shown)
        return raw.decode(errors="replace")
    return (" " if kind == "words" else "").join(shown)
