"""Images in folders: CLASS/image.png, or train/CLASS/… beside test/CLASS/…, or with --by-user USER/CLASS/…"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from cfljax.data.bounded import reason
from cfljax.data.importing import Part, Wanted
from cfljax.errors import DataError

ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
_TEST = ("test", "val", "validation", "valid")


def read_images(folder: Path, wanted: Wanted) -> tuple[Part, Part | None]:
    """(train, test where there is a folder for it)."""
    if (folder / "train").is_dir():
        test = next((folder / name for name in _TEST if (folder / name).is_dir()), None)
        train = _part(folder / "train", wanted, None)
        return train, None if test is None else _part(test, wanted, train.x.shape[1:])
    return _part(folder, wanted, None), None


def _part(folder: Path, wanted: Wanted, form: tuple[int, ...] | None) -> Part:
    files, labels, users = [], [], []
    for owner in _folders(folder) if wanted.by_user else [folder]:
        for kind in _folders(owner):
            found = sorted(f for f in kind.rglob("*") if f.suffix.lower() in ENDINGS and f.is_file())
            files += found
            labels += [kind.name] * len(found)
            users += [owner.name] * len(found)
    if not files:
        raise DataError(f"{folder}: has no images in folders by class ({'USER/CLASS' if wanted.by_user else 'CLASS'}/image.png)")
    x = decoded(files, wanted, form)
    return Part(x, np.array(labels), np.array(users) if wanted.by_user else None)


def _folders(folder: Path) -> list[Path]:
    return sorted(item for item in folder.iterdir() if item.is_dir() and not item.name.startswith("."))


def decoded(files: list[Path], wanted: Wanted, form: tuple[int, ...] | None = None) -> np.ndarray:
    """u8[n, height, width, channels]; `form`: the shape that they must have, to go with others."""
    from tqdm import tqdm

    x = None
    for i, file in enumerate(tqdm(files, desc="images", unit="", disable=None)):
        try:
            image = to_array(file, wanted, None if form is None else form[-1])
        except DataError:
            raise
        except Exception as e:  # whatever broken files provoke in Pillow's decoders
            raise DataError(f"{file}: cannot be read as an image ({reason(e)})") from e
        form = form or image.shape
        if image.shape != form:
            shapes = f"{_size(image.shape)}, the images before it {_size(form)}"
            raise DataError(f"{file}: is {shapes}; bring all to one size with --shape 32x32")
        x = np.empty((len(files), *form), np.uint8) if x is None else x
        x[i] = image
    assert x is not None
    return x


def to_array(file: object, wanted: Wanted, channels: int | None = None) -> np.ndarray:
    """One image, u8[height, width, 1 or 3]; grey where the first image is."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(file) as image:  # type: ignore[arg-type]
            grey = wanted.grey or channels == 1 or (channels is None and image.mode in ("1", "L", "I;16", "LA"))
            plain = image.convert("L" if grey else "RGB")
            if wanted.shape:
                plain = plain.resize((wanted.shape[1], wanted.shape[0]), Image.Resampling.BILINEAR)
            made = np.asarray(plain, np.uint8)
    return made[..., None] if made.ndim == 2 else made


def _size(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
