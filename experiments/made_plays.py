"""Texts of roles who speak two languages, for the small size of `texts.toml`: words of two
vocabularies, drawn by chains of words."""

import dataclasses

import numpy as np

import cfljax


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the plays."""

    roles: int = cfljax.option(20, "speakers, half of each language", low=2)
    samples: int = cfljax.option(150, "samples of each: characters and the next one", low=5)
    length: int = cfljax.option(12, "characters of a sample", low=1)


def _language(rng):
    """(Words, the words that follow each)."""
    letters = rng.permutation(list("abcdefghijkl"))[:8]
    words = ["".join(rng.choice(letters, rng.integers(2, 5))) for _ in range(12)]
    return words, rng.integers(len(words), size=(len(words), 3))


@cfljax.register_data("made_plays", Options)
def made_plays(options, rng):
    """Roles of two languages; tokens are characters, each a unit vector, and a fifth of each role's
    samples is the test set."""
    languages = [_language(rng) for _ in range(2)]
    alphabet = " " + "abcdefghijkl"
    x, y, user, test = [], [], [], []
    for role in range(options.roles):
        words, follow = languages[2 * role // options.roles]
        at, text = int(rng.integers(len(words))), ""
        while len(text) < options.samples + options.length:
            text += words[at] + " "
            at = int(rng.choice(follow[at]))
        numbers = np.array([alphabet.index(letter) for letter in text])
        for i in range(options.samples):
            x.append(numbers[i : i + options.length])
            y.append(numbers[i + options.length])
            user.append(role)
            test.append(i >= 0.8 * options.samples)
    x, y, user, test = (np.array(each) for each in (x, y, user, test))
    whole = {"x": x, "y": y, "user": user, "population": 2 * user // options.roles}
    parts = {
        f"{key}_{side}": value[rows]
        for key, value in whole.items()
        for side, rows in (("train", ~test), ("test", test))
    }
    return parts | {"table": np.eye(len(alphabet), dtype=np.float32)}
