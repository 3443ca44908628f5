"""Which devices do what: groups of devices take runs and need not talk to each other; in a group
each takes participants."""

from __future__ import annotations

import re
from typing import NamedTuple

from cfljax.errors import SpecError

# The axes of a mesh
RUNS, CLIENTS = "runs", "clients"
# Devices of a process: simulated ones take memory and threads each
MAX_DEVICES = 1024


class Shape(NamedTuple):
    """The shape of a mesh."""

    # Groups of devices; each has its share of a batch's runs
    runs: int
    # Devices of a group; each has its share of a round's participants
    clients: int

    def __str__(self) -> str:
        return "auto" if self == AUTO else f"runs={self.runs},clients={self.clients}"


# All devices, in as many groups as there are runs for
AUTO = Shape(0, 0)


def parse_mesh(text: str) -> Shape:
    """Parse `auto`, or `runs=2,clients=4` (the default of each is 1)."""
    if text == "auto":
        return AUTO
    sizes = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(runs|clients)\s*=\s*([1-9][0-9]{0,5})\s*", part)
        if match is None or match[1] in sizes:
            raise SpecError(f"--mesh {text}: must be auto, or such as runs=2,clients=4")
        sizes[match[1]] = int(match[2])
    return Shape(sizes.get(RUNS, 1), sizes.get(CLIENTS, 1))
