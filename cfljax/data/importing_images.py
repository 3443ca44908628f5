"""From images in folders to samples: CLASS/image.png, or train/CLASS/… beside test/CLASS/…, or with --by-user USER/CLASS/…, or with
--by-domain DOMAIN/CLASS/… (also DOMAIN/train/CLASS/… beside DOMAIN/test/CLASS/…, and DOMAIN/images/CLASS/…)"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from cfljax.data.bounded import readable
from cfljax.data.parts import Part, Wanted
from cfljax.errors import DataError, DataWarning, SpecError

if TYPE_CHECKING:
    from PIL.Image import Image as Opened

T = TypeVar("T")
ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
_TRAIN = ("train", "training")
_TEST = ("test", "testing", "val", "validation", "valid")
_GREY = ("1", "L", "LA", "La")


Picture = tuple[str, Path | IO[bytes]]
"""(The name of an image in messages, its file or the contents of its file.)"""


class Pictures(NamedTuple):
    """Image files that have been found and not read, with the class and the owner of each."""

    where: Path
    files: list[Path]
    labels: list[str]
    users: list[str] | None


def read_images(folder: Path, wanted: Wanted) -> list[Pictures]:
    """[Training images, test images], or [training images] if no folder is named for test images."""
    if wanted.by_domain:
        return _domains(folder, wanted)
    sides = sides_of(folder)
    if not wanted.by_user:
        _check_depth(sides[0])
    return [_found(place, wanted) for place in sides]


def _check_depth(folder: Path) -> None:
    """A warning where the folders, which count as classes, have the same folders inside, as domains and users have."""
    inside = {kind.name: {item.name for item in folders_in(kind)} for kind in folders_in(folder)}
    alike = len(inside) > 1 and len({frozenset(names) for names in inside.values()}) == 1
    if alike and len(names := min(inside.values())) > 1:
        a, b = list(inside)[:2]
        line = f"{folder}: {a} and {b} count as classes and have the same folders inside ({', '.join(sorted(names)[:3])}, …)"
        warnings.warn(f"{line}: if these are the classes, give --by-domain or --by-user", DataWarning, stacklevel=2)


def sides_of(folder: Path) -> list[Path]:
    """[The folder of the training samples, that of the test samples], or [the folder itself] if none inside is named for them."""
    inside = {item.name.lower(): item for item in folders_in(folder)}
    train = next((inside[name] for name in _TRAIN if name in inside), None)
    tests = [inside[name] for name in _TEST if name in inside]
    if train is None:
        if tests and len(tests) == len(inside):
            raise DataError(f"{folder}: has {tests[0].name} and no folder train beside it")
        return [folder]
    left = [item.name for item in inside.values() if item not in (train, *tests[:1])]
    if left:
        warnings.warn(f"{folder}: left out: {', '.join(left)}", DataWarning, stacklevel=2)
    return [train, *tests[:1]]


def _domains(folder: Path, wanted: Wanted) -> list[Pictures]:
    """The same of folders by domain: every image belongs to its domain."""
    if wanted.by_user:
        raise SpecError("--by-domain: has the folders by domain, --by-user by user; leave one of the two out")
    sides: list[list[Pictures]] = []
    for domain in domains_of(folder):
        place = domain
        while len(inner := folders_in(place)) == 1 and folders_in(inner[0]):  # as in Office-31: amazon/images/mug/1.jpg
            place = inner[0]
        found = [_found(side, wanted) for side in sides_of(place)]
        sides.append([each._replace(where=folder, users=[domain.name] * len(each.files)) for each in found])
    names = [side[0].users[0] for side in sides if side[0].users]
    with_test = [name for name, side in zip(names, sides, strict=True) if len(side) > 1]
    if with_test and len(with_test) < len(sides):
        without = next(name for name in names if name not in with_test)
        raise DataError(f"{folder}: {with_test[0]} has a folder of test images and {without} has none; all domains must, or none")
    _check_classes(folder, {name: set(side[0].labels) for name, side in zip(names, sides, strict=True)})
    return [_together(list(side)) for side in zip(*sides, strict=True)]


def domains_of(folder: Path) -> list[Path]:
    """The folders of the domains, by name."""
    # as in PACS: kfold/sketch/dog/1.png
    while len(inner := folders_in(folder)) == 1 and all(map(folders_in, folders_in(inner[0]))):
        folder = inner[0]
    if len(inner) < 2:
        raise DataError(f"{folder}: has {len(inner)} folders; with --by-domain each domain is a folder (DOMAIN/CLASS/image.png)")
    return inner


def _together(parts: list[Pictures]) -> Pictures:
    files = [file for part in parts for file in part.files]
    labels = [label for part in parts for label in part.labels]
    return Pictures(parts[0].where, files, labels, [user for part in parts for user in part.users or []])


def _check_classes(folder: Path, held: dict[str, set[str]]) -> None:
    """A DataError if domains have no class in common, and a warning if one lacks a class."""
    every, common = set.union(*held.values()), set.intersection(*held.values())
    if not common:
        a, b = list(held)[:2]
        raise DataError(
            f"{folder}: the domains have no class in common ({a} has {min(held[a])}, {b} has {min(held[b])}); "
            "with --by-domain folders are DOMAIN/CLASS/image.png"
        )
    for name, classes in held.items():
        if classes < every:
            less = sorted(every - classes)
            more = f", … ({len(less)} classes)" if len(less) > 3 else ""
            warnings.warn(f"{folder}: {name} has no images of {', '.join(less[:3])}{more}", DataWarning, stacklevel=2)


def _found(folder: Path, wanted: Wanted) -> Pictures:
    files, labels, users = [], [], []
    for owner in folders_in(folder) if wanted.by_user else [folder]:
        for kind in folders_in(owner):
            found = files_of(kind, ENDINGS)
            files += found
            labels += [kind.name] * len(found)
            users += [owner.name] * len(found)
    if not files:
        form = "USER/CLASS" if wanted.by_user else "DOMAIN/CLASS" if wanted.by_domain else "CLASS"
        raise DataError(f"{folder}: has no images in folders by class ({form}/image.png)")
    return Pictures(folder, files, labels, users if wanted.by_user else None)


def folders_in(folder: Path) -> list[Path]:
    """The folders inside of a folder, by name, without hidden ones."""
    return sorted(item for item in folder.iterdir() if item.is_dir() and not item.name.startswith("."))


def files_of(folder: Path, endings: set[str]) -> list[Path]:
    """The files in a folder, and in those inside it, whose names have one of these endings, without hidden ones."""
    return sorted(f for f in folder.rglob("*") if f.suffix.lower() in endings and f.is_file() and not _hidden(f, folder))


def _hidden(file: Path, folder: Path) -> bool:
    """Whether the file is hidden, as those that editors and systems keep beside images: .ipynb_checkpoints/x.png, ._x.png."""
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def joined(found: list[Pictures], wanted: Wanted) -> list[Part]:
    """The parts (training, test) of these images, decoded to one form."""
    x = decoded(str(found[0].where), [(str(file), file) for part in found for file in part.files], wanted)
    images = np.split(x, [len(found[0].files)])
    return [
        Part(each, np.array(part.labels), None if part.users is None else np.array(part.users))
        for part, each in zip(found, images, strict=False)
    ]


def decoded(where: str, pictures: list[Picture], wanted: Wanted) -> np.ndarray:
    """u8[n, height, width, channels]; one channel if no image has colours, else three."""
    from tqdm import tqdm

    grey = wanted.grey or all(_opened(picture, lambda image: image.mode in _GREY or _is_deep(image)) for picture in pictures)
    x = np.empty(0)
    for i, picture in enumerate(tqdm(pictures, desc="images", unit="", disable=None)):
        image = _opened(picture, lambda found: _pixels(found, wanted.shape, grey))
        x = np.empty((len(pictures), *image.shape), image.dtype) if i == 0 else x
        if image.shape != x.shape[1:]:
            new, before = ("×".join(map(str, shape)) for shape in (image.shape, x.shape[1:]))
            raise DataError(f"{picture[0]}: is {new}, the images before it {before}; bring all to one size with --shape 32x32")
        if image.dtype != x.dtype:
            raise DataError(f"{picture[0]}: has {8 * image.itemsize} bits per channel, the images before it {8 * x.itemsize}")
        x[i] = image
    return _bytes(where, x)


def _opened(picture: Picture, act: Callable[[Opened], T]) -> T:
    """What `act` returns for the opened image; a DataError if the image cannot be read."""
    from PIL import Image

    name, content = picture
    if not isinstance(content, Path):
        content.seek(0)
    with readable(name, "as an image"), warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(content) as image:
            return act(image)


def _is_deep(image: Opened) -> bool:
    """Whether an image has 16 bits per pixel; for PNG and PGM files Pillow may call that mode "I"."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _pixels(image: Opened, shape: tuple[int, ...], grey: bool) -> np.ndarray:
    """u8 or u16[height, width, 1 or 3]. Transparent pixels become white."""
    from PIL import Image

    deep = _is_deep(image)
    if deep:
        image = Image.fromarray(np.asarray(image).astype(np.float32))
    elif image.mode in ("I", "F"):
        raise ValueError("it has 32 bits per pixel, so that the value of white is not known; save it with 8")
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


def _bytes(where: str, x: np.ndarray) -> np.ndarray:
    """u8[...] from 8 or 16 bits per channel: 65535 becomes 255."""
    if x.dtype == np.uint8:
        return x
    if x.max() < 1 << 15:
        raise DataError(
            f"{where}: the images have 16 bits per pixel, of which they use the lower half (at most {x.max()}), so that the "
            "value of white is not known; save them with 8 bits"
        )
    for i in range(len(x)):
        x[i] = (x[i].astype(np.uint32) + 128) // 257
    return x.astype(np.uint8)
