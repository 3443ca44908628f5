"""Find images and sounds in folders: CLASS/x.png, or train/CLASS/… beside test/CLASS/…, or with
--by-user USER/CLASS/…, or with --by-domain DOMAIN/CLASS/… (also DOMAIN/train/CLASS/… beside
DOMAIN/test/CLASS/…)."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from cfljax.data.parts import Part, Wanted
from cfljax.errors import DataError, DataWarning, SpecError

T = TypeVar("T")
_TRAIN = ("train", "training")
_TEST = ("test", "testing", "val", "validation", "valid")
SOUND_ENDINGS = {".wav", ".wave"}


class Found(NamedTuple):
    """Files that have been found and not read, with the class and the user of each."""

    files: list[Path]
    labels: list[str]
    users: list[str]

    def part(self, x: np.ndarray, owned: bool) -> Part:
        """Make a part of the samples of these files."""
        return Part(x, np.array(self.labels), np.array(self.users) if owned else None)


def folders_in(folder: Path) -> list[Path]:
    """Return the folders inside a folder, by name, without hidden ones."""
    return sorted(
        item for item in folder.iterdir() if item.is_dir() and not item.name.startswith(".")
    )


def has_sounds(folder: Path) -> bool:
    """Return whether the first file in a folder is a sound."""
    files = (f for f in sorted(folder.rglob("*")) if f.is_file() and not _is_hidden(f, folder))
    return getattr(next(files, None), "suffix", "").lower() in SOUND_ENDINGS


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _normalise_name(folder: Path) -> str:
    """Return the folder's name in normalised Unicode: macOS writes é in two characters."""
    return unicodedata.normalize("NFC", folder.name).strip()


def _find_sides(folder: Path) -> list[Path]:
    """Return [folder of the training samples, folder of the test samples], or [the folder] if none
    inside is named for them."""
    inside = {item.name.lower(): item for item in folders_in(folder)}
    train = next((inside[name] for name in _TRAIN if name in inside), None)
    tests = [inside[name] for name in _TEST if name in inside]
    if train is None:
        if tests and len(tests) == len(inside):
            raise DataError(f"{folder}: has {tests[0].name} but no folder train")
        return [folder]
    left = [item.name for item in inside.values() if item not in (train, *tests[:1])]
    if left:
        warnings.warn(f"{folder}: left out: {', '.join(left)}", DataWarning, stacklevel=2)
    return [train, *tests[:1]]


def find_domains(folder: Path) -> list[Path]:
    """Return the folders of the domains, by name. A folder around them is passed, as in PACS:
    kfold/sketch/dog/1.png."""
    while len(inner := folders_in(folder)) == 1 and all(map(folders_in, folders_in(inner[0]))):
        folder = inner[0]
    if len(inner) < 2:
        raise DataError(
            f"{folder}: has {len(inner)} folders; with --by-domain each domain is a folder "
            "(DOMAIN/CLASS/image.png)"
        )
    return inner


def list_files(folder: Path, wanted: Wanted, endings: set[str], example: str) -> list[Found]:
    """Return the files of the training part, and of the test part if there is one."""
    if folder.is_file():
        raise DataError(f"{folder}: is a file; needed are folders by class ({example})")
    if wanted.by_domain:
        return _list_domains(folder, wanted, endings, example)
    sides = _find_sides(folder)
    if not wanted.by_user:
        inside = {
            kind.name: {item.name for item in folders_in(kind)} for kind in folders_in(sides[0])
        }
        names = next(iter(inside.values()), set())
        if len(inside) > 1 and len(names) > 1 and all(other == names for other in inside.values()):
            a, b = list(inside)[:2]
            line = (
                f"{sides[0]}: {a} and {b} count as classes and have the same folders inside "
                f"({', '.join(sorted(names)[:3])}, …)"
            )
            warnings.warn(
                f"{line}: if these are the classes, give --by-domain or --by-user",
                DataWarning,
                stacklevel=2,
            )
    return [_find_files(side, wanted, endings, example) for side in sides]


