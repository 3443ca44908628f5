"""Processor time of a local step of CNNs on one core, of this version and an earlier one by turns.

    python -m benchmarks.steps --against a00cba6a --json FILE

Each version is a process pinned to the same core, so that a busy machine costs both the same; the
least of several repetitions counts. FILE is a list of {workload, system, median_s, min_s, max_s,
compile_s, …}: seconds of a step, and of processor time to compile the program.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.markdown import markdown
from benchmarks.measure import timed, write_rows

ROOT = Path(__file__).parents[1]
W3: dict[str, Any] = {"channels": [32, 64], "kernel": 3, "dense": [128]}
# Name -> (model, options, image, batch)
MODELS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], int]] = {
    "W3": ("cnn", W3, (32, 32, 3), 50),
    "W5": ("resnet20", {}, (32, 32, 3), 50),
    "5x5": ("cnn", {"channels": [32, 64], "kernel": 5, "dense": [512]}, (28, 28, 1), 10),
    "narrow": (
        "cnn",
        {"channels": [10, 20], "kernel": 5, "dense": [50], "padding": "valid"},
        (28, 28, 1),
        10,
    ),
}
STEPS = 5
SIDE_BY_SIDE = 4
KINDS = {
    "step": "a step of one client",
    "models": f"a step of {SIDE_BY_SIDE} models side by side on one batch",
    "losses": f"losses of {SIDE_BY_SIDE} models side by side on one batch",
}


def make_program(model: str, kind: str) -> Callable[[], Any]:
    """Compile STEPS steps of a kind (`KINDS`) of a model, and return the program with its data."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from cfljax.models import build

    name, options, image, batch = MODELS[model]
    network = build(name, options, image, 10)
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(STEPS, batch, *image)).astype(np.float32)
    ys = rng.integers(10, size=(STEPS, batch)).astype(np.int32)
    flat = 0.05 * rng.normal(size=network.size).astype(np.float32)

    def objective(params: Any, x: Any, y: Any) -> Any:
        return jnp.mean(network.loss(network.forward(params, x), y))

    def step(params: Any, samples: Any) -> Any:
        grads = jax.grad(objective)(params, *samples)
        return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), None

    def train(flat: Any) -> Any:
        return network.ravel(jax.lax.scan(step, network.unravel(flat), (xs, ys))[0])

    def losses(flat: Any) -> Any:
        params = network.unravel(flat)
        return jax.lax.map(lambda samples: objective(params, *samples), (xs, ys))

    one = losses if kind == "losses" else train
    given = flat if kind == "step" else np.stack([flat] * SIDE_BY_SIDE)
    program = jax.jit(one if kind == "step" else jax.vmap(one)).lower(given).compile()
    return lambda: jax.block_until_ready(program(given))


def serve(core: int) -> None:
    """Answer each line "MODEL KIND" with the processor seconds: to compile at first, then of a
    step."""
    os.sched_setaffinity(0, {core})
    programs: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        begin = time.process_time()
        if line in programs:
            programs[line]()
            seconds = (time.process_time() - begin) / STEPS
        else:
            programs[line] = make_program(*line.split())
            seconds = time.process_time() - begin
            programs[line]()
        print(json.dumps(seconds), flush=True)


def start(package: Path, core: int) -> subprocess.Popen[str]:
    """Start a process that serves the package of this folder."""
    chosen = {"PYTHONPATH": f"{package}{os.pathsep}{ROOT}", "JAX_PLATFORMS": "cpu"}
    # Programs are compiled anew, whose time is measured
    kept = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    return subprocess.Popen(
        [sys.executable, str(Path(__file__)), "--serve", str(core)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=kept | chosen,
    )


def ask(process: subprocess.Popen[str], model: str, kind: str) -> float:
    """Return the seconds that a process answers."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{model} {kind}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        sys.exit(f"benchmarks.steps: a process ended while it measured {model}, {kind}")
    return float(json.loads(answer))


def measure(
    systems: dict[str, subprocess.Popen[str]], given: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return a row for each model, kind and version."""
    rows = []
    for model in given.models:
        for kind in given.kinds:
            compiled = {name: ask(process, model, kind) for name, process in systems.items()}
            found: dict[str, list[float]] = {name: [] for name in systems}
            for turn in range(given.repeat):
                for name in list(systems)[:: 1 if turn % 2 == 0 else -1]:
                    found[name].append(ask(systems[name], model, kind))
            about = {"what": KINDS[kind], "model": MODELS[model][:2], "batch": MODELS[model][3]}
            rows += [
                timed(
                    f"{model}, {kind}",
                    name,
                    seconds,
                    about | machine.describe(),
                    compile_s=compiled[name],
                )
                for name, seconds in found.items()
            ]
            write_rows(rows, given.json)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the least times, and this version's as a share of the other's, in Markdown."""
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return markdown(
        ("milliseconds", rows[0]["system"], rows[1]["system"], "ratio", "compile, s"),
        [
            (
                this["workload"],
                f"{1e3 * this['min_s']:.2f}",
                f"{1e3 * other['min_s']:.2f}",
                f"{this['min_s'] / other['min_s']:.2f}",
                f"{this['compile_s']:.1f}, {other['compile_s']:.1f}",
            )
            for this, other in pairs
        ],
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="the version to compare with")
    parser.add_argument("--models", default="W3,5x5,narrow", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--kinds", default="step", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--repeat", type=int, default=9, help="repetitions (%(default)s)")
    parser.add_argument("--core", type=int, default=0, help="the core (%(default)s)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=int, metavar="CORE", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve is not None:
        serve(given.serve)
        return 0
    if given.against is None:
        parser.error("--against COMMIT is missing")
    for flag, known in (("models", MODELS), ("kinds", KINDS)):
        setattr(given, flag, getattr(given, flag).split(","))
        for name in getattr(given, flag):
            if name not in known:
                parser.error(f'--{flag} "{name}": unknown; known: {", ".join(known)}')
    with tempfile.TemporaryDirectory(prefix="cfljax-steps-") as folder:
        other = Path(folder, "other")
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", ROOT, other], check=True)
        subprocess.run(["git", "-C", other, "checkout", "--quiet", given.against], check=True)
        packages = {"this": ROOT, given.against: other}
        systems = {name: start(package, given.core) for name, package in packages.items()}
        rows = measure(systems, given)
        for process in systems.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
