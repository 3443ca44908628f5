"""What all systems of a comparison share, written once as an .npz: the clients' samples, who takes
part in which round, and the first models. cfljax itself makes the partition, the draws and the
models."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import Workload

SHAPES = {"mnist": (28, 28), "cifar10": (32, 32, 3)}
SIZES = {"mnist": (60_000, 10_000), "cifar10": (50_000, 10_000)}


def data_folder(workload: Workload, folder: Path) -> tuple[Path | None, str]:
    """(where the workload's data set is, in words what it is): the file in $CFLJAX_DATA, or a
    stand-in written to `folder`."""
    name = workload.data["name"]
    if name not in SHAPES:
        return None, f"{name}, made by cfljax"
    real = os.environ.get("CFLJAX_DATA")
    if real and (Path(real) / f"{name}.npz").is_file():
        return Path(real), f"{name}, real"
    target = folder / "data"
    target.mkdir(exist_ok=True)
    if not (target / f"{name}.npz").is_file():
        np.savez(target / f"{name}.npz", **stand_in(name))
    return (
        target,
        f"a synthetic stand-in of {name}'s shapes (seed 0): no {name}.npz in $CFLJAX_DATA",
    )


def stand_in(name: str) -> dict[str, np.ndarray]:
    """Images of the data set's shapes: one smooth pattern per class under noise, so that there is
    something to learn."""
    rng = np.random.default_rng(0)
    shape, made = SHAPES[name], {}
    coarse = rng.uniform(0, 255, (10, shape[0] // 4, shape[1] // 4, *shape[2:]))
    patterns = coarse.repeat(4, axis=1).repeat(4, axis=2)
    for part, count in zip(("train", "test"), SIZES[name], strict=True):
        y = rng.integers(0, 10, count)
        x = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        np.copyto(x, (0.35 * patterns[y] + 0.65 * x).astype(np.uint8))
        made |= {f"x_{part}": x, f"y_{part}": y.astype(np.int32)}
    return made


def run_of(workload: Workload, rounds: int, data: Path | None, plan: Any = None) -> Any:
    """The workload as a cfljax run."""
    from cfljax.config import read_spec

    return read_spec(workload.spec(rounds, data, plan)).runs()[0]


def contents(
    workload: Workload, rounds: int, data: Path | None, turn: int = 1
) -> dict[str, np.ndarray]:
    """The arrays of the shared file. `x[start[c] : start[c] + count[c]]` are client c's samples,
    seen as `(x - mean) * scale`; `schedule[t]` are the participants of round t; `init/...` are the
    first models, [K, ...] each; systems take turns of `turn` rounds."""
    from cfljax.devices.machine import describe_machine
    from cfljax.experiment import assemble
    from cfljax.experiment.batching import list_hyper

    run = run_of(workload, rounds, data)
    parts = assemble.assemble(run, 1, describe_machine())
    host = assemble.host_federation(run)
    schedule, models = drawn(parts, run.seed, list_hyper(run), rounds)
    x, y = _samples(host)
    arrays = {
        "x": x,
        "y": y,
        "start": np.asarray(host.train.start),
        "count": np.asarray(host.train.count),
        "mean": np.asarray(host.pool.mean),
        "scale": np.asarray(host.pool.scale),
        "schedule": schedule,
    }
    arrays |= {f"init/{name}": value for name, value in flat_names(parts.model, models).items()}
    words = {
        "model": workload.model["name"],
        "method": workload.method["name"],
        "image": x.shape[1:],
        "turn": turn,
    }
    return arrays | {"settings": np.array(json.dumps(workload.train | words))}


def flat_names(model: Any, models: Any) -> dict[str, np.ndarray]:
    """Models f32[K, d] as arrays [K, ...] under their parameters' names, "dense_0/kernel"."""
    import jax

    params = jax.device_get(jax.vmap(model.unravel)(models))
    return {
        "/".join(step.key for step in path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
    }


def flat_models(model: Any, named: dict[str, np.ndarray]) -> Any:
    """The reverse: f32[K, d]."""
    import jax

    shapes = jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), np.float32))
    paths, tree = jax.tree_util.tree_flatten_with_path(shapes)
    leaves = [named["/".join(step.key for step in path)] for path, _ in paths]
    return jax.vmap(model.ravel)(jax.tree.unflatten(tree, leaves))


def drawn(parts: Any, seed: int, hyper: dict[str, float], rounds: int) -> tuple[np.ndarray, Any]:
    """(i32[rounds, S], f32[K, d]): the participants that the engine will draw, and the models that
    the method starts from."""
    import jax
    import jax.numpy as jnp

    from cfljax import keys
    from cfljax.federation import cohort

    key, federation, count = keys.root(seed), parts.federation, parts.settings.participants
    numbers = {name: jnp.float32(value) for name, value in hyper.items()}

    @jax.jit
    def draw(t: jax.Array) -> Any:
        return cohort.draw(keys.fold(key, "round", t), federation, count, t, numbers).ids

    schedule = np.stack([np.asarray(draw(jnp.int32(t))) for t in range(rounds)])
    return schedule, parts.method.models(parts.method.init(key, federation, numbers, {}))[0]


def _samples(federation: Any) -> tuple[np.ndarray, np.ndarray]:
    """All training samples, client after client, as their owners see them."""
    train, view = federation.train, federation.view
    order = np.concatenate(
        [np.arange(s, s + n) for s, n in zip(train.start, train.count, strict=True)]
    )
    rows = np.asarray(train.rows)[order]
    x, y = federation.pool.x[rows], federation.pool.y[rows]
    if view is not None:
        of = np.repeat(np.asarray(view.of), train.count)
        for v in range(len(view.pixels)):
            mine = of == v
            flat = x[mine].reshape(int(mine.sum()), -1)
            turned = np.where(view.pixels[v] < 0, 0, flat[:, view.pixels[v]])
            x[mine] = turned.reshape(-1, *x.shape[1:])
    start = np.cumsum(train.count) - train.count
    if not np.array_equal(start, train.start):
        raise ValueError("the clients do not lie one after another")
    return x, y