def _list_domains(folder: Path, wanted: Wanted, endings: set[str], example: str) -> list[Found]:
    """List the files of all domains, whose names are the users: the training part, and the test
    part if the domains have one."""
    if wanted.by_user:
        raise SpecError(
            "--by-domain: has the folders by domain, --by-user by user; leave one of the two out"
        )
    found: dict[str, list[Found]] = {}
    for domain in find_domains(folder):
        level = domain
        # A single folder around the classes is passed, as in Office-31: amazon/images/mug/1.jpg
        while len(inner := folders_in(level)) == 1 and folders_in(inner[0]):
            level = inner[0]
        sides = [
            _find_files(side, wanted, endings, f"DOMAIN/{example}") for side in _find_sides(level)
        ]
        found[_normalise_name(domain)] = [
            side._replace(users=[_normalise_name(domain)] * len(side.files)) for side in sides
        ]
    some = [name for name, sides in found.items() if len(sides) > 1]
    if some and len(some) < len(found):
        without = next(name for name in found if name not in some)
        raise DataError(
            f"{folder}: {some[0]} has a folder of test images and {without} has none; all "
            "domains must, or none"
        )
    classes = {name: set(sides[0].labels) for name, sides in found.items()}
    every = set.union(*classes.values())
    if not set.intersection(*classes.values()):
        (a, of_a), (b, of_b) = list(classes.items())[:2]
        two = f"({a} has {min(of_a)}, {b} has {min(of_b)})"
        raise DataError(
            f"{folder}: the domains have no class in common {two}; with --by-domain folders "
            "are DOMAIN/CLASS/image.png"
        )
    for name, held in classes.items():
        if less := sorted(every - held):
            more = f", … ({len(less)} classes)" if len(less) > 3 else ""
            warnings.warn(
                f"{folder}: {name} has no images of {', '.join(less[:3])}{more}",
                DataWarning,
                stacklevel=2,
            )
    return [_join_found(of_domains) for of_domains in zip(*found.values(), strict=True)]


def _join_found(parts: Sequence[Found]) -> Found:
    """Return the files of all these parts as one."""
    return Found(
        [file for part in parts for file in part.files],
        [label for part in parts for label in part.labels],
        [user for part in parts for user in part.users],
    )


def _find_files(folder: Path, wanted: Wanted, endings: set[str], example: str) -> Found:
    """Return the files of a part. A warning says how many files were left out, and which classes
    are empty."""
    found = Found([], [], [])
    others = []
    empty = []
    for user in folders_in(folder) if wanted.by_user else [folder]:
        for kind in folders_in(user):
            if kind.name in wanted.drop:
                continue
            every = sorted(f for f in kind.rglob("*") if f.is_file() and not _is_hidden(f, kind))
            files = [f for f in every if f.suffix.lower() in endings]
            others += [f for f in every if f.suffix.lower() not in endings]
            empty += [] if files else [kind.name]
            found.files.extend(files)
            found.labels.extend([_normalise_name(kind)] * len(files))
            found.users.extend([_find_user(file, wanted, _normalise_name(user)) for file in files])
    if not found.files:
        what = "WAV files" if endings == SOUND_ENDINGS else "images"
        example = f"USER/{example}" if wanted.by_user else example
        hint = f"; {others[0].name} is none: convert such files first" if others else ""
        raise DataError(f"{folder}: has no {what} in folders by class ({example}){hint}")
    if others:
        warnings.warn(
            f"{folder}: {len(others)} files of other kinds are left out, such as {others[0].name}",
            DataWarning,
            stacklevel=2,
        )
    if empty:
        warnings.warn(
            f"{folder}: has no samples in {', '.join(empty[:3])}, which is no class then",
            DataWarning,
            stacklevel=2,
        )
    return found


def _find_user(file: Path, wanted: Wanted, folder: str) -> str:
    """Return the user of a file: as `--user-in-name` finds it in the name, else the folder."""
    if wanted.user_in_name is None:
        return folder
    match = compile_pattern(wanted.user_in_name).fullmatch(file.stem)
    if match is None:
        raise DataError(
            f'{file}: its name does not have the form of --user-in-name "{wanted.user_in_name}"'
        )
    return match["user"]


def compile_pattern(text: str) -> re.Pattern[str]:
    """Return the names, without ending, that a form such as "{user}_nohash_*" stands for: {user} is
    the user, * anything."""
    if text.count("{user}") != 1:
        raise SpecError(
            f'--user-in-name "{text}": must have {{user}} once, where a name has the user, '
            f'as in "{{user}}_*"'
        )
    parts = re.split(r"(\{user\}|\*)", text.removesuffix(".wav"))
    meant = {"{user}": "(?P<user>.+?)", "*": ".*"}
    return re.compile("".join(meant.get(part, re.escape(part)) for part in parts))


def make_parts(found: list[Found], x: np.ndarray, owned: bool) -> list[Part]:
    """Return the samples of these files as parts."""
    return [
        each.part(rows, owned)
        for each, rows in zip(found, np.split(x, [len(found[0].files)]), strict=False)
    ]


def show_progress(items: list[T], what: str) -> Iterable[T]:
    """Return the items, with a progress bar."""
    from tqdm import tqdm

    return tqdm(items, desc=what, unit="", disable=None)
