"""Corruptions are those of scipy and of Pillow where these have them, and the partition `corrupted`
gives each group its own."""

import io

import numpy as np
import pytest
import scipy.fft
import scipy.ndimage
from PIL import Image

from cfljax.errors import SpecError
from cfljax.federation import corruptions
from cfljax.federation.corruptions import CORRUPTIONS, STRENGTHS, corrupt_images
from tests.federation.helpers import fake, parts


def smooth(n=3, height=20, width=17, channels=3):
    """Images that are no noise: waves of other colours."""
    down, right = np.mgrid[0:height, 0:width] / 8
    waves = [
        np.sin(down * (1 + i) + right * (c + 1) + i) for i in range(n) for c in range(channels)
    ]
    return np.rint(
        127 + 100 * np.array(waves).reshape(n, channels, height, width).transpose(0, 2, 3, 1)
    ).astype(np.uint8)


def seen(x, kind, severity=3, key=(1, 2)):
    return corrupt_images(x, kind, severity, key, np.arange(len(x)))


@pytest.mark.parametrize("severity", range(1, 6))
def test_the_blur_is_that_of_scipy(severity):
    x, deviation = smooth(), STRENGTHS["gaussian_blur"][severity - 1]
    wanted = scipy.ndimage.gaussian_filter(
        x / 255, (0, deviation, deviation, 0), mode="nearest", truncate=4.0
    )
    assert np.abs(seen(x, "gaussian_blur", severity) - 255 * wanted).max() <= 0.5 + 1e-6


def test_the_transform_of_blocks_is_that_of_scipy():
    blocks = np.random.default_rng(0).normal(size=(2, 1, 8, 3, 8, 2))
    wanted = scipy.fft.dctn(blocks, axes=(2, 4), norm="ortho")
    made = corruptions._transform_blocks(blocks, corruptions._DCT)
    assert np.allclose(made, wanted) and np.allclose(
        corruptions._transform_blocks(made, corruptions._DCT.T), blocks
    )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("severity", [1, 3, 5])
def test_the_loss_is_that_of_a_jpeg_file(channels, severity):
    """Against Pillow's own with colours at full resolution. libjpeg computes in integers: a number
    at the edge of two steps may fall to the other side, which changes one block of 64 pixels."""
    x = smooth(16, channels=channels)
    x = np.clip(x + np.random.default_rng(0).normal(0, 8, x.shape), 0, 255).astype(np.uint8)
    far, lost = [], []
    for image, made in zip(x, seen(x, "jpeg", severity), strict=True):
        file = io.BytesIO()
        quality = STRENGTHS["jpeg"][severity - 1]
        Image.fromarray(image if channels == 3 else image[..., 0]).save(
            file, "JPEG", quality=quality, subsampling=0
        )
        wanted = np.asarray(Image.open(file)).reshape(image.shape).astype(int)
        far.append(np.abs(made - wanted))
        lost.append(np.abs(image - wanted))
    assert (
        np.median(far) == 0
        and np.mean(far) < 0.1 * np.mean(lost)
        and np.mean(np.array(far) > 2) < 0.06
    )


def test_noise_has_its_strength():
    grey = np.full((4, 64, 64, 1), 128, np.uint8)
    assert abs(np.std(seen(grey, "gaussian_noise") / 255.0) - 0.08) < 0.002
    assert abs(np.std(seen(grey, "shot_noise") / 255.0) - np.sqrt(128 / 255 / 100)) < 0.002
    impulses = seen(grey, "impulse_noise", 5)
    assert (
        abs((impulses == 0).mean() - 0.035) < 0.005
        and abs((impulses == 255).mean() - 0.035) < 0.005
    )


def test_contrast_and_brightness_by_hand():
    x = np.array([[[0, 10, 20], [100, 110, 120]]], np.uint8)[None]
    assert seen(x, "contrast", 2).tolist() == [[[[25, 35, 45], [75, 85, 95]]]]
    # the largest channel grows by 0.1 · 255 = 25.5, the others in proportion
    assert seen(x, "brightness", 2).tolist() == [[[[0, 23, 46], [121, 133, 146]]]]
    black = seen(np.zeros((1, 2, 2, 3), np.uint8), "brightness", 2)
    assert (black == 26).all()


def test_noise_is_that_of_the_image_whatever_else_is_corrupted():
    x = smooth(6)
    whole = seen(x, "gaussian_noise")
    assert np.array_equal(
        corrupt_images(x, "gaussian_noise", 3, (1, 2), np.array([4, 1])), whole[[4, 1]]
    )
    assert not np.array_equal(seen(x, "gaussian_noise", key=(1, 3)), whole)


@pytest.mark.parametrize("kind", CORRUPTIONS[1:])
def test_severities_are_stronger_and_stronger(kind):
    x = smooth(8)
    far = [np.abs(seen(x, kind, severity).astype(int) - x).mean() for severity in range(1, 6)]
    assert far[0] > 0 and all(a < b for a, b in zip(far[:-1], far[1:], strict=True))


@pytest.mark.parametrize("test", ["own", "global"])
def test_each_group_has_the_samples_as_it_sees_them(test):
    source = fake(shape=(8, 8, 3))
    kinds = ["none", "contrast", "gaussian_blur"]
    made = parts(
        "corrupted",
        source,
        clients=7,
        groups=3,
        kinds=kinds,
        samples_per_client=30,
        severity=5,
        test=test,
    )
    plain = parts("rotated", source, clients=7, groups=3, samples_per_client=30, test=test)
    x = np.concatenate([made.source.x_train, made.source.x_test])
    y = np.concatenate([made.source.y_train, made.source.y_test])
    before = np.concatenate([source.x_train, source.x_test])
    labels = np.concatenate([source.y_train, source.y_test])
    tests = [plain.test] * 7 if test == "global" else plain.test
    for c, group in enumerate(made.group):
        for mine, theirs in ((made.train[c], plain.train[c]), (made.test[c], tests[c])):
            wanted = before[theirs] if group == 0 else seen(before[theirs], kinds[group], 5)
            assert np.array_equal(x[mine], wanted) and np.array_equal(y[mine], labels[theirs])
    assert len(made.source.y_train) == 7 * 30 and max(rows.max() for rows in made.train) < 7 * 30


def test_flat_images_and_numbers_are_corrupted_too():
    bytes_ = fake(shape=(64,))
    numbers = bytes_._replace(
        x_train=(bytes_.x_train / 255).astype(np.float32),
        x_test=(bytes_.x_test / 255).astype(np.float32),
    )
    first, second = (
        parts("corrupted", each, clients=4, groups=2).source for each in (bytes_, numbers)
    )
    assert np.abs(first.x_train / 255 - second.x_train).max() < 0.5 / 255 + 1e-6


@pytest.mark.parametrize("shape", [(60,), (8, 8, 1)])
def test_what_is_no_image_is_refused_in_one_line(shape):
    source = fake(shape=shape)
    if len(shape) > 1:
        source = source._replace(
            x_train=source.x_train.astype(np.float32), x_test=source.x_test.astype(np.float32)
        )
    with pytest.raises(SpecError, match="choose another partition"):
        parts("corrupted", source, clients=8)
