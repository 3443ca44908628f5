"""Flags of `data import` that no other test gives it."""

import numpy as np
from PIL import Image

from cfljax import data
from tests.importing.helpers import imported


def test_grey_pictures_have_one_channel(home):
    for kind, colour in {"dark": (10, 10, 10), "red": (255, 0, 0)}.items():
        (home / "pets" / kind).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (3, 2), colour).save(home / "pets" / kind / f"{i}.png")
    imported(home / "pets", "--grey", "--test-fraction", "0.5")
    source = data.load("pets")
    assert source.x_train.shape == (4, 2, 3, 1) and source.x_test.shape == (4, 2, 3, 1)
    values = {int(v): int(k) for k, v in zip(source.y_train, np.asarray(source.x_train)[:, 0, 0, 0], strict=True)}
    assert values == {10: 0, 76: 1}  # ITU-R 601: 0.299 of the red


def test_x_names_the_columns_of_the_samples(home):
    lines = ["a,b,c,label", *(f"{i},{10 * i},{100 * i},{i % 2}" for i in range(1, 11))]
    (home / "numbers.csv").write_text("\n".join(lines))
    imported(home / "numbers.csv", "--x", "c,a", "--test-fraction", "0.4")
    source = data.load("numbers")
    assert source.x_train.shape == (6, 2) and source.x_test.shape == (4, 2)
    rows = np.sort(np.concatenate([source.x_train, source.x_test]), axis=0)
    np.testing.assert_array_equal(rows, [[100 * i, i] for i in range(1, 11)])
