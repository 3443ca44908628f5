"""The pieces of `benchmarks.accelerator`, each in a process of its own: a TPU belongs to one process, a device's peak memory is
that of a process, and a piece whose program does not compile, or that breaks its process, takes no other with it.

    python -m benchmarks.pieces PIECE GIVEN OUT       # GIVEN: JSON; as `benchmarks.accelerator` starts it

OUT gets a list of rows, of the piece "peaks" the measured machine, or {"reason": a line} where the piece has failed.
"""

from __future__ import annotations

import functools
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.foretold import foretold, ratio_foretold
from benchmarks.inside import carry_out, machine, peak_rss_mib, schedule, time_rounds
from benchmarks.judge import work
from benchmarks.machine import best, describe
from benchmarks.measure import row, timed
from benchmarks.shared import data_folder, flat_names
from benchmarks.two_ways import AGREEMENTS, agreement, ways, with_plan
from benchmarks.workloads import WORKLOADS, Workload

Row = dict[str, Any]


class Size(NamedTuple):
    """How much is done."""

    workloads: tuple[str, ...]
    rounds: int
    seeds: int
    rates: int
    sweep: str
    """The workload whose data and method the sweep has."""
    matrix: int
    copied: int

    @property
    def sweep_row(self) -> str:
        """The sweep's name in its row."""
        return f"{WORKLOADS[self.sweep].method['name']}-{self.seeds}-seeds-{self.rates}-rates"


FULL = Size(("W1", "W2", "W3", "W4"), 12, 32, 8, "W4", 8192, 1 << 28)
TINY = Size(("toy",), 2, 2, 2, "toy", 256, 1 << 16)


class Given(NamedTuple):
    """What a piece is given."""

    tiny: bool
    kernel: str
    """Of a workload: its `train.plan.kernel`."""
    folder: str
    """Where stand-ins of data sets are kept."""
    peak: Row
    """The measured machine; empty for the piece "peaks"."""

    @property
    def size(self) -> Size:
        """The sizes."""
        return TINY if self.tiny else FULL


def peaks(given: Given) -> Row:
    """Matrix products in float32 (no TF32), in TF32 or whatever "default" is, and in bfloat16; and copying, on the device."""
    import jax
    import jax.numpy as jnp

    size = given.size
    key = jax.random.key(0)
    a, b = (jax.random.normal(jax.random.fold_in(key, i), (size.matrix,) * 2) for i in range(2))
    found: Row = {}
    for name, precision, dtype in (
        ("flops", "highest", jnp.float32), ("default_flops", "default", jnp.float32), ("bfloat16_flops", "default", jnp.bfloat16)
    ):  # fmt: skip
        with jax.default_matmul_precision(precision):
            product = jax.jit(jnp.matmul)
            x, y = a.astype(dtype), b.astype(dtype)
            found[name] = 2 * size.matrix**3 / best(lambda: product(x, y).block_until_ready())  # noqa: B023
    z = jnp.zeros(size.copied, jnp.float32)
    add = jax.jit(lambda v: v + 1)
    found["copy_bytes_per_s"] = 2 * z.nbytes / best(lambda: add(z).block_until_ready())
    device = jax.devices()[0]
    return found | describe() | {"kind": device.device_kind, "platform": device.platform, "devices": len(jax.devices())}


def operations_of(workload: Workload, place: Path | None, rounds: int) -> list[float]:
    """Real operations of each round."""
    from cfljax.config import read_spec
    from cfljax.experiment import assemble

    table = workload.spec(rounds, place)
    run = read_spec(table).runs()[0]
    federation = assemble.host_federation(run)
    model = assemble.model_of(run, federation)
    clusters = workload.method.get("clusters", 1)
    named = flat_names(model, np.zeros((clusters, model.size), np.float32))
    settings = workload.train | {"image": federation.pool.x.shape[1:]}
    arrays: dict[str, Any] = {f"init/{name}": value for name, value in named.items()}
    arrays |= {"schedule": schedule(table, rounds), "count": np.asarray(federation.train.count), "settings": json.dumps(settings)}
    return [one["operations"] for one in work(arrays, workload.method["name"] == "ifca")]


