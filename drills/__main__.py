"""`python -m drills`: all drills, one after another, each with its own number of trials."""

from __future__ import annotations

import subprocess
import sys

DRILLS = ("kill", "signals", "processes", "disk_full", "corruption", "edits", "soak", "soak_rounds")

if __name__ == "__main__":
    codes = {
        name: subprocess.run([sys.executable, "-m", f"drills.{name}"]).returncode for name in DRILLS
    }
    subprocess.run([sys.executable, "-m", "drills.table"])
    failed = [name for name, code in codes.items() if code]
    print(f"failed: {', '.join(failed)}" if failed else "all as it should be")
    sys.exit(1 if failed else 0)
