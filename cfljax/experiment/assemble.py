"""HOST. From the configuration of a run to the things that run: federation, model, method and settings, each made once."""

from __future__ import annotations

import dataclasses
import functools
import os
import zlib
from typing import Any, NamedTuple

import jax
import numpy as np

from cfljax import data, models
from cfljax.config import Data, Run, arrivals
from cfljax.config.frozen import canonical
from cfljax.devices import mesh
from cfljax.engine.program import Settings
from cfljax.engine.simulate import forget
from cfljax.errors import SpecError
from cfljax.experiment.execution import Choice, choose, work_of
from cfljax.federation.pack import nbytes, pack
from cfljax.local.products import grams_of
from cfljax.local.send import Sending
from cfljax.local.sizes import gram_sizes
from cfljax.local.solver import Solver
from cfljax.methods import METHODS
from cfljax.registry import when_replaced
from cfljax.registry.options import static
from cfljax.types import Federation, Grams, Method, Model, Plan

CHUNK = 10
"""Evaluations between two looks at a running batch."""


class Assembled(NamedTuple):
    """All that `simulate` needs besides seeds and numbers."""

    federation: Federation
    model: Model
    method: Method
    settings: Settings
    mesh: jax.sharding.Mesh | None = None
    """The devices that a round is dealt to; None: one."""
    plan: Plan = Plan()
    shard: bool = False
    """Whether the samples are dealt to the devices, too; the federation is then on the host."""


def assemble(run: Run, width: int = 1) -> Assembled:
    """The parts of a run, in a batch of so many."""
    devices = mesh_of(run, width)
    shard = shards(run, devices)
    federation = host_federation(run) if shard else federation_of(run)
    model = model_of(run, federation)
    choice = choice_of(run, model, federation)
    plan = choice.plan
    if choice.kept and not shard:
        federation = _with_grams(run, federation, plan)
    settings = settings_of(run, federation, model.size)
    return Assembled(federation, model, _method(run, model, plan, devices), settings, devices, plan, shard)


def host_federation(run: Run) -> Federation:
    """The run's federation as numpy arrays."""
    return _host_federation(_FederationKey(run.data.drawn_for(run.seed), run.data_seed))


def checksum(run: Run) -> str:
    """Of what the clients hold: a short sum of all arrays of the federation, to compare processes by."""
    return _checksum(_FederationKey(run.data.drawn_for(run.seed), run.data_seed))


def federation_of(run: Run) -> Federation:
    """The run's federation, on the device."""
    return _device_federation(_FederationKey(run.data.drawn_for(run.seed), run.data_seed))


def model_of(run: Run, federation: Federation) -> Model:
    """The run's model, for the samples of this federation."""
    options = run.model.options
    return _model(run.model.name, options, canonical(options), sample_shape(federation), federation.classes)


def sample_shape(federation: Federation) -> tuple[int, ...]:
    """The shape of one sample as a model sees it."""
    pool = federation.pool
    return pool.x.shape[1:] + (() if pool.table is None else pool.table.shape[1:])


def sending_of(run: Run) -> Sending:
    """What becomes of updates on their way."""
    _, way, attack, robust = run.train.transit
    made = Sending(robust="" if robust is None else robust.name)
    if way is not None:
        made = made._replace(compress=way.name, kept=way.keep or 0.0, nearest=way.rounding == "nearest")
    return made if attack is None else made._replace(attack=attack.name, seed=attack.seed)


