"""Predict with the kept models of a run, in its own model and federation, which are made again from
the record."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfljax.errors import SpecError, StoreError
from cfljax.lazy import jax, jnp
from cfljax.registry.options import Table

if TYPE_CHECKING:
    from cfljax.config import Run
    from cfljax.types import Array, Federation, Model, Tree

# The most samples that pass through the network at once, which bounds the memory
SAMPLES_AT_A_TIME = 1024


class RebuiltRun(NamedTuple):
    """A run's model and federation, made again from its record."""

    run: Run
    model: Model
    federation: Federation
    # Whether clients that never train choose a model (see `Method.chooses`)
    chooses: bool
    # Whether clients mix several models (see `Method.mixture`)
    mixes: bool
    # Whether each client is scored with a model that it makes of the kept one (see `Method.adapt`)
    adapts: bool


def read_run(record: Table) -> Run:
    """Read the run of a record; raise a SpecError if its options mean something else today (data
    files, plug-ins, another version).

    The plug-ins that the record names are not executed, since anybody may have written it: the run
    uses what is registered in this process."""
    from cfljax.config import read_spec
    from cfljax.registry.gone import without_gone

    written = without_gone(record["config"])
    config = {key: table for key, table in written.items() if key != "plugins"}
    advice = _advise_on_plugins(record)
    try:
        run = read_spec(config).runs()[0]
    except SpecError as error:
        raise SpecError(f"{error}; {advice}" if advice else str(error)) from None
    if run.id != record["id"]:
        why = "its data files or plug-ins have changed, or another version of cfljax computed it"
        line = f"run {record['id']}: cannot be rebuilt: {why} (now it would be {run.id})"
        raise SpecError(f"{line}; {advice}" if advice else line)
    return run


def _advise_on_plugins(record: Table) -> str:
    """Return how to allow the plug-ins of a record that this process has not loaded; "" if it needs
    none."""
    from cfljax.config.plugins import list_loaded

    # A record may have been moved, so that the folder of a file says nothing.
    loaded = {Path(name).name for name in list_loaded()}
    named = [str(name) for name in record["config"].get("plugins", [])]
    missing = [name for name in named if Path(name).name not in loaded]
    if not missing:
        return ""
    names = ", ".join("".join(c for c in name if c.isprintable()) for name in missing)
    return (
        f"the plug-in {names} of this results folder was not executed: a folder may name any "
        "program. If you trust it, give --plugin FILE.py (Python: cfljax.load(folder, "
        'plugins=["FILE.py"]))'
    )


def read_run_alone(record: Table) -> Run:
    """Read the run of a record with its own data alone, without room for larger ones."""
    run = read_run(record)
    return dataclasses.replace(run, train=dataclasses.replace(run.train, plan=None))


def rebuild_run(record: Table) -> RebuiltRun:
    """Make the model and the federation of a run from its record."""
    from cfljax.devices.machine import describe_machine
    from cfljax.experiment.assemble import assemble, federation_of, model_of

    run = read_run_alone(record)
    parts = assemble(run, 1, describe_machine())
    last = int(record["summary"].get("rounds") or run.train.rounds)
    federation = federation_of(run)
    method = parts.method
    facts = method.chooses, method.mixture is not None, method.adapt is not None
    return RebuiltRun(run, model_of(run, federation), federation.at(last), *facts)


def model_of(record: Table) -> Model:
    """Make the model of a run from its record."""
    from cfljax.experiment import assemble

    run = read_run(record)
    return assemble.model_of(run, assemble.host_federation(run))


def params_of(model: Model, flat: np.ndarray) -> Tree:
    """Return the parameters f32[d] as the tree of the whole network."""
    params = model.unravel(jax.numpy.asarray(flat))
    return jax.tree.map(np.array, params if model.whole is None else model.whole(params))


def check_client(scene: RebuiltRun, client: int) -> int:
    """Return the position of a client; raise a SpecError if the federation does not have it."""
    clients = int(np.asarray(scene.federation.real).sum())
    if not 0 <= client < clients:
        raise SpecError(f"client = {client}: the federation has clients 0 to {clients - 1}")
    return int(client)


def cluster_of(scene: RebuiltRun, client: int, models: np.ndarray, labels: np.ndarray) -> int:
    """Return the model that a client is scored with at the end; raise a SpecError if the record
    does not tell it. `models` f32[K, d], `labels` i32[C]."""
    if scene.mixes:
        raise SpecError(
            f"{scene.run.method}: its clients mix several models, and records have no "
            "mixtures; give cluster = 0 or another"
        )
    cluster = int(clusters_of(scene, models, labels)[client])
    if cluster < 0:
        raise SpecError(
            f"client = {client}: belonged to no cluster at the end; give cluster = 0 (up to "
            f"{len(models) - 1})"
        )
    return cluster


