"""Figure 2: SIGTERM and Ctrl-C at any moment."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import time

from drills import common
from drills.common import Figure, Tally
from drills.kill import LONG

FIGURE = Figure(
    "signals",
    "2",
    "SIGTERM, Ctrl-C",
    "ends within 10 s, codes 143 and 130, resumable, no temporary file stays",
    20,
)
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}


def drill(tally: Tally, count: int, seed: int) -> None:
    """Signals, one after another to sweeps on the same folder until it is done, then on a new
    one."""
    draw, clock = random.Random(seed), common.Clock()
    with common.workplace() as place:
        folder = place / "stopped"
        length, wanted = common.uninterrupted(place, "whole", *LONG)
        while tally.tried < count and time.monotonic() < tally.end:
            number = draw.choice(list(CODES))
            process = common.start(place, folder, *LONG, PYTHONFAULTHANDLER="1")
            time.sleep(draw.uniform(0.02, length))
            begin = clock.seconds
            process.send_signal(number)
            try:
                _, errors = process.communicate(timeout=60)
            finally:
                common.kill(process)
            spent = clock.seconds - begin
            tally.most("seconds to the end", spent)
            code = process.returncode
            if code == 0:
                tally.count("it was done already")
                problems = common.differences(wanted, common.contents(folder))
                shutil.rmtree(folder)
            else:
                problems = _problems(tally, number, code, errors, spent)
            if folder.exists():
                problems += common.leftovers(folder)
            tally.check([f"{number.name}: {p}" for p in problems])
        code, _, errors = common.sweep(place, folder, *LONG)
        tally.check(
            ([] if code == 0 else [errors]) + common.differences(wanted, common.contents(folder))
        )


def _problems(
    tally: Tally, number: signal.Signals, code: int, errors: str, spent: float
) -> list[str]:
    if code == -number:  # the shell shows 128 + n all the same
        tally.count("before Python had started the command")
        return [] if spent < 10 else [f"{spent:.1f} s"]
    problems = [] if code == CODES[number] else [f"code {code}: {errors.strip()[-300:]}"]
    problems += [f"{p}: {errors.strip()[-600:]}" for p in common.complaint(errors)]
    return problems + ([f"{spent:.1f} s"] if spent >= 10 else [])


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
