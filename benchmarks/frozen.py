"""How much faster a frozen body is whose features are computed once (`model.frozen`) than one that every step computes
(`train.freeze`): the same runs, in turns, in one process.

python -m benchmarks.frozen [--rounds 5]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import cfljax

DATA = {"name": "digits", "partition": "iid", "clients": 20}
MODEL = {"name": "cnn", "channels": [16, 32], "kernel": 3, "dense": [64]}


def seconds(model: dict, train: dict, rounds: int) -> float:
    """Seconds of a run that has been compiled before."""
    begin = time.perf_counter()
    cfljax.run("fedavg", data=DATA, model=model, rounds=rounds, eval_every=rounds, epochs=5, batch=10, lr=0.1, **train)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        begun = cfljax.run("fedavg", data=DATA, model=MODEL, rounds=1, lr=0.1)
        model = MODEL | {"weights": str(begun.export(Path(folder) / "begun.safetensors"))}
        ways = {"train.freeze": (model, {"freeze": "body"}), "model.frozen": (model | {"frozen": "body"}, {})}
        best = dict.fromkeys(ways, float("inf"))
        for turn in range(4):
            for name, (of, train) in ways.items():
                took = seconds(of, train, rounds)
                best[name] = min(best[name], took) if turn else best[name]  # the first turn compiles
    for name, took in best.items():
        print(f"{name}: {took:.3f} s for {rounds} rounds")
    print(f"times faster: {best['train.freeze'] / best['model.frozen']:.1f}")


if __name__ == "__main__":
    main()
