"""cfljax itself as one of the systems: `simulate`, looked at after every round."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from protocol import Stage

sys.path.insert(0, str(Path(__file__).parents[2]))


def main() -> None:
    stage = Stage()
    parser = argparse.ArgumentParser()
    parser.add_argument("shared")
    parser.add_argument("models")
    parser.add_argument("--workload", required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--plan", type=json.loads)
    given = parser.parse_args()

    import jax

    from benchmarks.shared import flat_names, run_of
    from benchmarks.workloads import WORKLOADS
    from cfljax import assemble
    from cfljax.plan import batches
    from cfljax.simulate import simulate
    from cfljax.store import provenance

    rounds = len(stage.schedule)
    run = run_of(WORKLOADS[given.workload], rounds, given.data, given.plan)
    batch = batches([run], 1)[0]
    parts = assemble.assemble(run)

    def progress(done: int, _: Any) -> None:
        """Called when compiled and warm, and after each round. The engine evaluates after the last one."""
        if done == 0:
            stage.ready()
        else:
            stage.end()
        if done < rounds:
            stage.begin()

    output = simulate(
        parts.method, parts.model, parts.federation, parts.settings, batch.seeds, batch.hypers,
        program_key=batch.program_key, chunk_rounds=1, progress=progress,
    )[0]  # fmt: skip
    found = provenance()
    stage.finish(
        flat_names(parts.model, output.models),
        compile_s=output.seconds_compile,
        version=f"cfljax {found['versions']['cfljax']}, jax {jax.__version__}",
        git=found["git"],
        devices=found["device"],
        engine_accuracy=float(output.history["accuracy"][-1]),
    )


if __name__ == "__main__":
    main()
