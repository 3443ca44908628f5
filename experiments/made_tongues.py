"""Clients who write in one of several made-up languages over one alphabet, character by character,
for `adapters.toml`: what follows a word differs between languages, the words do not."""

import dataclasses

import numpy as np

import cfljax

ALPHABET = " abcdefgh"
WORDS = 16
FOLLOWERS = 2
"""So many words may follow a word in a language."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the tongues."""

    writers: int = cfljax.option(40, "clients, as many of each language", low=2)
    languages: int = cfljax.option(4, "languages", low=1)
    samples: int = cfljax.option(120, "training samples of a client; a quarter more to test", low=4)
    length: int = cfljax.option(16, "characters of a sample, of which the next one is asked", low=1)


def _write(follow, words, characters, rng):
    """Write so many characters of a language, as positions in the alphabet."""
    word, text = int(rng.integers(WORDS)), ""
    while len(text) < characters:
        text += words[word] + " "
        word = int(rng.choice(follow[word]))
    return np.array([ALPHABET.index(letter) for letter in text[:characters]])


@cfljax.register_data("made_tongues", Options)
def made_tongues(options, rng):
    """Make the texts; tokens are characters, and the last fifth of a client's text is its test."""
    words = ["".join(rng.choice(list(ALPHABET[1:]), rng.integers(2, 5))) for _ in range(WORDS)]
    follow = rng.integers(WORDS, size=(options.languages, WORDS, FOLLOWERS))
    tests = -(-options.samples // 4)
    parts = {}
    for writer in range(options.writers):
        language = writer % options.languages
        # Between training and test texts lies a sample's length, so that no character is in both
        number = options.samples + options.length + tests
        text = _write(follow[language], words, number + options.length, rng)
        x = np.stack([text[at : at + options.length] for at in range(number)])
        y = text[options.length :]
        for part, rows in (
            ("train", slice(0, options.samples)),
            ("test", slice(options.samples + options.length, number)),
        ):
            made = {"x": x[rows], "y": y[rows]}
            made["user"] = np.full(len(made["y"]), writer)
            made["population"] = np.full(len(made["y"]), language)
            for name, values in made.items():
                parts.setdefault(f"{name}_{part}", []).append(values)
    arrays = {name: np.concatenate(values) for name, values in parts.items()}
    return arrays | {
        f"x_{part}": arrays[f"x_{part}"].astype(np.float32) for part in ("train", "test")
    }
