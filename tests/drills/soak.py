"""Figure 20: many runs in one process."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from tests.drills import common
from tests.drills.common import Figure, Tally

FIGURE = Figure(
    "soak", "20", "retraces; 500 runs in one process", "one compile per shape; memory growth under 1 %, no file left open", 500
)
WARM = 0.4
"""The share of the runs after which memory is looked at for the first time: caches fill at first."""
GROWTH = 0.01
LOOKS = 5


def drill(tally: Tally, count: int, seed: int) -> None:
    """Runs of two methods with many seeds and numbers, through the launcher into one folder."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from cfljax import simulate
    from cfljax.config import read_spec
    from cfljax.launch.sweep import Options, carry_out
    from cfljax.paths import use_compilation_cache
    from cfljax.store import Store

    with common.workplace() as place:
        os.environ["CFLJAX_CACHE"] = str(common.CACHE)
        use_compilation_cache()
        seen = []
        for look in range(LOOKS + 1):
            done = int(count * (WARM + (1 - WARM) * look / LOOKS))
            sets = [f"seeds={seed}:{seed + max(1, done // 4)}", "train.lr=[0.05, 0.1]", "train.rounds=8"]
            outcome = carry_out(read_spec(place / "spec.toml", sets), Store(place / "r"), Options(quiet=True))
            if outcome.failed or outcome.diverged:
                tally.check(f"{outcome.failed} failed, {outcome.diverged} diverged")
            gc.collect()
            seen.append((memory(), descriptors(), simulate.compilations))
            tally.tried += outcome.computed
        first, last = seen[0], seen[-1]
        growth = max(m for m, _, _ in seen[1:]) / first[0] - 1
        tally.most("growth of memory", growth)
        tally.facts |= {"memory in bytes": [m for m, _, _ in seen], "open files": [d for _, d, _ in seen], "programs": last[2]}
        problems = [f"memory grew by {growth:.2%}"] if growth > GROWTH else []
        problems += [f"{last[1] - first[1]} more files open"] if last[1] > first[1] else []
        problems += [f"{last[2]} programs compiled for 4 shapes"] if last[2] != 4 else []
        tally.check(problems)


def memory() -> int:
    """Bytes that the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def descriptors() -> int:
    """Open files."""
    return len(list(Path("/proc/self/fd").iterdir()))


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
