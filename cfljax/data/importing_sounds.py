"""From WAV files in folders to samples: WORD/x.wav, or train/WORD/… beside test/WORD/…, or with --by-user SPEAKER/WORD/x.wav; with
--user-in-name the name of a file says who speaks."""

from __future__ import annotations

import re
import warnings
import wave
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax.data.bounded import readable
from cfljax.data.importing_images import files_of, folders_in, sides_of
from cfljax.data.parts import Part, Wanted
from cfljax.data.sound import log_mel
from cfljax.errors import DataError, DataWarning, SpecError

ENDINGS = {".wav", ".wave"}
OTHERS = {".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aac", ".aif", ".aiff"}
"""Sounds that are not read."""
MOST = 60.0
"""Seconds of the longest sound to whose length others are filled up unasked."""


class Sounds(NamedTuple):
    """WAV files that have been found and not read, with the label and the owner of each."""

    where: Path
    files: list[Path]
    labels: list[str]
    users: list[str] | None


class Form(NamedTuple):
    """What the header of a WAV file says."""

    rate: int
    """Samples a second."""
    length: int
    """Samples of a channel that the file has room for."""


def has_sounds(folder: Path, depth: int = 3) -> bool:
    """Whether the first files that one finds in a folder, and the first folders inside it, are sounds."""
    inside = sorted(item for item in folder.iterdir() if not item.name.startswith("."))
    if any(item.suffix.lower() in ENDINGS and item.is_file() for item in inside):
        return True
    deeper = next((item for item in inside if item.is_dir()), None)
    return depth > 0 and deeper is not None and has_sounds(deeper, depth - 1)


def read_sounds(folder: Path, wanted: Wanted) -> list[Sounds]:
    """[Training sounds, test sounds], or [training sounds] if no folder is named for test sounds."""
    if wanted.by_user and wanted.user_in_name:
        raise SpecError("--by-user: has the owners as folders, --user-in-name in names of files; leave one of the two out")
    if wanted.seconds is not None and not 0 < wanted.seconds < float("inf"):
        raise SpecError(f"--seconds {wanted.seconds:g}: must be a number of seconds above 0")
    if wanted.log_mel < 0:
        raise SpecError(f"--log-mel {wanted.log_mel}: must be a number of bands, at least 1")
    if folder.is_file():
        raise DataError(f"{folder}: is a file; sounds are a folder for each label (WORD/x.wav)")
    return [_found(place, wanted) for place in sides_of(folder)]


def _found(folder: Path, wanted: Wanted) -> Sounds:
    name = None if wanted.user_in_name is None else pattern(wanted.user_in_name)
    files, labels, users = [], [], []
    for owner in folders_in(folder) if wanted.by_user else [folder]:
        for kind in folders_in(owner):
            found = [] if kind.name in wanted.drop else files_of(kind, ENDINGS)
            files += found
            labels += [kind.name] * len(found)
            users += [owner.name if name is None else _owner(file, name, wanted) for file in found]
    if not files:
        form = "SPEAKER/WORD" if wanted.by_user else "WORD"
        other = next((item for item in folder.rglob("*") if item.suffix.lower() in OTHERS), None)
        hint = f"; {other.name} is no WAV file: convert such files first" if other else ""
        raise DataError(f"{folder}: has no WAV files in folders by label ({form}/x.wav){hint}")
    return Sounds(folder, files, labels, users if wanted.by_user or name else None)


def pattern(text: str) -> re.Pattern[str]:
    """The names, without ending, that a pattern such as "{user}_nohash_*" stands for: {user} is the owner, * anything."""
    if text.count("{user}") != 1:
        raise SpecError(f'--user-in-name "{text}": must have {{user}} once, where a name has the owner, as in "{{user}}_*"')
    parts = re.split(r"(\{user\}|\*)", text.removesuffix(".wav"))
    meant = {"{user}": "(?P<user>.+?)", "*": ".*"}
    return re.compile("".join(meant.get(part, re.escape(part)) for part in parts))


