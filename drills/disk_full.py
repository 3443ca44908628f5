"""Figure 4: the disk is full at each point of a sweep's writes."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure(
    "disk_full",
    "4",
    "disk full at each point of a write",
    "code 3, one line, old data whole, resume identical",
    1000,
)
PAGE = 4096
FIRST = ("--set", "method=fedavg")


def drill(tally: Tally, count: int, seed: int) -> None:
    """With n pages left, for every n until the sweep fits; at most `count`. Where a file system may
    not be mounted, with a limit of n pages on each file."""
    with common.workplace() as place, disk(place) as mounted:
        tally.facts["how"] = (
            "a tmpfs of 4 MB, filled up to n pages" if mounted else "RLIMIT_FSIZE of n pages"
        )
        wanted = {}  # one worker has two devices, two workers have one each: other last bits
        for workers in ("1", "2"):
            assert (
                common.sweep(place, place / f"begun{workers}", "--workers", workers, *FIRST)[0] == 0
            )
            assert common.sweep(place, place / f"whole{workers}", "--workers", workers)[0] == 0
            wanted[workers] = common.contents(place / f"whole{workers}")
        fits = 0
        for pages in tally.trials(count):
            tally.check(_one(tally, place, pages, mounted, wanted))
            fits = fits + 1 if tally.facts.pop("done") else 0
            if fits == 3:
                break
        tally.facts["pages"] = pages + 1


def _one(tally: Tally, place: Path, pages: int, mounted: bool, wanted: dict) -> list[str]:
    folder, filler = place / "disk" / "r", place / "disk" / "filler"
    workers = str(1 + pages % 2)
    flags = ("--workers", workers)
    shutil.copytree(place / f"begun{workers}", folder)
    old = common.contents(folder)
    if mounted:
        free = os.statvfs(place / "disk")
        filler.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - pages * PAGE)))
    code, _, errors = _limited(place, folder, None if mounted else pages * PAGE, flags)
    tally.facts["done"] = code == 0
    problems = []
    if code:
        tally.count("ended for want of space")
        problems = ([] if code == 3 else [f"code {code}"]) + common.complaint(errors)
        problems += (
            []
            if "free some space" in errors or "No space left" in errors
            else [f"says: {errors.strip()[-200:]}"]
        )
    found = common.contents(folder)
    problems += common.differences(
        old, {name: found.get(name, {}) for name in old}
    ) + common.leftovers(folder)
    filler.unlink(missing_ok=True)
    code, _, errors = common.sweep(place, folder, *flags)
    problems += (
        [] if code == 0 else [f"resume ended with {code}: {errors.strip()[-200:]}"]
    ) + common.leftovers(folder)
    problems += common.differences(wanted[workers], common.contents(folder))
    shutil.rmtree(folder)
    return [f"{pages} pages left: {p}" for p in problems]


def _limited(
    place: Path, folder: Path, limit: int | None, flags: tuple[str, ...]
) -> tuple[int, str, str]:
    if limit is None:
        return common.sweep(place, folder, *flags)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    done = subprocess.run(
        common.command(place, folder, *flags),
        capture_output=True,
        text=True,
        env=common.environment(),
        cwd=common.ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard)),
    )
    return done.returncode, done.stdout, done.stderr


@contextlib.contextmanager
def disk(place: Path) -> Iterator[bool]:
    """A small file system at place/disk; False where mounting is forbidden (place/disk is then a
    plain folder)."""
    (place / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place / "disk")]
    mounted = (
        shutil.which("mount") is not None
        and subprocess.run(mount, capture_output=True).returncode == 0
    )
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(place / "disk")], check=True)


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
