"""Tokens that are made from the data: characters, words, and byte pairs, which a plain program finds, too."""

from collections import Counter

import numpy as np
import pytest

from cfljax.data import tokens

TEXTS = [
    "the cat sat on the mat; the cat's hat",
    "that is the thing: the the the",
    "naïve café – 12 12 121",
    "a man at the market\nthanks them",
]


def plain_pairs(texts, merges):
    """Byte pairs by counting all neighbours anew each time."""
    words = Counter()
    for text in texts:
        word = ""
        for character in text:  # a word has the space before it
            if character.isspace() and word.strip():
                words[word] += 1
                word = ""
            elif word and not character.isspace() and word.isspace() and len(word) > 1:
                raise AssertionError("the texts have no two spaces in a row")
            word += character
        words[word] += 1
    split = {word: [bytes([b]) for b in word.encode()] for word in words}
    found = []
    for _ in range(merges):
        counts = Counter()
        for word, symbols in split.items():
            for i in range(len(symbols) - 1):
                counts[symbols[i], symbols[i + 1]] += words[word]
        best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[0]
        if best[1] < 2:
            break
        a, b = best[0]
        found.append(a + b)
        for word, symbols in split.items():
            i, out = 0, []
            while i < len(symbols):
                two = i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == (a, b)
                out.append(a + b if two else symbols[i])
                i += 2 if two else 1
            split[word] = out
    return found


def test_byte_pairs_are_those_of_a_plain_program():
    base = len({b for text in TEXTS for b in text.encode()})
    for more in (1, 5, 20, 500):
        learned = tokens.learn_tokens("pairs", TEXTS, 2 + base + more)
        wanted = plain_pairs(TEXTS, more)
        assert [name.encode("latin-1") for name in learned.names[2 + base :]] == wanted
    assert "the" in learned.names or " the" in learned.names


@pytest.mark.parametrize("kind", ["characters", "pairs"])
def test_a_text_and_back(kind):
    learned = tokens.learn_tokens(kind, TEXTS)
    for text in TEXTS:
        numbers = learned.encode(text)
        assert tokens.decode_tokens(learned.table(), [tokens.PADDING, *numbers]) == text
        assert tokens.UNKNOWN not in numbers and max(numbers) < len(learned.names)
    if kind == "pairs":
        assert len(learned.encode(TEXTS[1])) < len(TEXTS[1]) / 2


def test_words_and_marks_are_tokens_the_commonest_first():
    learned = tokens.learn_tokens("words", TEXTS)
    assert learned.names[:3] == ["<padding>", "<unknown>", "the"]
    assert [learned.names[n] for n in learned.encode("the cat's hat; mat")] == ["the", "cat's", "hat", ";", "mat"]
    assert learned.encode("the dog") == [2, tokens.UNKNOWN]
    assert learned.encode(["the", "dog", "is"])[:2] == [2, tokens.UNKNOWN]
    few = tokens.learn_tokens("words", TEXTS, 4)
    assert len(few.names) == 4 and few.names == learned.names[:4]


def test_what_the_training_texts_lack_is_unknown():
    for kind in tokens.TOKEN_KINDS:
        assert set(tokens.learn_tokens(kind, ["aaaa"]).encode("zzz")) == {tokens.UNKNOWN}


def test_many_words_give_as_many_tokens_as_asked_for():
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghij"), rng.integers(3, 9))) for _ in range(5000)]
    learned = tokens.learn_tokens("pairs", [" ".join(words)], 300)
    assert len(learned.names) == 300
