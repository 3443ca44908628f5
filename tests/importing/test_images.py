"""Images of any kind: 16 bits, transparent, other colours, hidden ones, and parts that have names
of their own."""

import io

import numpy as np
import pytest
from PIL import Image

from cfljax import data
from tests.importing.helpers import imported, pictures, refused


def save(folder, kind, images, ending="png", **flags):
    (folder / kind).mkdir(parents=True, exist_ok=True)
    for i, image in enumerate(images):
        image.save(folder / kind / f"{i}.{ending}", **flags)


def whole(name):
    """All samples, in no order."""
    source = data.load(name)
    return np.concatenate([source.x_train, source.x_test])


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_images_of_16_bits_are_scaled(home, ending):
    ramp = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    for kind in "ab":
        save(home / "deep", kind, [Image.fromarray(ramp)] * 3, ending)
    imported(home / "deep")
    assert all(np.array_equal(x[..., 0].ravel(), np.arange(256)) for x in whole("deep")) and whole(
        "deep"
    ).shape == (6, 16, 16, 1)
    imported(home / "deep", "--shape", "8x8", "--replace")
    x = whole("deep")[0, ..., 0].astype(int)
    assert (
        x.shape == (8, 8) and x.min() < 16 and x.max() > 239 and (np.diff(x.ravel()[::8]) > 0).all()
    )


def test_images_that_do_not_say_what_is_white_are_refused(home, capsys):
    save(home / "twelve", "a", [Image.fromarray(np.full((4, 4), 4095, np.uint16))])
    assert "16 bits per pixel" in refused(capsys, home / "twelve")
    save(home / "whole", "a", [Image.fromarray(np.full((4, 4), 70000, np.int32))], "tif")
    assert "0.tif: cannot be read as an image (it has 32 bits" in refused(capsys, home / "whole")
    save(home / "real", "a", [Image.fromarray(np.full((4, 4), 0.5, np.float32))], "tif")
    assert "32 bits" in refused(capsys, home / "real")
    save(
        home / "mixed",
        "a",
        [Image.fromarray(np.full((4, 4), 60000, np.uint16)), Image.new("L", (4, 4))],
    )
    assert "1.png: has 8 bits per channel, the images before it 16" in refused(
        capsys, home / "mixed"
    )


def test_what_is_transparent_is_on_white_paper(home):
    ink = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    ink.putpixel((1, 0), (200, 0, 0, 255))
    palette = ink.convert("RGB").quantize(4)
    palette.info["transparency"] = palette.getpixel((0, 0))
    for name, image in {"RGBA": ink, "LA": ink.convert("LA"), "P": palette}.items():
        save(home / name, "a", [image] * 2)
        imported(home / name)
        x = whole(name)[0]
        assert (x[0, 0] == 255).all() and 55 < x[0, 1, 0] <= 200, (name, x)
    assert whole("LA").shape[-1] == 1 and whole("P").shape[-1] == 3


def test_colours_of_any_mode_become_red_green_and_blue(home):
    red = Image.new("RGB", (8, 8), (250, 10, 10))
    for mode, ending in (
        ("CMYK", "jpg"),
        ("CMYK", "tif"),
        ("YCbCr", "jpg"),
        ("P", "gif"),
        ("RGB", "bmp"),
    ):
        save(
            home / f"{mode}{ending}",
            "a",
            [red.quantize(2) if mode == "P" else red.convert(mode)] * 2,
            ending,
        )
        imported(home / f"{mode}{ending}")
        assert np.abs(whole(f"{mode}{ending}").astype(int) - [250, 10, 10]).max() < 12, (
            mode,
            ending,
        )
    save(home / "bits", "a", [Image.fromarray(np.eye(4, dtype=bool))] * 2)
    imported(home / "bits")
    np.testing.assert_array_equal(whole("bits")[0, ..., 0], 255 * np.eye(4))


def test_one_image_without_colours_does_not_take_them_from_the_others(home):
    pictures(home / "p" / "train", mode="L", kinds=["a"], n=2)
    pictures(home / "p" / "train", kinds=["b"], n=2)
    pictures(home / "p" / "test", mode="L", n=1, kinds=["a", "b"])
    imported(home / "p")
    source = data.load("p")
    assert source.x_train.shape == (4, 5, 4, 3) and source.x_test.shape == (2, 5, 4, 3)
    assert (source.x_test[..., 0] == source.x_test[..., 2]).all() and (
        source.x_train[2:, ..., 0] != source.x_train[2:, ..., 2]
    ).any()
    imported(home / "p", "--grey", "--replace")
    assert data.load("p").x_train.shape[-1] == data.load("p").x_test.shape[-1] == 1


def test_hidden_files_and_folders_are_not_imported(home):
    pictures(home / "p", n=3)
    pictures(home / "p" / "cat", kinds=[".ipynb_checkpoints"], n=2)
    (home / "p" / "dog" / "._0.png").write_bytes(b"what a file system keeps")
    pictures(home / "p" / "dog", kinds=["deeper"], n=1)
    imported(home / "p")
    assert len(whole("p")) == 7


def test_parts_are_found_whatever_their_case_and_what_is_left_out_is_said(home, capsys):
    pictures(home / "p" / "Train", n=3)
    pictures(home / "p" / "Test", n=2)
    pictures(home / "p" / "val", n=1)
    imported(home / "p")
    source = data.load("p")
    assert (len(source.y_train), len(source.y_test), source.classes) == (
        6,
        4,
        2,
    ) and "left out: val" in capsys.readouterr().err
    pictures(home / "q" / "test")
    assert "no folder train" in refused(capsys, home / "q")


def test_16_bits_in_a_table_of_images_are_scaled(home):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def png(value):
        out = io.BytesIO()
        Image.fromarray(np.full((4, 4), value, np.uint16)).save(out, "PNG")
        return out.getvalue()

    columns = {
        "image": arrow.array([png(257 * v) for v in (3, 200, 77, 12)]),
        "label": arrow.array([0, 1, 0, 1]),
    }
    parquet.write_table(arrow.table(columns), home / "p.parquet")
    imported(home / "p.parquet")
    assert sorted(whole("p")[:, 0, 0, 0].tolist()) == [3, 12, 77, 200]


def test_flags_that_mean_nothing_here_are_refused(home, capsys):
    pictures(home / "p")
    assert "--user: has no effect on an import of images" in refused(
        capsys, home / "p", "--user", "who"
    )
    assert "--by-user" in refused(capsys, home / "p", "--by-user", "--kind", "numpy")
