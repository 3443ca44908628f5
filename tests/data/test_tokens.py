"""Tokens that are made from the data: characters and words."""

import numpy as np
import pytest

from cfljax.data import tokens
from cfljax.data.importing_sounds import log_mel, triangles
from cfljax.errors import DataError

TEXTS = [
    "the cat sat on the mat; the cat's hat", "that is the thing: the the the", "naïve café – 12 12 121",
    "a man at the market\nthanks them",
]  # fmt: skip


def test_a_text_and_back():
    learned = tokens.learn_tokens("characters", TEXTS)
    for text in TEXTS:
        numbers = learned.encode(text)
        assert tokens.decode_tokens(learned.table(), [tokens.PADDING, *numbers]) == text
        assert tokens.UNKNOWN not in numbers and max(numbers) < len(learned.names)


def test_words_and_marks_are_tokens_the_commonest_first():
    learned = tokens.learn_tokens("words", TEXTS)
    assert learned.names[:3] == ["<padding>", "<unknown>", "the"]
    assert [learned.names[n] for n in learned.encode("the cat's hat; mat")] == [
        "the",
        "cat's",
        "hat",
        ";",
        "mat",
    ]
    assert learned.encode("the dog") == [2, tokens.UNKNOWN]
    assert learned.encode(["the", "dog", "is"])[:2] == [2, tokens.UNKNOWN]
    few = tokens.learn_tokens("words", TEXTS, 4)
    assert len(few.names) == 4 and few.names == learned.names[:4]


def test_what_the_training_texts_lack_is_unknown():
    for kind in tokens.DEFAULT_VOCABULARY:
        assert set(tokens.learn_tokens(kind, ["aaaa"]).encode("zzz")) == {tokens.UNKNOWN}


def plain(wave, rate, bands, window, step):
    """The features of one sound from their definition: f64[frames, bands]."""
    length, hop = round(window * rate), round(step * rate)
    size = 1
    while size < length:
        size *= 2
    mel = lambda hz: 2595 * np.log10(1 + hz / 700)  # noqa: E731
    edges = [700 * (10 ** (mel(rate / 2) * i / (bands + 1) / 2595) - 1) for i in range(bands + 2)]
    rows = []
    for begin in range(0, len(wave) - length + 1, hop):
        weighed = [wave[begin + n] * np.sin(np.pi * n / length) ** 2 for n in range(length)]
        row = np.zeros(bands)
        for k in range(size // 2 + 1):
            turn = 2 * np.pi * k * np.arange(length) / size
            power, hz = (
                np.dot(weighed, np.cos(turn)) ** 2 + np.dot(weighed, np.sin(turn)) ** 2,
                k * rate / size,
            )
            for b, (low, middle, high) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
                if low < hz < high:
                    row[b] += power * (
                        (hz - low) / (middle - low)
                        if hz <= middle
                        else (high - hz) / (high - middle)
                    )
        rows.append(np.log(row + 1e-6))
    return np.array(rows)


def test_features_are_the_logarithms_of_energies_by_their_definition():
    waves = np.random.default_rng(0).normal(size=(2, 95)).astype(np.float32)
    found = log_mel(waves, 1000, bands=5, window=0.030, step=0.012)
    assert found.shape == (2, 6, 5) and found.dtype == np.float32
    for features, wave in zip(found, waves, strict=True):
        np.testing.assert_allclose(
            features, plain(wave, 1000, 5, 0.030, 0.012), rtol=1e-4, atol=1e-4
        )


def test_a_tone_is_in_the_band_around_it_and_silence_is_the_floor():
    time = np.arange(4000) / 4000
    found = log_mel(np.stack([np.sin(2 * np.pi * 700 * time), 0 * time]), 4000, bands=10)
    middles = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 2000 / 700), 12)[1:-1] / 2595) - 1)
    assert (found[0].argmax(1) == np.abs(middles - 700).argmin()).all()
    np.testing.assert_allclose(found[1], np.log(1e-6), rtol=1e-6)


def test_neighbouring_bands_share_each_frequency_between_them():
    weights = triangles(10, 512, 4000).sum(0)
    first, last = np.flatnonzero(np.isclose(weights, 1))[[0, -1]]
    np.testing.assert_allclose(weights[first : last + 1], 1)


@pytest.mark.parametrize(
    ("shape", "bands", "words"),
    [
        ((3, 10), 40, "at least 400 samples"),
        ((400,), 40, r"must be \[sounds, samples\]"),
        ((1, 400), 200, "give fewer bands"),
    ],
)
def test_what_is_no_sound_is_refused(shape, bands, words):
    with pytest.raises(DataError, match=words):
        log_mel(np.zeros(shape), 16000, bands=bands)
