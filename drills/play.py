"""How drills run a method: nine small clients, one compiled program per method and variant, whatever the federation holds."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax  # noqa: E402
import numpy as np  # noqa: E402

from cfljax.engine.assembled import Assembled
from cfljax.engine.program import Settings  # noqa: E402
from cfljax.engine.simulate import Output, simulate  # noqa: E402
from cfljax.local.send import Sending  # noqa: E402
from cfljax.methods import METHODS  # noqa: E402
from cfljax.registry.options import static, traced  # noqa: E402
from cfljax.types import Federation  # noqa: E402
from drills.common import CACHE, FRESH  # noqa: E402
from tests import toy  # noqa: E402
from tests.methods import contract  # noqa: E402
from tests.padding import pad  # noqa: E402

if not os.environ.get(FRESH):
    jax.config.update("jax_compilation_cache_dir", str(CACHE / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
TIMES = ("seconds_setup", "seconds_compile", "seconds_train", "seconds_eval")
CLIENTS, LONGEST, TEST = 9, 24, 10
TABLES: dict[str, dict[str, Any]] = {"cfl_sattler": {"max_clusters": CLIENTS}}
"""Over the options that a method's contract is tested with: ten rounds may need more room than four."""


def play(
    name: str,
    federation: Federation | None = None,
    hypers: tuple[dict[str, float], ...] = ({},),
    seeds: list[int] | None = None,
    rounds: int = 10,
    participants: int | None = None,
    batch: int | str = 5,
    sequential: bool = True,
    table: dict[str, Any] | None = None,
    sending: Sending = Sending(),  # noqa: B008
    **more: Any,
) -> list[Output]:
    """The outputs of a batch. `table`: options of the method over those that its contract is tested with."""
    federation = contract.host_federation() if federation is None else federation
    config = contract.options(name, **(TABLES.get(name, {}) | (table or {})))
    model = contract.model()
    solver = toy.solver(model, epochs=1, batch=batch, sequential=sequential, sending=sending)
    method = METHODS.entry(name).make(static(config), model, solver)
    if participants is None:
        participants = federation.clients if contract.full_participation(name) else 5
    settings = Settings(rounds, participants, evaluations=rounds + 1, sequential=sequential, sending=sending)
    numbers = [{"lr": 0.1} | traced(config) | contract._own_rate(config, h) for h in hypers]
    key = (name, static(config), sequential, batch, rounds, participants, sending)
    seeds = list(range(len(numbers))) if seeds is None else seeds
    return simulate(Assembled(method, model, jax.device_put(federation), settings, program_key=key), seeds, numbers, **more)


def random_federation(rng: np.random.Generator, clients: int = CLIENTS, **changes: Any) -> Federation:
    """Nine places with arrays of fixed shapes, so that all share a program; the first `clients` of them hold real data of
    random sizes. What is not held by anybody is NaN."""
    classes, features = 4, 6
    y = rng.integers(0, classes, 264).astype(np.int32)
    x = (rng.normal(size=(classes, features))[y] + 0.5 * rng.normal(size=(264, features))).astype(np.float32)
    x[260:] = np.nan
    real = np.arange(CLIENTS) < clients
    train = np.where(real, rng.integers(1, LONGEST + 1, CLIENTS), 0).astype(np.int32)
    test = np.where(real, rng.integers(1, TEST + 1, CLIENTS), 0).astype(np.int32)
    base = contract.host_federation()

    def split(old: Any, count: np.ndarray, longest: int) -> Any:
        rows = np.where(np.arange(CLIENTS * longest) < count.sum(), rng.integers(0, 260, CLIENTS * longest), 260).astype(np.int32)
        return dataclasses.replace(old, rows=rows, start=(np.cumsum(count) - count).astype(np.int32), count=count, longest=longest)

    made = dataclasses.replace(
        base,
        pool=base.pool._replace(x=x, y=y),
        train=split(base.train, train, LONGEST),
        test=split(base.test, test, TEST),
        uid=np.where(real, np.arange(CLIENTS), -1).astype(np.int32),
        group=np.where(real, rng.integers(0, 2, CLIENTS), -1).astype(np.int32),
        arrive=np.zeros(CLIENTS, np.int32),
        view=None,
        groups=2,
    )
    return dataclasses.replace(made, **changes)


def spoilt(federation: Federation, samples: int, clients: int, rng: np.random.Generator) -> Federation:
    """Padded with rows that are NaN, and with dummy clients."""
    padded = pad(federation, clients=clients, samples=samples, rng=rng)
    if samples:
        for part, old in (("train", federation.train), ("test", federation.test)):
            split = getattr(padded, part)
            rows, held = np.array(split.rows), np.zeros(len(split.rows), bool)
            for start, count in zip(split.start, split.count, strict=True):
                held[start : start + count] = True
            rows[~held] = len(federation.pool.y) - 1
            room = np.full(CLIENTS * split.longest - len(rows), len(federation.pool.y) - 1, np.int32)
            rows = np.concatenate([rows, room])  # one shape, whatever the clients hold
            padded = dataclasses.replace(padded, **{part: dataclasses.replace(split, rows=rows)})
            assert old.longest + samples == split.longest
    return padded


def fields(output: Output) -> dict[str, np.ndarray]:
    """All arrays of an output by name, timings aside."""
    found = {}
    for name, value in output._asdict().items():
        if name not in TIMES:
            for path, leaf in jax.tree_util.tree_leaves_with_path(value):
                found[name + jax.tree_util.keystr(path)] = np.asarray(leaf)
    return found


def unlike(a: Output, b: Output) -> list[str]:
    """Names of the arrays that are not the same bits."""
    left, right = fields(a), fields(b)
    return [name for name in left if name not in right or left[name].tobytes() != right[name].tobytes()]


def digest(output: Output) -> str:
    """Of all bits."""
    total = hashlib.sha256()
    for name, value in sorted(fields(output).items()):
        total.update(f"{name}{value.dtype}{value.shape}".encode() + value.tobytes())
    return total.hexdigest()
