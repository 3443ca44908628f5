"""From images in folders to samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import numpy as np

from cfljax.data.bounded import parser_errors
from cfljax.data.importing_folders import list_files, make_parts, show_progress
from cfljax.data.parts import Part, Wanted
from cfljax.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image as Opened

T = TypeVar("T")
_GREY = ("1", "L", "LA", "La")
# (name of an image in messages, its file or the contents of its file)
Picture = tuple[str, Path | IO[bytes]]


def read_images(folder: Path, wanted: Wanted) -> list[Part]:
    """Return the parts (training, test) of images in folders."""
    from PIL import Image

    found = list_files(folder, wanted, set(Image.registered_extensions()), "CLASS/image.png")
    x = decode_images([(str(file), file) for side in found for file in side.files], wanted)
    return make_parts(found, x, wanted.by_user or wanted.by_domain)


def decode_images(pictures: list[Picture], wanted: Wanted) -> np.ndarray:
    """Return u8[n, height, width, channels]; one channel if no image has colours, else three."""
    grey = wanted.grey or all(
        _with_image(picture, lambda image: image.mode in _GREY or _is_deep(image))
        for picture in pictures
    )
    x = np.empty(0)
    for i, picture in enumerate(show_progress(pictures, "images")):
        image = _with_image(picture, lambda found: _read_pixels(found, wanted.shape, grey))
        x = np.empty((len(pictures), *image.shape), image.dtype) if i == 0 else x
        if image.shape != x.shape[1:]:
            new, before = ("×".join(map(str, shape)) for shape in (image.shape, x.shape[1:]))
            raise DataError(
                f"{picture[0]}: is {new}, the images before it {before}; bring all to one "
                "size with --shape 32x32"
            )
        if image.dtype != x.dtype:
            raise DataError(
                f"{picture[0]}: has {8 * image.itemsize} bits per channel, the images before "
                f"it {8 * x.itemsize}"
            )
        x[i] = image
    if x.dtype == np.uint16:
        if x.max() < 1 << 15:
            line = (
                "the images have 16 bits per pixel, of which they use the lower half (at most "
                f"{x.max()})"
            )
            raise DataError(
                f"{pictures[0][0]}: {line}, so that the value of white is unknown; save them "
                "with 8 bits"
            )
        x = np.stack([(image.astype(np.uint32) + 128) // 257 for image in x])
    return x.astype(np.uint8)


def _with_image(picture: Picture, act: Callable[[Opened], T]) -> T:
    """Return `act` of the opened image; raise a DataError if the image cannot be read."""
    from PIL import Image

    name, content = picture
    if not isinstance(content, Path):
        content.seek(0)
    with parser_errors(name, "as an image"), warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(content) as image:
            return act(image)


def _is_deep(image: Opened) -> bool:
    """Whether an image has 16 bits per pixel; for PNG and PGM files Pillow may call that mode
    "I"."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _read_pixels(image: Opened, shape: tuple[int, ...], grey: bool) -> np.ndarray:
    """u8 or u16[height, width, 1 or 3], turned as EXIF says. Transparent pixels become white."""
    from PIL import Image, ImageOps

    deep = _is_deep(image)
    image = ImageOps.exif_transpose(image)
    if deep:
        image = Image.fromarray(np.asarray(image).astype(np.float32))
    elif image.mode in ("I", "F"):
        raise ValueError(
            "it has 32 bits per pixel, so that the value of white is not known; save it with 8"
        )
    else:
        if image.has_transparency_data:
            paper = Image.new("RGBA", image.size, "white")
            paper.alpha_composite(image.convert("RGBA"))
            image = paper
        image = image.convert("L" if grey else "RGB")
    if shape:
        image = image.resize((shape[1], shape[0]), Image.Resampling.BILINEAR)
    made = np.rint(np.asarray(image)).astype(np.uint16) if deep else np.asarray(image, np.uint8)
    return made[..., None] if made.ndim == 2 else made
