"""What a machine is good at, from a short measurement, and what that predicts for each way to train a client."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from cfljax.files import cache_folder, written_whole
from cfljax.local.gram import FEW, first_layer, inner
from cfljax.local.products import BLOCK, WHOLE
from cfljax.local.schedule import Work
from cfljax.local.sizes import LADDER
from cfljax.types import Model

MARGIN = 1.1
"""So many times faster must the Gram form be before it is taken."""
NARROW = 32
"""Products with fewer columns take the time of this many, about."""
CACHE = 1 << 23
"""Bytes of a matrix up to which a core has it near, about."""
REPEAT = 200
"""Steps per timed loop."""


class Speed(NamedTuple):
    """Seconds on this machine."""

    step: float
    """For what a training step costs besides its matrix products (some fifteen small operations)."""
    small: float
    """Per multiplication and addition in the products of a mini-batch."""
    large: float
    """The same in the products of some hundred samples."""
    value: float
    """Per number fetched for a mini-batch: a pixel gathered, made a float and normalised, or one of a Gram matrix."""


class Layer(NamedTuple):
    """The first dense layer of a model."""

    inputs: int
    outputs: int

    @property
    def width(self) -> int:
        """Outputs as products pay for them: narrow ones are done no faster."""
        return max(self.outputs, NARROW)


Made = Literal["beforehand", "in turn", "side by side"]
"""How Gram matrices are made: before the first round, or in it, client by client, or several at once."""


def made(sequential: bool, kept: bool) -> Made:
    """How they are, in a plan."""
    return "beforehand" if kept else "in turn" if sequential else "side by side"


def layer_of(model: Model) -> Layer | None:
    """The first layer where training it on a Gram matrix is exact; else None."""
    first = first_layer(model)
    if first is None:
        return None
    unravel = lambda flat: model.unravel(flat)  # noqa: E731 (a function of its own: JAX keeps what it finds as long as the function)
    leaf: Any = jax.eval_shape(unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32))
    return Layer(*inner(leaf, first.kernel).shape)


TYPICAL = Speed(3e-6, 1.5e-11, 9e-12, 2.3e-10)
"""Roughly a core of a server: what clients are dealt to devices by. A measurement would be another program on each machine."""


def expected(layer: Layer, work: Work, samples: jax.Array, steps: jax.Array, sizes: tuple[int, ...], made: Made) -> jax.Array:
    """f32[S]: seconds on a typical core that each client's steps take, on the Gram matrix for its size or step by step."""
    seconds: Any = by_steps(TYPICAL, layer, work, samples, steps)
    for size in reversed(sizes):
        seconds = jnp.where(samples <= size, by_gram(TYPICAL, layer, work, samples, size, steps, made), seconds)
    return jnp.where(steps > 0, seconds, 0.0)


def by_steps(speed: Speed, layer: Layer, work: Work, samples: Any, steps: Any = None) -> Any:
    """Predicted seconds to train the layer of one client step by step; `steps`: as many, not all that the work asks for."""
    steps = steps_of(work, samples) if steps is None else steps
    if work.batch is None:
        fetched, each = samples * layer.inputs, speed.large
    else:
        fetched, each = steps * work.batch * layer.inputs, speed.small
    products = 2 * (work.batch or samples) * layer.inputs * layer.outputs * each  # a narrow kernel is turned (local/turned.py)
    return fetched * speed.value + steps * (speed.step + products)


def by_gram(speed: Speed, layer: Layer, work: Work, samples: Any, size: int, steps: Any = None, made: Made = "in turn") -> Any:
    """The same on a Gram matrix of `size` rows."""
    steps = steps_of(work, samples) if steps is None else steps
    pairs = samples * (samples + BLOCK) / 2 if made == "in turn" and size > WHOLE else size * size * (made != "beforehand")
    once = layer.inputs * ((pairs + 2 * size * layer.width) * speed.large + size * speed.value)
    if work.batch is None:
        return once + steps * (speed.step + size * size * layer.width * speed.large)
    few = made != "side by side" and max(work.batch, layer.outputs) <= FEW
    near = few and 4 * size * size <= CACHE  # its rows need not be fetched
    each = layer.outputs * speed.small + (0 if near else speed.value)
    return once + steps * (speed.step + work.batch * size * each)


