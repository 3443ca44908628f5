"""Four domains of the same digits, for the small size of `domains.toml`: white on black, black on
white, in colours before a gradient, and outlines. Each domain has digits of its own."""

import numpy as np
from sklearn.datasets import load_digits

import cfljax


@cfljax.register_data("digit_domains")
def digit_domains(_, rng):
    """scikit-learn's digits in four domains; a fifth of each is the test set."""
    digits = load_digits()
    order = rng.permutation(len(digits.target))
    ink, y = digits.images[order] / 16, digits.target[order]
    domain, test = np.arange(len(y)) % 4, np.arange(len(y)) % 20 < 4
    x = np.repeat(ink[..., None], 3, axis=3)
    x[domain == 1] = 1 - x[domain == 1]
    colour, back = rng.uniform(0.5, 1, (len(y), 1, 1, 3)), rng.uniform(0, 0.5, (len(y), 1, 1, 3))
    slope = np.linspace(0.3, 1, 8)[None, :, None, None]
    mixed = ink[..., None] * colour + (1 - ink[..., None]) * back * slope
    x[domain == 2] = mixed[domain == 2]
    edges = np.abs(np.diff(ink, axis=1, prepend=0)) + np.abs(np.diff(ink, axis=2, prepend=0))
    x[domain == 3] = np.clip(edges, 0, 1)[domain == 3, ..., None]
    x = np.rint(255 * x).astype(np.uint8)
    named = {"x": x, "y": y, "user": domain}
    return {
        f"{key}_{part}": value[rows]
        for key, value in named.items()
        for part, rows in (("train", ~test), ("test", test))
    }
