"""How the cost of a round grows: with clients, participants, parameters, clusters, devices and processes.

    python -m benchmarks.scaling --out DIR                     (about half an hour on two cores)
    python -m benchmarks.scaling --out DIR --axis "clusters"   (one axis; others can follow)
    python -m benchmarks.scaling --out DIR --small             (a minute: whether it works)
    python -m benchmarks.scaling --out DIR --page              (the page again, from DIR/scaling.json)

Each point is a process of its own, so its peak memory is its own; points that are in DIR/scaling.json are not measured again.
Seconds are of processor time, of all threads, devices and processes of a point together: what else the machine does meanwhile then
disturbs little, and N devices that share the work without loss cost what one does. The time on the clock is kept beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BASE: dict[str, Any] = {
    "method": "fedavg", "clients": 1000, "participants": 100, "hidden": 64, "features": 32, "samples": 5, "clusters": 0,
    "devices": 1, "processes": 1, "stream": None, "pool": None,
    "similarity": None,
}  # fmt: skip
"""A point; every axis varies one thing, or two together."""


def points(small: bool = False) -> dict[str, list[dict[str, Any]]]:
    """Axis -> its points."""

    def vary(first: dict[str, Any], **axes: list[Any]) -> list[dict[str, Any]]:
        rows = [dict(zip(axes, values, strict=True)) for values in zip(*axes.values(), strict=True)]
        return [BASE | first | row for row in rows]

    if small:
        return {"clients": vary({}, clients=[100, 1000]), "devices, strong": vary({}, devices=[1, 2])}
    widths = [(4, 112), (64, 142), (400, 247), (1000, 1000), (3000, 3300)]  # (features, hidden): about 1e3 to 1e7 parameters
    many = {"clients": 20_000, "hidden": 256}
    crowded = {"participants": 1000, "samples": 4, "hidden": 512}
    crowd, devices = [10, 100, 1000, 10_000], [1, 2, 4, 8]
    few, compared = [10, 100, 1000], {"method": "ccs_rfedavg", "hidden": 2048}
    everybody = compared | {"method": "cfl_sattler"}
    wide, heavy = {"participants": 10, "clients": 100}, {"hidden": 256, "samples": 20}
    return {
        "clients": vary({"samples": 4, "hidden": 512}, clients=[100, 1000, 10_000, 100_000, 1_000_000]),
        "clients, a thousand take part": vary(crowded, clients=[10_000, 100_000, 1_000_000]),
        "clients, a thousand take part in IFCA": vary(
            crowded | {"method": "ifca", "clusters": 4}, clients=[10_000, 100_000, 1_000_000]
        ),
        "participants": vary(many, participants=crowd),
        "participants, in blocks of 64": vary(many | {"stream": 64}, participants=crowd),
        "participants, IFCA in blocks of 64": vary(many | {"stream": 64, "method": "ifca", "clusters": 4}, participants=crowd),
        "participants, CCS": vary(compared, participants=few),
        "participants, CCS by sketches": vary(compared | {"similarity": "sketch"}, participants=few),
        "participants, Sattler": vary(everybody, participants=few[1:], clients=few[1:]),
        "participants, Sattler by sketches": vary(everybody | {"similarity": "sketch"}, participants=few[1:], clients=few[1:]),
        "samples": vary({"hidden": 256}, samples=[5, 20, 80]),
        "parameters": vary(wide, features=[w[0] for w in widths], hidden=[w[1] for w in widths]),
        "clusters": vary({"method": "ifca", "hidden": 256}, clusters=[2, 4, 8, 16, 32, 64]),
        "devices, strong": vary(heavy | {"participants": 256}, devices=devices),
        "devices, weak": vary(heavy, devices=devices, participants=[64, 128, 256, 512]),
        "devices, strong, each with its clients' samples": vary(
            heavy | {"participants": 256, "pool": "sharded"}, devices=devices[1:]
        ),
        "processes, strong": vary(heavy | {"participants": 256}, processes=[1, 2]),
    }


def rounds_of(point: dict[str, Any]) -> int:
    """So many rounds that a point takes some seconds."""
    operations = 6 * point["participants"] * point["samples"] * parameters(point) * (1 + point["clusters"] / 3)
    return int(min(100, max(4, 1e10 / operations)))


def parameters(point: dict[str, Any], classes: int = 4) -> int:
    """d of the point's model."""
    return int(point["features"] * point["hidden"] + point["hidden"] + point["hidden"] * classes + classes)