def measure(name: str, given: Given) -> list[Row]:
    """A workload's row and its floor."""
    workload, size, peak = WORKLOADS[name], given.size, given.peak
    place, words = data_folder(workload, Path(given.folder))
    table = workload.spec(size.rounds + 2, place)
    there = ways(table)
    way = there.auto if given.kernel == "auto" else given.kernel
    if way == "pallas" and there.form is None:
        raise ValueError(f"there is no such kernel: {there.why}")
    table = with_plan(table, kernel=way)
    found = time_rounds(table)
    memory, in_a_row = _memory(), steps_in_a_row(table, size.rounds)
    real = operations_of(workload, place, size.rounds + 2)[1:-1]
    used = float(np.median([o / s for o, s in zip(real, found.seconds, strict=True)])) / peak["flops"]
    about = {
        "data": words, "machine": peak, "share_of_peak": used, "kernel": way, "auto": there.auto, "other": there.other,
        "why": there.why, "form": there.form if way == "pallas" else None, "chunk_s": _in_a_chunk(table, size.rounds),
        "steps_in_a_row": in_a_row, "predicted_s": foretold(name, peak, way, in_a_row), "predicted_steps_s": there.steps_s,
        "foreseen_mib": _foreseen(table),
        "programs_from_cache": from_cache["hits"], **memory,
    }  # fmt: skip
    figures = {
        "compile_s": found.output.seconds.compile, "peak_rss_mib": peak_rss_mib(),
        "accuracy": float(found.output.history["accuracy"][-1]),
    }  # fmt: skip
    floor = timed(name, "floor", [o / peak["flops"] for o in real], {"machine": peak})
    system = "cfljax" if given.kernel == "auto" else f"cfljax-{way}"
    return [timed(name, system, found.seconds, about, **figures), floor]


def steps_in_a_row(table: dict[str, Any], rounds: int) -> float:
    """Local steps that the device does one after another in a round, on average."""
    from cfljax.config import read_spec
    from cfljax.experiment import assemble
    from cfljax.experiment.execution import choose
    from cfljax.local.lanes import packed
    from cfljax.local.predict import steps_of

    run = read_spec(table).runs()[0]
    federation = assemble.host_federation(run)
    choice = choose(run, assemble.model_of(run, federation), federation, machine())
    each = [steps_of(choice.work, np.asarray(federation.train.count)[clients]) for clients in schedule(table, rounds)]
    each = [np.sort(np.broadcast_to(steps, choice.participants))[::-1] for steps in each]
    return float(np.mean([packed(steps, choice.plan.lanes, choice.plan.stream).in_a_row for steps in each]))


def _in_a_chunk(table: dict[str, Any], rounds: int) -> float:
    """Seconds per round, on average, of the first `rounds` rounds as one chunk: the host fetches once, after them."""
    from cfljax.config import read_spec

    at: dict[int, float] = {}
    runs = read_spec(table).runs()
    carry_out(runs, chunk_rounds=rounds, progress=lambda done, _: at.setdefault(done, time.perf_counter()))
    return (at[rounds] - at[0]) / rounds


def _foreseen(table: dict[str, Any]) -> float | None:
    """What `--dry-run` says that the run takes of the device's memory; None on a CPU, of which it says nothing."""
    from cfljax.config import read_spec
    from cfljax.experiment import assemble, needs
    from cfljax.experiment.batching import batches

    here = machine()
    if here.sequential:
        return None
    (batch,) = batches(read_spec(table).runs(), 1)
    federation = assemble.host_federation(batch.first)
    return needs.bytes_of(batch, federation, assemble.model_of(batch.first, federation), here) / 2**20


def _memory() -> Row:
    """The device's peak memory until now, where it tells: of this piece alone, which has its own process."""
    import jax

    stats = jax.devices()[0].memory_stats() or {}
    return {"device_peak_mib": stats["peak_bytes_in_use"] / 2**20} if "peak_bytes_in_use" in stats else {}