def settings_of(run: Run, federation: Federation, d: int) -> Settings:
    """What the run's program is compiled for."""
    train = run.train
    return Settings(
        rounds=train.rounds,
        participants=participants_of(run, federation),
        eval_every=train.eval_every,
        evaluations=min(CHUNK, -(-train.rounds // train.eval_every)),
        sequential=sequential(),
        score=train.score,
        discrepancy=train.discrepancy,
        test_choice=train.test_clients_choose,
        eval_clients=train.eval_clients,
        precision=train.precision,
        label_history=federation.clients <= 10_000,
        metrics=train.metrics or (),
        sending=sending_of(run),
        vector_up=train.vector_bytes(d),
    )


def participants_of(run: Run, federation: Federation) -> int:
    """How many places a round has for participants."""
    return run.train.places(int(federation.trains.sum()), federation.clients)


def choice_of(run: Run, model: Model, federation: Federation) -> Choice:
    """How local training is carried out."""
    devices = 1 if (there := mesh_of(run)) is None else int(there.shape[mesh.CLIENTS])
    return choose(run, model, federation, sequential(), devices)


def mesh_of(run: Run, width: int = 1) -> jax.sharding.Mesh | None:
    """The devices that the participants of a round are dealt to: all there are, or as many as the run says; `--mesh` may deal
    the runs of a batch of that width to them, too."""
    if mesh.asked() is not None:
        return mesh.for_batch(width)
    there, wanted = jax.local_device_count(), run.train.forced.devices
    if wanted is not None and wanted > there:
        how = "; XLA_FLAGS=--xla_force_host_platform_device_count=N makes N of a CPU" if sequential() else ""
        raise SpecError(f"train.plan.devices = {wanted}: this process has {there}{how}")
    count = wanted or there
    return None if count == 1 else jax.sharding.Mesh(np.array(jax.local_devices()[:count]), (mesh.CLIENTS,))


def shards(run: Run, devices: jax.sharding.Mesh | None) -> bool:
    """Whether the devices share the samples out by client, as the run says, or as one device's memory has no room for all."""
    wanted, width = run.train.forced.pool, 1 if devices is None else int(devices.shape[mesh.CLIENTS])
    if wanted == "sharded" and width == 1:
        raise SpecError('train.plan.pool = "sharded": there is one device to a run; give more, as with --mesh clients=8')
    if wanted is not None or width == 1:
        return wanted == "sharded"
    copies = jax.local_device_count() if sequential() else 1  # a CPU's devices have one memory
    return copies * nbytes(host_federation(run)) > memory_there() // 2


def memory_there() -> int:
    """Bytes of the device, 8 GiB where it does not say; of the machine where it computes itself."""
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return int(limit or (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if sequential() else 8 << 30))


def sequential() -> bool:
    """Whether clients and runs go one after another: batched small products are slow on a CPU and fast elsewhere."""
    return jax.default_backend() == "cpu"


class _FederationKey(NamedTuple):
    data: Data
    seed: int

    def __hash__(self) -> int:
        return hash((self.data.identity, self.seed))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FederationKey) and (self.data.identity, self.seed) == (other.data.identity, other.seed)


@functools.lru_cache(maxsize=2)
def _host_federation(key: _FederationKey) -> Federation:
    config, seed = key
    source = config.load()
    parts = config.divide(source)
    trains = np.array([len(rows) > 0 for rows in parts.train])
    return pack(parts, source, config.normalise, arrivals(config.arrive, trains, seed))


@functools.lru_cache(maxsize=2)
def _checksum(key: _FederationKey) -> str:
    total = 0
    for leaf in jax.tree.leaves(_host_federation(key)):
        array = np.ascontiguousarray(leaf)
        total = zlib.crc32(array.view(np.uint8).reshape(-1), zlib.crc32(f"{array.dtype} {array.shape}".encode(), total))
    return f"{total:08x}"


@functools.lru_cache(maxsize=2)
def _device_federation(key: _FederationKey) -> Federation:
    return jax.device_put(_host_federation(key))


@functools.lru_cache(maxsize=8)
def _model(
    name: str,
    options: Any,
    meaning: str,  # noqa: ARG001 (files that the options name may have changed)
    shape: tuple[int, ...],
    classes: int,
) -> Model:
    if classes < 1:
        raise SpecError(f'model "{name}": the data set has no classes')
    return models.build(name, options, shape, classes)


def _with_grams(run: Run, federation: Federation, plan: Plan) -> Federation:
    """The federation with the Gram matrices that the plan makes beforehand."""
    key = _FederationKey(run.data.drawn_for(run.seed), run.data_seed)
    grams = _grams(key, gram_sizes(plan, federation.train.longest, work_of(run).batch))
    return dataclasses.replace(federation, train=dataclasses.replace(federation.train, grams=grams))


@functools.lru_cache(maxsize=1)
def _grams(key: _FederationKey, sizes: tuple[int, ...]) -> Grams:
    return jax.device_put(grams_of(_device_federation(key), sizes))


def _method(run: Run, model: Model, plan: Plan, devices: jax.sharding.Mesh | None) -> Method:
    optimizer, arguments = run.train.optimizer_pair
    how = (model, work_of(run), optimizer, tuple(arguments.items()), plan, sending_of(run))
    return _made(run.method, static(run.options), canonical(static(run.options)), how, devices)


@functools.lru_cache(maxsize=16)
def _made(
    name: str,
    options: Any,
    meaning: str,  # noqa: ARG001 (as of a model)
    how: tuple[Any, ...],
    devices: Any,  # noqa: ARG001 (what its set-up compiles is traced for these devices)
) -> Method:
    """The same object for runs that differ in seed and traced numbers only, so that what its set-up compiles is kept."""
    return METHODS.entry(name).make(options, how[0], Solver(*how))


@when_replaced
def _forget() -> None:
    """A name means something else now."""
    for kept in (data.loaded, _host_federation, _checksum, _device_federation, _grams, _model, _made):
        kept.cache_clear()
    forget()
