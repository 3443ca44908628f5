"""Install the peers, each by pip into an environment of its own.

python -m benchmarks.setup_peers                 # all
python -m benchmarks.setup_peers --peers torch,fedjax
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Peer(NamedTuple):
    """Another system."""

    packages: tuple[str, ...]
    program: str
    flags: tuple[str, ...] = ()
    environment: str = ""
    """Whose environment it uses; "": its own."""
    alone: bool = False
    """Not by turns with others: its idle processes would disturb them."""
    about: str = ""


_TORCH = "torch==2.13.0"
PEERS = {
    "torch": Peer((_TORCH, "numpy"), "torch_loop.py", about="plain PyTorch loop over clients"),
    "torch-lean": Peer(
        (),
        "torch_loop.py",
        ("--lean",),
        "torch",
        about="PyTorch, functional gradients and foreach updates",
    ),
    "fedjax": Peer(
        ("fedjax==0.0.17", "jax==0.5.3", "jaxlib==0.5.3"),
        "fedjax_peer.py",
        about="FedJAX's release on PyPI, with the last jax that it was made for",
    ),
    "fedjax-new": Peer(
        ("fedjax==0.0.17", "jax==0.10.2", "jaxlib==0.10.2"),
        "fedjax_peer.py",
        about="the same release on a jax of today, where one name that jax has removed is put back",
    ),
    "pfl": Peer(("pfl==0.6.0", _TORCH), "pfl_peer.py", about="pfl-research with PyTorch"),
    "flower": Peer(
        ("flwr[simulation]==1.41.0", _TORCH),
        "flower_peer.py",
        alone=True,
        about="Flower's simulation on Ray, PyTorch clients",
    ),
}


class NotInstalled(Exception):
    """A peer that cannot be had here; the message is one line."""


def cache_folder() -> Path:
    """Where the environments lie."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cfljax-benchmarks"


def python_of(name: str, cache: Path) -> Path:
    """The interpreter of a peer's environment, whether it is there or not."""
    folder = cache / (PEERS[name].environment or name)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def ensure(name: str, cache: Path, python: str = sys.executable) -> Path:
    """The interpreter of a peer's environment, made and filled if need be."""
    owner = PEERS[name].environment or name
    folder, packages = cache / owner, list(PEERS[owner].packages)
    record = folder / "cfljax-benchmarks.json"
    if record.is_file() and json.loads(record.read_text()) == packages:
        return python_of(name, cache)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run([python, "-m", "venv", str(folder)])
    _run([str(python_of(name, cache)), "-m", "pip", "install", "--quiet", *packages])
    record.write_text(json.dumps(packages))
    return python_of(name, cache)


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "ERROR" in line] or lines
        raise NotInstalled(
            (errors[-1] if errors else f"exit code {ended.returncode}").strip()[:300]
        )


def peers_of(text: str) -> list[str]:
    """Names out of a comma-separated list."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f'"{name}": unknown peer; known: {", ".join(PEERS)}')
    return names


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers", type=peers_of, default=list(PEERS), help="comma-separated; default: all"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=cache_folder(),
        help="folder of the environments (%(default)s)",
    )
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter to make the environments from"
    )
    given, failed = parser.parse_args(), 0
    for name in given.peers:
        try:
            print(f"{name}: {ensure(name, given.cache, given.python)}", flush=True)
        except NotInstalled as error:
            failed += 1
            print(f"{name}: not installed: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