class Spent(NamedTuple):
    """What batches took."""

    seconds: float
    """Training and evaluations."""
    compiling: float
    halved: int
    """Batches that did not fit and were cut into halves."""


def sweep(given: Given) -> list[Row]:
    """Seeds x learning rates side by side against one run alone: seconds per round of all of them, the evaluations included.
    Training alone is known by difference only, which is noise in a run of milliseconds."""
    from cfljax.config import read_spec
    from cfljax.experiment.batching import batches
    from cfljax.launch.plan_file import batch_limit

    size, peak = given.size, given.peak
    workload = WORKLOADS[size.sweep]
    place, words = data_folder(workload, Path(given.folder))
    table = workload.spec(size.rounds, place)
    table["train"]["lr"] = [round(float(lr), 4) for lr in np.geomspace(0.02, 0.2, size.rates)]
    table["seeds"] = list(range(size.seeds))
    runs = read_spec(table).runs()
    alone = spent(batches(runs[:1], 1)[0]).seconds / size.rounds
    made = batches(runs, functools.partial(batch_limit, machine=machine()))
    each = [spent(batch) for batch in made]
    seconds = sum(one.seconds for one in each) / size.rounds
    about = {
        "machine": peak, "data": words, "runs": len(runs), "side_by_side": made[0].width, "batches": len(made),
        "halved": sum(one.halved for one in each), "one_run_s": alone, "ratio": seconds / alone,
        "predicted_ratio": ratio_foretold(peak, size.rounds) if size == FULL else None, **_memory(),
    }  # fmt: skip
    compiled = sum(one.compiling for one in each)
    return [row(size.sweep_row, "cfljax", about, median_s=seconds, min_s=seconds, max_s=seconds, compile_s=compiled)]


def spent(batch: Any) -> Spent:
    """What the batch takes in its own program, padding included; cut into halves where it does not fit, as a sweep does it."""
    from cfljax.engine.simulate import simulate
    from cfljax.experiment.batching import halves
    from cfljax.launch.batch import assembled

    try:
        outputs = simulate(assembled(batch, machine()), batch.seeds, batch.hypers)
    except Exception as error:
        if batch.width == 1 or ("RESOURCE_EXHAUSTED" not in str(error) and not isinstance(error, MemoryError)):
            raise
        outputs = None  # outside of this clause, which holds the arrays of what has failed
    if outputs is None:
        parts = [spent(half) for half in halves(batch)]
        return Spent(sum(p.seconds for p in parts), sum(p.compiling for p in parts), 1 + sum(p.halved for p in parts))
    return Spent(sum(o.seconds.train + o.seconds.eval for o in outputs), sum(o.seconds.compile for o in outputs), 0)


from_cache = {"hits": 0}
"""Programs that this process has found compiled by an earlier one: then `compile_s` is the time of reading them."""


def count_hits() -> None:
    """From here on."""
    import jax

    def count(event: str, **_: Any) -> None:
        from_cache["hits"] += event.endswith("/cache_hits")

    jax.monitoring.register_event_listener(count)


def piece(name: str, given: Given) -> Any:
    """What the piece is: rows, or of "peaks" the machine."""
    import jax

    if given.peak and (here := jax.devices()[0].device_kind) != given.peak["kind"]:
        raise RuntimeError(f"JAX computes on {here} in this process, not on {given.peak['kind']}: has another process the device?")
    if name in AGREEMENTS:
        return [agreement(name, given.peak)]
    return peaks(given) if name == "peaks" else sweep(given) if name == "sweep" else measure(name, given)


def main(arguments: list[str]) -> int:
    """Carry out one piece."""
    from cfljax.files import use_compilation_cache

    name, given, out = arguments[0], Given(**json.loads(arguments[1])), Path(arguments[2])
    try:
        use_compilation_cache()
        count_hits()
        found = piece(name, given)
    except Exception as error:  # of many kinds: XLA's, Mosaic's, JAX's
        traceback.print_exception(error)
        found = {"reason": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
    out.write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