def clusters_of(scene: RebuiltRun, models: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the model of each client at the end, i32[C], −1 for none; if clients mix models, the
    one with the largest weight. Clients that never train choose as in the run. `models` f32[K, d],
    `labels` i32[C]."""
    if scene.adapts:
        raise SpecError(
            f"{scene.run.method}: each client is scored with a model that it adapts from the "
            "global one, "
            "and records have the global one only; give cluster = 0"
        )
    found = labels[: int(np.asarray(scene.federation.real).sum())]
    if len(models) == 1:
        return np.zeros_like(found)
    untrained = np.asarray(scene.federation.train.count)[: len(found)] == 0
    if scene.chooses and untrained.any():
        return np.where(untrained, _choose_models(scene, models, labels)[: len(found)], found)
    return found


def _choose_models(scene: RebuiltRun, models: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Choose among the models in use by the loss on the test samples by which clients that never
    train choose, i32[C]."""
    import dataclasses

    from cfljax.engine.scoring import least_loss_among

    federation = scene.federation
    untrained = scene.federation.real & (scene.federation.train.count == 0)
    test = federation.test
    seen = (
        test
        if scene.run.train.test_clients_choose == "test_loss"
        else dataclasses.replace(test, count=(test.count + 1) // 2)
    )
    in_use = (
        jnp.zeros(len(models), bool)
        .at[np.where(labels >= 0, labels, len(models))]
        .set(True, mode="drop")
    )
    candidates = in_use | ~jnp.any(in_use)
    least = jax.jit(functools.partial(least_loss_among, scene.model))
    return np.asarray(least(federation, seen, jnp.asarray(models), candidates, untrained))


def test_samples(scene: RebuiltRun, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (x f32[n, ...], y i32[n]): the test samples that a client is scored on, as its model
    sees them."""
    test = scene.federation.test
    train = scene.federation.train
    count = int(np.asarray(test.count)[client])
    untrained = not int(np.asarray(train.count)[client])
    first = (
        (count + 1) // 2 if untrained and scene.run.train.test_clients_choose == "holdout" else 0
    )
    return _take_samples(scene, client, np.arange(first, count))


def _take_samples(
    scene: RebuiltRun, client: int, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Take the test samples at these positions of a client's list, by a program that takes as many
    as any client has."""
    number = len(positions)
    test = scene.federation.test
    where = np.resize(positions.astype(np.int32), max(number, test.longest))
    x, y = _make_take()(scene.federation, test, np.int32(client), where, np.ones(len(where), bool))
    return np.asarray(x)[:number], np.asarray(y)[:number]


@functools.cache
def _make_take() -> Callable[..., tuple[Array, Array]]:
    from cfljax.local.data import take

    return jax.jit(take)


def prepare_samples(federation: Federation, x: np.ndarray) -> np.ndarray:
    """Convert samples in the scale of the data set to what models see, f32[n, ...]; raise a
    SpecError for another shape. Grey images may lack their last axis."""
    pool = federation.pool
    shape = federation.sample_shape
    # Grey images may lack the axis of their channel
    x = x[..., None] if (*x.shape[1:], 1) == shape else x
    if x.shape[1:] != shape:
        raise SpecError(
            f"x: has the shape {x.shape}; must be (samples, {', '.join(map(str, shape))})"
        )
    if pool.table is not None:
        table = np.asarray(pool.table)
        if x.dtype.kind not in "iu" or (x.size and not 0 <= x.min() <= x.max() < len(table)):
            raise SpecError(f"x: must be token ids, integers from 0 to {len(table) - 1}")
        return table[x]
    return (x.astype(np.float32) - np.asarray(pool.mean)) * np.asarray(pool.scale)


def outputs(model: Model, flat: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Compute the outputs f32[n, outputs] of the model f32[d] for prepared samples."""
    forward = _forward(model)
    params = model.unravel(jnp.asarray(flat))
    with jax.default_matmul_precision("highest"):
        found = [
            np.asarray(forward(params, jnp.asarray(x[at : at + SAMPLES_AT_A_TIME])))
            for at in range(0, len(x), SAMPLES_AT_A_TIME)
        ]
    if not found:
        raise SpecError("x: has no samples")
    return np.concatenate(found)


def probabilities(
    model: Model, flat: np.ndarray, x: np.ndarray, several: bool = False
) -> np.ndarray:
    """Compute the probabilities f32[n, classes] that the model f32[d] gives to the classes of
    prepared samples; with `several` labels of a sample, to each label separately."""
    # float64, so that probabilities sum to 1 as closely as float32 can say
    whole = outputs(model, flat, x).astype(np.float64)
    if several:
        return (1 / (1 + np.exp(-whole))).astype(np.float32)
    # One logit is that of the second of two classes; the first has 0
    whole = np.concatenate([np.zeros_like(whole), whole], 1) if whole.shape[1] == 1 else whole
    whole = np.exp(whole - whole.max(axis=1, keepdims=True))
    return (whole / whole.sum(axis=1, keepdims=True)).astype(np.float32)


@functools.lru_cache(maxsize=4)
def _forward(model: Model) -> Callable[[Tree, Array], Array]:
    def forward(params: Tree, x: Array) -> Array:
        return model.forward(params, x)

    return jax.jit(forward)


def need_array(array: np.ndarray | None, what: str, run: str) -> np.ndarray:
    """Return the array; raise a StoreError if the run has not kept it."""
    if array is None:
        raise StoreError(
            f"run {run}: has no {what}; compute it with --keep models (cfljax.sweep(…, "
            'keep="models"))'
        )
    return array
