"""Spoken words that are made, for the small size of `speech.toml`: a word is a few tones one after
the other, in the pitch of its speaker, and two groups of speakers call some of the words by each
other's names."""

import dataclasses

import numpy as np

import cfljax
from cfljax.extend import log_mel


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the made words."""

    speakers: int = cfljax.option(20, "speakers, half of each group", low=2)
    samples: int = cfljax.option(60, "words that each says; a fifth are the test set", low=5)
    words: int = cfljax.option(6, "different words", low=2)
    rate: int = cfljax.option(4000, "samples of sound a second", low=1000)
    bands: int = cfljax.option(16, "bands of the features", low=1)


@cfljax.register_data("made_speech", Options)
def made_speech(options, rng):
    """Words of a quarter of a second as log-mel features f32[frames, bands]."""
    tones = rng.uniform(300, 1200, (options.words, 3))
    time = np.arange(options.rate // 12) / options.rate
    total = options.speakers * options.samples
    user = np.repeat(np.arange(options.speakers), options.samples)
    word = rng.integers(options.words, size=total)
    pitch = rng.uniform(0.9, 1.1, options.speakers)[user]
    waves = np.sin(2 * np.pi * (tones[word] * pitch[:, None])[:, :, None] * time).reshape(total, -1)
    waves += 0.3 * rng.standard_normal(waves.shape)
    group = 2 * user // options.speakers
    named = np.where(
        (group == 1) & (word < 2), 1 - word, word
    )  # the second group exchanges the first two
    whole = {
        "x": log_mel(waves, options.rate, options.bands),
        "y": named,
        "user": user,
        "population": group,
    }
    test = np.arange(total) % 5 == 0
    return {
        f"{key}_{part}": value[rows]
        for key, value in whole.items()
        for part, rows in (("train", ~test), ("test", test))
    }
