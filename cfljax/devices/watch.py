"""A thread that looks whether another process has ended. A process that waits for devices does not come to look by itself, and if
they are those of the process that has ended, JAX would abort it without saying why."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Literal

from cfljax.errors import CfljaxError

PATIENCE = 3
"""Seconds that a process has to find by itself that another one has ended."""

Seen = CfljaxError | None | Literal["apart"]
"""Why another process has ended; None: all go on; apart: this process is not one of several any more."""


def watch(look: Callable[[], Seen], every: float, part: Callable[[CfljaxError], object]) -> None:
    """Call `look` again and again, `every` seconds apart. Where another process has ended, and this one still knows nothing of
    it PATIENCE seconds later, print the reason, `part` from the others, and end with the reason's exit code."""

    def watching() -> None:
        seen: Seen = None
        while seen is None:
            time.sleep(every)
            if isinstance(seen := look(), CfljaxError):
                time.sleep(PATIENCE)
                seen = look()
        if seen == "apart":
            return
        print(f"cfljax: {seen}", file=sys.stderr)
        sys.stderr.flush()
        part(seen)
        os._exit(seen.exit_code)

    threading.Thread(target=watching, daemon=True).start()