def spec_of(point: dict[str, Any]) -> dict[str, Any]:
    """The point as a spec: a sample in five is for testing."""
    rounds = rounds_of(point)
    plan = {name: point[name] for name in ("stream", "pool") if point[name] is not None}
    own = {name: point[name] for name in ("clusters", "similarity") if point[name]}
    method = {"name": point["method"]} | own
    total = -(-point["clients"] * point["samples"] * 5 // 4)
    data = {"name": "blobs", "samples": total, "features": point["features"], "classes": 4, "partition": "iid"}
    train = {"rounds": rounds, "eval_every": rounds, "eval_clients": 100, "batch": 5, "lr": 0.05}
    if plan:
        train["plan"] = plan
    return {
        "name": "scaling",
        "data": data | {"clients": point["clients"]},
        "model": {"name": "mlp", "hidden": [point["hidden"]]},
        "train": train | {"participation": point["participants"]},
        "method": [method],
        "seeds": [0],
    }


def measure(point: dict[str, Any], number: int = 0, port: int = 0) -> dict[str, Any]:
    """Seconds and bytes of a point; in a process that has computed nothing yet."""
    import resource
    import types

    import jax

    from cfljax.config import read_spec
    from cfljax.devices import compiled, distributed, mesh
    from cfljax.devices.cores import use_cores
    from cfljax.devices.machine import this_machine
    from cfljax.engine import clock, simulate
    from cfljax.experiment import assemble
    from cfljax.experiment.batching import batches

    use_cores(point["devices"])
    if point["processes"] > 1:
        distributed.connect(f"localhost:{port}", number, point["processes"])
    machine = this_machine(mesh.Shape(1, point["devices"] * point["processes"]), speed=None)
    begin, rounds = time.process_time(), rounds_of(point)
    batch = batches(read_spec(spec_of(point)).runs(), 1)[0]
    parts = assemble.assemble(batch.first, 1, machine)._replace(program_key="point")
    build = time.process_time() - begin
    simulate.time = compiled.time = clock.time = types.SimpleNamespace(perf_counter=time.process_time)  # type: ignore[assignment]
    told: list[float] = []
    output = simulate.simulate(
        parts, batch.seeds, batch.hypers, chunk_rounds=rounds, progress=lambda *_: told.append(time.perf_counter())
    )[0]  # fmt: skip
    held = compiled._programs.items()  # a program that methods share is named by what was traced, others by a tuple
    programs = [program for (name, *_), program in held if not isinstance(name, tuple) or "rounds" in name[-2:]]
    return point | {
        "rounds": rounds,
        "parameters": parts.model.size,
        "seconds_round": output.seconds.train / rounds,
        "clock_round": (told[-1] - told[0]) / rounds,
        "seconds_eval": output.seconds.eval / 2,
        "seconds_build": build,
        "seconds_compile": output.seconds.compile,
        "program_bytes": int(max(program.memory_analysis().temp_size_in_bytes for program in programs)),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "backend": jax.default_backend(),
    }


def in_processes(point: dict[str, Any]) -> dict[str, Any]:
    """The point, measured by as many new processes as it has."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    words = [sys.executable, "-m", "benchmarks.scaling", "--point", json.dumps(point), "--port", str(port)]
    each = [
        subprocess.Popen([*words, "--number", str(number)], stdout=subprocess.PIPE, text=True, env=os.environ)
        for number in range(point["processes"])
    ]
    told = [process.communicate()[0] for process in each]
    if any(process.returncode for process in each):
        raise SystemExit(f"a point failed: {point}")
    found = [dict(json.loads(words.splitlines()[-1])) for words in told]
    for what in ("seconds_round", "seconds_eval"):
        found[0][what] = sum(one[what] for one in found)
    return found[0]


def all_points(out: Path, small: bool, only: str | None) -> dict[str, Any]:
    """Measure what is missing, keeping each point as it comes."""
    from benchmarks.machine import peaks

    file = out / "scaling.json"
    kept = json.loads(file.read_text()) if file.exists() else {"machine": peaks(seconds=0.3), "load": os.getloadavg(), "points": {}}
    for axis, wanted in points(small).items():
        if only is not None and axis != only:
            continue
        done = kept["points"].setdefault(axis, [])
        for point in wanted[len(done) :]:
            done.append(in_processes(point))
            file.write_text(json.dumps(kept, indent=1))
            print(f"{axis}: {_changing(axis, done)} {done[-1]['seconds_round'] * 1e3:.1f} ms a round", flush=True)
    return dict(kept)


def _changing(axis: str, done: list[dict[str, Any]]) -> str:
    name = axis.partition(",")[0]
    return f"{done[-1][name]:,} {name}"


def main() -> None:
    """The command."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--out", type=Path, default=Path("results/scaling"))
    flags.add_argument("--small", action="store_true")
    flags.add_argument("--axis", choices=list(points()))
    flags.add_argument("--page", action="store_true")
    flags.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    flags.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    flags.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    given = flags.parse_args()
    if given.point:
        print(json.dumps(measure(given.point, given.number, given.port)), flush=True)
        return
    from benchmarks.scaling_page import write_page

    given.out.mkdir(parents=True, exist_ok=True)
    found = json.loads((given.out / "scaling.json").read_text()) if given.page else all_points(given.out, given.small, given.axis)
    found["points"] = {axis: found["points"][axis] for axis in points(given.small) if axis in found["points"]}
    print(write_page(found, given.out))


if __name__ == "__main__":
    main()