def _owner(file: Path, name: re.Pattern[str], wanted: Wanted) -> str:
    found = name.fullmatch(file.stem)
    if found is None:
        raise DataError(f'{file}: its name does not have the form of --user-in-name "{wanted.user_in_name}"')
    return found["user"]


def in_features(found: list[Sounds], wanted: Wanted) -> list[Part]:
    """The parts (training, test) of these sounds, all of one length: numbers from −1 to 1, or features."""
    files = [file for part in found for file in part.files]
    rate, length = _measure(files, wanted)
    x = np.split(_read_all(files, rate, length, wanted), [len(found[0].files)])
    return [
        Part(each, np.array(part.labels), None if part.users is None else np.array(part.users))
        for part, each in zip(found, x, strict=False)
    ]


def _measure(files: list[Path], wanted: Wanted) -> tuple[int, int]:
    """(Samples a second, samples of each sound): `--seconds`, else the length of the longest."""
    forms = [form_of(file) for file in files]
    rate = forms[0].rate
    for file, form in zip(files, forms, strict=True):
        if form.rate != rate:
            raise DataError(f"{file}: has {form.rate} samples a second, {files[0]} {rate}; bring all to one rate first")
    if wanted.seconds is not None:
        return rate, max(1, round(wanted.seconds * rate))
    longest = max(range(len(files)), key=lambda i: forms[i].length)
    if forms[longest].length > MOST * rate:
        seconds = forms[longest].length / rate
        line = f"{files[longest]}: lasts {seconds:.0f} s, and all would be filled up to that"
        raise DataError(f"{line}; give --seconds, or --drop FOLDER")
    return rate, max(1, forms[longest].length)


def form_of(file: Path) -> Form:
    """The form of a WAV file. Its header may claim more than the file holds: the smaller of both counts."""
    with readable(file, "as WAV", "; save it as plain PCM"), wave.open(str(file), "rb") as sound:
        room = file.stat().st_size // (sound.getsampwidth() * sound.getnchannels())
        return Form(sound.getframerate(), min(sound.getnframes(), room))


def _read_all(files: list[Path], rate: int, length: int, wanted: Wanted) -> np.ndarray:
    from tqdm import tqdm

    x, empty = np.empty(0, np.float32), 0
    for i, file in enumerate(tqdm(files, desc="sounds", unit="", disable=None)):
        heard = numbers(file)[:length]
        empty += not len(heard)
        sound = np.zeros(length, np.float32)
        sound[: len(heard)] = heard
        made = log_mel(sound[None], rate, wanted.log_mel)[0] if wanted.log_mel else sound
        if i == 0:
            x = np.empty((len(files), *made.shape), np.float32)
        x[i] = made
    if empty:
        warnings.warn(f"{empty} of {len(files)} sounds are empty and count as silence", DataWarning, stacklevel=2)
    return x


def numbers(file: Path) -> np.ndarray:
    """f32[samples] from −1 to 1 of a WAV file with 8, 16, 24 or 32 bits a sample: the mean of its channels."""
    with readable(file, "as WAV", "; save it as plain PCM"), wave.open(str(file), "rb") as sound:
        width, channels = sound.getsampwidth(), sound.getnchannels()
        content = sound.readframes(sound.getnframes())
        content = content[: len(content) // (width * channels) * width * channels]
        return _decoded(content, width).reshape(-1, channels).mean(1, dtype=np.float64).astype(np.float32)


def _decoded(content: bytes, width: int) -> np.ndarray:
    """f64[n]: numbers of `width` bytes, the lowest first; those of one byte have no sign, and 128 is silence."""
    if width == 1:
        return (np.frombuffer(content, np.uint8).astype(np.float64) - 128) / 128
    if width == 3:  # as the upper three bytes of four
        whole = np.zeros((len(content) // 3, 4), np.uint8)
        whole[:, 1:] = np.frombuffer(content, np.uint8).reshape(-1, 3)
        return whole.view("<i4")[:, 0] / 2.0**31
    if width not in (2, 4):
        raise ValueError(f"it has {8 * width} bits a sample, not 8, 16, 24 or 32")
    return np.frombuffer(content, f"<i{width}") / 2.0 ** (8 * width - 1)
