"""Seconds of a training step at batch 50 of today's models, beside PyTorch: both on all cores, in turns, in one run.

    python -m benchmarks.models --models resnet20,mobilenet_v2,transformer --turns 5 --json FILE

cfljax trains clients of 250 samples as in a round of FedAvg, one on each core at a time; PyTorch does steps one after another, with
all cores in each. `--conv native` forces a form of convolution.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.inside import use_all_cores
from benchmarks.setup_peers import cache_folder, ensure

MODELS = ("resnet20", "mobilenet_v2", "transformer")
BATCH, SAMPLES = 50, 250
"""Samples of a step, and of a client."""


def register(clients: int = 4) -> None:
    """Random images and random texts for this number of clients as data sources."""
    import cfljax

    def made(x: Any, classes: int, rng: Any) -> dict[str, Any]:
        return {"x_train": x, "y_train": rng.integers(classes, size=len(x)), "x_test": x[:classes], "y_test": range(classes)}

    @cfljax.register_data("random_images")
    def images(options: Any, rng: Any) -> dict[str, Any]:  # noqa: ARG001
        return made(rng.normal(size=(clients * SAMPLES, 32, 32, 3)).astype("float32"), 10, rng)

    @cfljax.register_data("random_texts")
    def texts(options: Any, rng: Any) -> dict[str, Any]:  # noqa: ARG001
        return made(rng.integers(80, size=(clients * SAMPLES, 80)).astype("float32"), 80, rng)


def spec(name: str, rounds: int, clients: int, conv: str | None) -> dict[str, Any]:
    """A run of a few equal clients that evaluates at its end alone."""
    source = "random_texts" if name == "transformer" else "random_images"
    data = {"name": source, "partition": "iid", "clients": clients, "samples_per_client": SAMPLES, "normalise": "none"}
    model = {"name": name} | ({} if conv is None or name == "transformer" else {"conv": conv})
    train = {"rounds": rounds, "eval_every": rounds, "epochs": 1, "batch": BATCH, "lr": 0.01}
    return {"data": data, "model": model, "method": ["fedavg"], "train": train, "seeds": [0]}


class Torch:
    """PyTorch in a process of its own, which waits for its turns."""

    def __init__(self, python: Path, name: str, steps: int) -> None:
        program = Path(__file__).parent / "peers" / "torch_steps.py"
        command = [str(python), str(program), name, str(steps)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = json.loads(self.process.stdout.readline())["ready"]

    def turn(self) -> float:
        """Seconds of a step."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline())["seconds"])

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def measure(name: str, turns: int, python: Path, conv: str | None) -> dict[str, Any]:
    """Medians of both systems' steps, taken by turns."""
    from benchmarks.inside import carry_out
    from benchmarks.machine import cores
    from cfljax.config import read_spec

    clients = 2 * cores()
    steps = clients * SAMPLES // BATCH
    theirs, torch_steps, own_steps, begun = Torch(python, name, steps), [], [], [0.0]

    def progress(done: int, _: Any) -> None:
        import time

        now = time.perf_counter()
        if done > 1:  # the first round is warming up
            own_steps.append((now - begun[0]) / steps)
        if done:
            torch_steps.append(theirs.turn())
        begun[0] = time.perf_counter()

    try:
        carry_out(read_spec(spec(name, turns + 2, clients, conv)).runs(), chunk_rounds=1, progress=progress)
    finally:
        theirs.close()
    ours, other = statistics.median(own_steps[:-1]), statistics.median(torch_steps[1:-1])  # the last round evaluates
    row = {"model": name, "conv": conv or "auto", "batch": BATCH, "cfljax_ms": 1e3 * ours, "torch_ms": 1e3 * other}
    return row | {"times": other / ours, "turns": len(own_steps) - 1, "about": theirs.version}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--turns", type=int, default=5, help="turns that are timed (%(default)s)")
    parser.add_argument("--conv", choices=("patches", "native", "windows"), help="force a form of convolution")
    parser.add_argument(
        "--python", type=Path, help="an interpreter that has torch; default: the peer's environment, made if need be"
    )
    parser.add_argument("--json", type=Path, help="where the rows go")
    given = parser.parse_args(arguments)
    for name in given.models:
        if name not in MODELS:
            parser.error(f'"{name}": unknown model; known: {", ".join(MODELS)}')
    if given.turns < 1:
        parser.error(f"--turns {given.turns}: must be at least 1")
    use_all_cores()
    from benchmarks.machine import cores

    register(2 * cores())
    python, rows = given.python or ensure("torch", cache_folder()), []
    for name in given.models:
        rows.append(row := measure(name, given.turns, python, given.conv))
        print(
            f"{name} ({row['conv']}): {row['cfljax_ms']:.1f} ms a step, PyTorch {row['torch_ms']:.1f}: {row['times']:.2f} times",
            flush=True,
        )
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
