"""Differential fuzzing: two ways to one result, on examples that are drawn at random."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
QUICK = "--xla_llvm_disable_expensive_passes=true --xla_backend_optimization_level=0"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK} --xla_force_host_platform_device_count=4".strip()

from drills import common  # noqa: E402
from drills.differential.examples import FIGURE, drill  # noqa: E402

if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
