"""HOST. Whose programs have been compiled on this machine, as files in the cache folder say: known before anything is traced."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from cfljax import files
from cfljax.devices.compiled import shapes
from cfljax.engine.settings import Assembled
from cfljax.lazy import jax
from cfljax.software import software_hash


def remember(parts: Assembled, seconds: float) -> None:
    """Write down that the programs of a batch are in the cache of compiled programs, and how long those took that were not there.
    What methods share is counted for the first of them."""
    place = _place(parts)
    if place is None:
        return
    with contextlib.suppress(OSError):  # a cache that cannot be written to: nothing is remembered
        place.parent.mkdir(exist_ok=True)
        if place.exists():
            place.touch()
        else:
            place.write_text(f"{seconds:.1f}", encoding="utf-8")


def seconds_then(parts: Assembled) -> float | None:
    """The seconds that `remember` has written down; None where the programs of a batch are not in the cache."""
    place = _place(parts)
    try:
        return None if place is None else float(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _place(parts: Assembled) -> Path | None:
    """The file that tells of the programs of a batch; None where programs are not kept."""
    folder = files.programs_folder()
    if folder is None or parts.program_key is None:
        return None
    mesh = None if parts.mesh is None else dict(parts.mesh.shape)
    static = (parts.program_key, parts.model_key, parts.plan, parts.settings.of_programs, mesh, shapes(parts.federation))
    made_by = (software_hash(), jax.default_backend())
    return folder / files.KNOWN / hashlib.sha256(repr((static, made_by)).encode()).hexdigest()[:32]
