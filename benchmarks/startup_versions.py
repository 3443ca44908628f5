"""Two versions of cfljax, installed side by side: each in an environment of its own, with the same versions of all else."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.setup_peers import NotInstalled

ROOT = Path(__file__).parents[1]
WARM = "import jax, numpy, scipy.stats, sklearn.cluster, pandas, flax, optax, matplotlib.pyplot, cfljax"
CHOSEN = ("JAX_", "XLA_", "CFLJAX_", "PYTHON", "MPL")
"""How the names of variables begin that change a start, and so are left out of its environment."""


class Failed(Exception):
    """A command of a version that did not end well; the message is one line."""


class Version(NamedTuple):
    """An installed version."""

    name: str
    python: Path
    about: dict[str, str]

    def start(self, words: list[str], cache: Path, folder: Path, more: dict[str, str]) -> str:
        """Start `python -m WORDS` in `folder`, wait for its end, and return its standard error."""
        return self._run(["-m", *words], cache, folder, more)

    def imports(self, cache: Path, folder: Path) -> None:
        """Read all packages once, so that their files are in memory, and make what they keep in the cache."""
        self._run(["-c", WARM], cache, folder, {})

    def _run(self, words: list[str], cache: Path, folder: Path, more: dict[str, str]) -> str:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(CHOSEN)}
        environment |= {"CFLJAX_CACHE": str(cache), "XDG_CACHE_HOME": str(cache.parent / "other"), "JAX_PLATFORMS": "cpu"} | more
        ended = subprocess.run([str(self.python), *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if ended.returncode:
            last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
            raise Failed(f"{self.name}: python {' '.join(words)}: {last}")
        return ended.stderr


def installed(version: str | None, against: str, environments: Path) -> list[Version]:
    """[the version to measure, the one to compare it with], installed into `environments`. None: the checkout's files."""
    with tempfile.TemporaryDirectory(prefix="cfljax-sources-") as folder:
        found = []
        for role, commit in (("this", version), ("other", against)):
            source = Path(folder) / role
            about = _sources(commit, source)
            python = _environment(environments / f"startup-{role}", source, found[0].python if found else None)
            found.append(Version("cfljax" if role == "this" else f"cfljax {against}", python, about | {"python": _version(python)}))
        return found


def _sources(commit: str | None, folder: Path) -> dict[str, str]:
    """Lay a commit's files, or the checkout's, into a new folder; which they are."""
    folder.mkdir(parents=True)
    if commit is not None:
        archive = _git("archive", "--format=tar", commit)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        return {"commit": _git("rev-parse", f"{commit}^{{commit}}").decode().strip()}
    for name in _git("ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    changed = bool(_git("status", "--porcelain").strip())
    return {"commit": _git("rev-parse", "HEAD").decode().strip() + (", with changes" if changed else "")}


def _environment(folder: Path, source: Path, like: Path | None) -> Path:
    """The interpreter of an environment in which these sources are installed. `like`: of one whose other packages it takes."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        _done([sys.executable, "-m", "venv", str(folder)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if like is None:
        _done([*pip, str(source)])
    else:
        list_of_packages = source.with_suffix(".txt")
        list_of_packages.write_text(_packages(like))
        _done([*pip, "--requirement", str(list_of_packages)])
    _done([*pip, "--no-deps", "--force-reinstall", str(source)])
    if like is not None and _packages(python) != _packages(like):
        raise NotInstalled(f"{folder}: has other packages than {like.parents[1]}; delete both")
    return python


def _packages(python: Path) -> str:
    """The versions of an environment's packages, cfljax left out."""
    return _done([str(python), "-m", "pip", "--disable-pip-version-check", "freeze", "--exclude", "cfljax"])


def _version(python: Path) -> str:
    return _done([str(python), "--version"]).strip()


def _git(*words: str) -> bytes:
    ended = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    if ended.returncode:
        raise NotInstalled(f"git {' '.join(words)}: {ended.stderr.decode(errors='replace').strip()[:300]}")
    return ended.stdout


def _done(command: list[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise NotInstalled((ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1][:300])
    return ended.stdout