def gram_limit(speed: Speed, layer: Layer, work: Work, longest: int, made: Made = "in turn") -> int:
    """The size up to which clients are trained on their Gram matrix. Clients are taken to fill three quarters of theirs."""
    limit = 0
    for size in (*(rung for rung in LADDER if rung < longest), min(longest, LADDER[-1])):
        samples = max(1, size * 3 // 4)
        if by_gram(speed, layer, work, samples, size, made=made) * MARGIN > by_steps(speed, layer, work, samples):
            break
        limit = size
    return limit if limit < longest else max(limit, next((rung for rung in LADDER if rung >= longest), longest))


def steps_of(work: Work, samples: Any) -> Any:
    """Those of a client of so many samples, or of each of several, that are no stragglers."""
    if work.steps is not None:
        return int(work.steps)
    assert work.epochs is not None
    return work.epochs * (1 if work.batch is None else -(-samples // work.batch))


def measure() -> Speed:
    """A second on the device that JAX computes on."""
    x, w, a = jnp.ones((10, 784)), jnp.ones((784, 128)) / 784, jnp.ones((256, 256)) / 256
    thin = jnp.ones((10, 10))
    small, large = 2 * 10 * 784 * 128, 256**3
    step = _seconds(lambda v: _little(v), thin)
    both = _seconds(lambda v: v - 1e-3 * (x.T @ jnp.tanh(x @ v)), w)
    big = _seconds(lambda v: a @ v, a)
    pool, rows = jnp.ones((4096, 784), jnp.uint8), jnp.arange(10, dtype=jnp.int32) * 401
    fetch = _seconds(lambda at: (at + jnp.sum((pool[at].astype(jnp.float32) - 0.1) * 0.3).astype(jnp.int32)) % 4096, rows)
    return Speed(step, max(both - step / 3, both / 2) / small, big / large, fetch / (10 * 784))


def _little(v: jax.Array) -> jax.Array:
    """About as many small operations as a step of logistic regression has."""
    for _ in range(3):
        row = jax.nn.softmax(v)
        v = v - 0.1 * (row - row.T @ row)
    return v


def _seconds(f: Callable[[jax.Array], jax.Array], v: jax.Array) -> float:
    """Per call of f in a loop on the device; the best of five loops."""
    with jax.default_matmul_precision("highest"):
        loop = jax.jit(lambda v: jax.lax.fori_loop(0, REPEAT, lambda _, v: f(v), v))
        jax.block_until_ready(loop(v))
        best = float("inf")
        for _ in range(5):
            begin = time.perf_counter()
            jax.block_until_ready(loop(v))
            best = min(best, time.perf_counter() - begin)
    return best / REPEAT


_of_this_process: Speed | None = None


def known(keep: Path | None = None) -> Speed:
    """The machine's speed: as set, as kept in the file `keep` by an earlier process, or measured now (and kept)."""
    global _of_this_process
    if _of_this_process is None:
        _of_this_process = (None if keep is None else _read(keep)) or _kept_by_the_first(measure(), keep)
    return _of_this_process


def use(speed: Speed | None) -> None:
    """What `known` says from now on: a sweep goes by one measurement, whatever process works on it."""
    global _of_this_process
    _of_this_process = speed


def kept() -> Path:
    """The file that keeps this machine's speed. Its name tells machines, versions, backends and numbers of threads apart."""
    device = jax.devices()[0]
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    words = f"{platform.node()}-{device.device_kind}-{threads}-{jax.__version__}"
    return cache_folder() / ("speed-" + "".join(c if c.isalnum() else "-" for c in words).lower() + ".json")


def _read(path: Path) -> Speed | None:
    try:
        table: Any = json.loads(path.read_text(encoding="utf-8"))
        speed = Speed(*(float(table[name]) for name in Speed._fields))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return speed if all(0 < value < 1 for value in speed) else None


def _kept_by_the_first(speed: Speed, path: Path | None) -> Speed:
    """The measurement in the file: this one, or that of a process that was faster, so that all go by the same."""
    if path is None:
        return speed
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = _read(path)
        if before is None:
            with written_whole(path) as part:  # of two at once either is as good
                part.write_text(json.dumps(speed._asdict()), encoding="utf-8")
    except OSError:
        return speed  # a read-only home: measured again next time
    return before or speed
