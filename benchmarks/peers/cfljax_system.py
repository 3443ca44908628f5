"""cfljax itself as one of the systems: `simulate`, measured after every repetition."""

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

    from benchmarks.inside import carry_out, use_all_cores
    from benchmarks.shared import flat_names, run_of
    from benchmarks.workloads import WORKLOADS
    from cfljax.store import provenance

    use_all_cores()

    rounds = len(stage.schedule)
    run = run_of(WORKLOADS[given.workload], rounds, given.data, given.plan)

    def progress(done: int, _: Any) -> None:
        """Called when compiled and warm, and after each turn. The engine evaluates after the last
        one."""
        if done == 0:
            stage.ready()
        else:
            stage.end(stage.turn)
        if done < rounds:
            stage.begin()

    parts, (output,) = carry_out([run], chunk_rounds=stage.turn, progress=progress)
    found = provenance()
    stage.finish(
        flat_names(parts.model, output.models),
        compile_s=output.seconds.compile,
        version=f"cfljax {found['versions']['cfljax']}, jax {jax.__version__}",
        git=found["git"],
        plan=parts.plan._asdict(),
        devices=found["device"],
        engine_accuracy=float(output.history["accuracy"][-1]),
    )


if __name__ == "__main__":
    main()
