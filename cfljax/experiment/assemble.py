"""HOST. From the configuration of a run to what a batch is simulated with: federation, model, plan,
solver and method."""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from cfljax import data, keys, models
from cfljax.config import Run
from cfljax.config.frozen import canonical
from cfljax.config.rules import list_parts
from cfljax.config.train_tables import StopTable, check_buffer
from cfljax.config.transit import uses_error_feedback
from cfljax.devices import compiled
from cfljax.devices.machine import Machine, make_mesh
from cfljax.engine.outputs import vector_bytes
from cfljax.engine.settings import Assembled, Asynchronous, FineTuning, Settings, Stop
from cfljax.errors import SpecError, SpecWarning
from cfljax.experiment import federations
from cfljax.experiment.batching import Batch
from cfljax.experiment.execution import PlanChoice, choose_plan
from cfljax.experiment.features import compute_features
from cfljax.experiment.federations import (
    FederationKey,
    check_labels,
    check_mixture,
    device_federation,
    federation_of,
    flatten_samples,
    host_federation,
    key_of,
    sample_shape,
)
from cfljax.federation.pack import count_bytes
from cfljax.federation.traces import make_devices
from cfljax.lazy import jax
from cfljax.local.parts import ModelParts, divide_model, find_sent_statistics
from cfljax.local.products import compute_grams
from cfljax.local.send import Sending
from cfljax.local.solver import Solver
from cfljax.methods import METHODS
from cfljax.models.options import common_options
from cfljax.models.started import Adapters, apply_start, in_bfloat16, to_head_model
from cfljax.registry import when_replaced
from cfljax.registry.options import Value, drop_traced
from cfljax.round.stages import Stage, add_stages, make_stages
from cfljax.types import Federation, Grams, Method, Model
from cfljax.types.federation import NEVER

# The most evaluations of a chunk, which is one call of the compiled program: after each chunk the
# host can show progress, write a checkpoint, or stop
EVALUATIONS_PER_CHUNK = 10


class Material(NamedTuple):
    """What trains, and on what."""

    model: Model
    # Of numpy arrays if samples stay on the host; each device fetches its own clients' samples
    federation: Federation


class Message(NamedTuple):
    """What travels between clients and server."""

    # Who has which part of a model; None: it is whole
    parts: ModelParts | None
    # The number of parameters that are sent
    length: int
    # Which of them are running statistics of batches
    statistics: tuple[int, ...]
    # What happens to updates on their way
    sending: Sending


def assemble(
    run: Run,
    width: int,
    machine: Machine,
    program_key: Hashable = None,
    model_key: Hashable = None,
) -> Assembled:
    """Assemble federation, model, plan, solver and method of a run, for a batch of `width` runs on
    the machine. Later batches find the same compiled programs under the keys."""
    shape = machine.shape(width, run.train.plan_options.devices)
    sharded = _is_sharded(run, shape.clients, machine)
    mesh = make_mesh(machine, shape)
    runs = math.ceil(width / shape.runs)
    # Each step is made of those before
    material = _take_material(run, machine, sharded)
    choice = choose_plan(run, *material, machine, runs)
    message = _describe_message(run, material)
    # New clients and fine-tuning train the whole model, the rounds only some of its parts
    solver = _make_solver(run, material.model, choice, message.sending)
    divided = solver.with_parts(message.parts) if message.parts else solver
    method = _make_method_of(run, material.federation, divided, mesh)
    federation = _add_grams(run, material.federation, choice, sharded)
    return Assembled(
        method,
        material.model,
        federation,
        _make_settings(run, material, choice, message, method, machine.sequential),
        choice.plan,
        mesh,
        sharded,
        program_key,
        model_key,
        newcomers=_make_newcomer_scoring(run, federation, solver),
        finetuned=_make_fine_tuning(run, federation, solver),
    )


def assemble_batch(batch: Batch, machine: Machine) -> Assembled:
    """Assemble a batch."""
    return assemble(batch.first, batch.width, machine, batch.code_key, batch.model_key)


def _take_material(run: Run, machine: Machine, sharded: bool) -> Material:
    """Take the model that trains and the samples that it gets, with the clients' devices if there
    is a simulated clock. `sharded`: the samples stay on the host."""
    federation = host_federation(run) if sharded else federation_of(run)
    if not machine.sequential:
        federation = flatten_samples(federation)
    model = model_of(run, federation)
    check_tokens(run)
    _warn_of_equal_starts(run, model)
    if common_options(run.model.options).frozen:
        model, federation = _replace_body(run, model)
        federation = jax.device_get(federation) if sharded else federation
    check_labels(run, federation)
    run.options.check_federation(f"method.{run.method}", federation)
    if clock := run.train.clock:
        devices = make_devices(
            federation.clients, run.data_seed, clock.speed == "same", clock.trace
        )
        federation = dataclasses.replace(federation, devices=devices)
    return Material(model, federation)


def _describe_message(run: Run, material: Material) -> Message:
    """Describe what travels: which parameters, and what happens to updates on their way."""
    model = material.model
    shared = list_parts(run.options, run.train)
    parts = divide_model(model, shared) if shared else None
    statistics = find_sent_statistics(model, parts)
    privacy, compress, attack, robust = run.train.transit
    if statistics and privacy is not None:
        raise SpecError(
            f'train.privacy with model "{model.name}": its noise would destroy the running '
            'variances of BatchNorm; keep them at home by parts = { norm = "client" }, or use '
            "GroupNorm or LayerNorm"
        )
    sending = Sending(robust="" if robust is None else robust.name)
    if compress is not None:
        sending = sending._replace(
            compress=compress,
            feedback=uses_error_feedback(run.options, run.train.transit),
            uncompressed=statistics,
        )
    if attack is not None:
        sending = sending._replace(attack=drop_traced(attack))
    return Message(parts, model.size if parts is None else len(parts.away), statistics, sending)


def _make_solver(run: Run, model: Model, choice: PlanChoice, sending: Sending) -> Solver:
    """Return the solver of local training, for the whole model."""
    optimizer, arguments = run.train.optimizer_pair
    work = choice.work
    # The plan was chosen for all epochs of a client; the method adds those of the head itself
    if run.options.head_epochs:
        work = work._replace(epochs=run.train.epochs, head=0)
    return Solver(
        model,
        work,
        optimizer,
        tuple(arguments.items()),
        choice.plan,
        sending,
        keeps_state=run.train.keeps_state,
    )


def _make_method_of(
    run: Run, federation: Federation, solver: Solver, mesh: jax.sharding.Mesh | None
) -> Method:
    """Return the run's method, with what `train` adds around its rounds."""
    options = drop_traced(run.options)
    stages = make_stages(run.method, run.train, options, solver)
    method = _make_method(run.method, options, canonical(options), solver, mesh, stages)
    check_mixture(run, method, federation)
    return method


def _add_grams(run: Run, federation: Federation, choice: PlanChoice, sharded: bool) -> Federation:
    """Add the clients' Gram matrices to the federation if the plan keeps them."""
    if not choice.kept or sharded:
        return federation
    grams = _compute_grams(key_of(run), choice.gram_sizes, _describe_frozen(run))
    train = dataclasses.replace(federation.train, grams=grams)
    return dataclasses.replace(federation, train=train)


def check_tokens(run: Run) -> None:
    """Reject samples that are not token ids, for models that need these."""
    given = getattr(run.model.options, "vocabulary", None)
    federation = host_federation(run)
    if (
        given is None
        or not models.MODELS.is_built_in(run.model.name)
        or len(sample_shape(federation)) != 1
    ):
        return
    pool = federation.pool
    vocabulary = given or federation.classes
    if np.any(np.asarray(pool.scale) != 1) or np.any(np.asarray(pool.mean) != 0):
        raise SpecError(
            f'data.normalise = "{run.data.normalise}": would change token ids; give "none"'
        )
    x = np.asarray(pool.x)
    least = x.min(initial=0)
    most = x.max(initial=0)
    if least < 0 or np.any(x != np.floor(x)):
        raise SpecError(
            f'model.name = "{run.model.name}": needs token ids, and the samples are other numbers'
        )
    if most >= vocabulary:
        raise SpecError(
            f"model.vocabulary: token {int(most)} is beyond its {vocabulary} tokens; give "
            f"{int(most) + 1} or more"
        )


def _warn_of_equal_starts(run: Run, model: Model) -> None:
    """Warn if all clusters start from the same network, because a choice by loss then puts all
    clients into the first."""
    common = common_options(run.model.options)
    if (
        common.weights is None
        or common.jitter
        or not run.options.chooses_by_loss
        or getattr(run.options, "clusters", 1) == 1
    ):
        return
    whole = model.whole or (lambda params: params)
    one, other = (
        jax.tree.leaves(whole(model.unravel(model.init(keys.root(seed))))) for seed in (0, 1)
    )
    if all(np.array_equal(a, b) for a, b in zip(one, other, strict=True)):
        why = (
            "all clusters begin equal, so clients that choose by loss choose the first; give "
            "model.jitter, such as 0.1"
        )
        warnings.warn(f"model.weights with method.{run.label}: {why}", SpecWarning, stacklevel=2)


def _make_newcomer_scoring(run: Run, federation: Federation, solver: Solver) -> FineTuning | None:
    """Return how clients that never train are scored after the last round; None: there are none."""
    new = run.data.new_clients
    if new is None:
        return None
    ids = tuple(np.flatnonzero(np.asarray(federation.arrive) == NEVER).tolist())
    return FineTuning(
        ids,
        new.steps,
        solver,
        not new.shots,
        new.rule is not None and not run.options.places_unlabelled,
    )


def _make_fine_tuning(run: Run, federation: Federation, solver: Solver) -> FineTuning | None:
    """Return how clients are fine-tuned and scored after the last round; None: they are not."""
    steps = run.train.finetune_steps
    if steps is None:
        steps = run.options.finetune_steps
    clients = min(run.train.eval_clients or federation.clients, federation.clients)
    return FineTuning(tuple(range(clients)), (steps,), solver) if steps else None


def model_of(run: Run, federation: Federation) -> Model:
    """Return the run's model, for the samples of this federation."""
    options = run.model.options
    half = run.train.precision == "bfloat16"
    shape = sample_shape(federation)
    classes = federation.classes
    lora = run.train.lora
    adapters = Adapters(lora.rank, lora.alpha, lora.where, lora.head) if lora else None
    pool = federation.pool
    tokens = len(shape) == 1 and (
        hasattr(options, "vocabulary") or (pool.x.dtype == np.int32 and pool.table is None)
    )
    return _make_model(
        run.model.name,
        options,
        canonical(options),
        shape,
        classes,
        federation.several,
        federation.continuous,
        half,
        tokens,
        adapters,
    )


def _describe_frozen(run: Run) -> tuple[str, Value, str] | None:
    """Return (name, options, their canonical JSON) of a model whose body is frozen; None: all of it
    trains."""
    options = run.model.options
    return (run.model.name, options, canonical(options)) if common_options(options).frozen else None


def _replace_body(run: Run, model: Model) -> tuple[Model, Federation]:
    """Return the head of the run's model, and the federation of the features that it gets."""
    federation = federation_of(run)
    frozen = _describe_frozen(run)
    assert frozen is not None
    featured = _compute_featured(key_of(run), *frozen)
    network = models.build(
        run.model.name,
        run.model.options,
        sample_shape(federation),
        federation.classes,
        federation.several,
        federation.continuous,
    )
    head = to_head_model(network, model, federation.classes, featured.sample_shape[0])
    return in_bfloat16(head) if run.train.precision == "bfloat16" else head, featured


def _make_settings(
    run: Run,
    material: Material,
    choice: PlanChoice,
    message: Message,
    method: Method,
    sequential: bool,
) -> Settings:
    """Return what the run's program is compiled for. `sequential`: the clients of a device train
    one after another."""
    train = run.train
    federation = material.federation
    vector_up = message.sending.bytes_up(message.length)
    vector_down = message.sending.bytes_down(message.length)
    clock = asynchronous = None
    if train.clock:
        clock = vector_bytes(method.travels, material.model.size, vector_down, vector_up)
        if train.asynchronous:
            training = int(federation.trains.sum())
            check_buffer(train.asynchronous, train.participants(training))
            kept = 0 if message.parts is None else len(message.parts.home)
            asynchronous = Asynchronous(train.asynchronous.buffer, kept)
    return Settings(
        rounds=train.rounds,
        participants=choice.slots,
        drawn=None if train.room.clients is None else choice.participants,
        eval_every=train.eval_every,
        evaluations=min(EVALUATIONS_PER_CHUNK, -(-train.rounds // train.eval_every)),
        sequential=sequential,
        score=train.score,
        discrepancy=train.discrepancy,
        test_choice=train.test_clients_choose,
        eval_clients=train.eval_clients,
        precision=train.precision,
        # Labels of each evaluation would take more than the rest of a record
        label_history=federation.clients <= 10_000,
        metrics=train.metrics or (),
        sending=message.sending,
        val_metrics=(train.stop.own,) if train.stop and train.stop.own else (),
        stop=_read_stop(train.stop),
        vector_up=vector_up,
        vector_down=vector_down,
        clock=clock,
        asynchronous=asynchronous,
    )


def _read_stop(table: StopTable | None) -> Stop | None:
    """Return when a run ends early; None: never."""
    if table is None:
        return None
    if table.own:
        return Stop(table.patience, f"val_{table.own}", table.better == "higher")
    return Stop(table.patience, table.metric)


def _is_sharded(run: Run, devices: int, machine: Machine) -> bool:
    """Return whether the samples are dealt to the devices by client: if the run says so, or if one
    device's memory is too small."""
    pool = run.train.plan_options.pool
    if pool == "sharded" and devices == 1:
        raise SpecError(
            'train.plan.pool = "sharded": there is one device to a run; give more, as with '
            "--mesh clients=8"
        )
    if pool is not None or devices == 1:
        return pool == "sharded"
    return machine.copies * count_bytes(host_federation(run)) > machine.memory // 2


@functools.lru_cache(maxsize=8)
def _make_model(
    name: str,
    options: Value,
    meaning: str,  # noqa: ARG001 (files that the options name may have changed)
    shape: tuple[int, ...],
    classes: int,
    several: bool = False,
    continuous: bool = False,
    half: bool = False,
    tokens: bool = False,
    lora: Adapters | None = None,
) -> Model:
    """Make the model, one object for runs with the same options: JAX finds compiled functions by
    it. `meaning`: the options as canonical JSON, with the contents of the files that they name."""
    if classes < 1:
        raise SpecError(f'model "{name}": the data set has no classes')
    model = models.build(name, options, shape, classes, several, continuous)
    return apply_start(in_bfloat16(model, tokens) if half else model, options, lora)


@functools.lru_cache(maxsize=2)
def _compute_featured(key: FederationKey, name: str, options: Value, meaning: str) -> Federation:
    """Return the federation with the features of a frozen body instead of samples."""
    federation = device_federation(key)
    labels = (federation.classes, federation.several, federation.continuous)
    divided = _make_model(name, options, meaning, sample_shape(federation), *labels)
    assert divided.whole is not None
    network = models.build(name, options, sample_shape(federation), *labels)
    whole = divided.whole(divided.unravel(divided.init(keys.root(0))))
    return compute_features(network, whole, federation)


@functools.lru_cache(maxsize=1)
def _compute_grams(
    key: FederationKey, sizes: tuple[int, ...], frozen: tuple[str, Value, str] | None = None
) -> Grams:
    """Compute the Gram matrices of all clients, which later batches of the same data use, too."""
    federation = device_federation(key) if frozen is None else _compute_featured(key, *frozen)
    return jax.device_put(compute_grams(federation, sizes))


@functools.lru_cache(maxsize=16)
def _make_method(
    name: str,
    options: Value,
    meaning: str,  # noqa: ARG001 (files that the options name may have changed)
    solver: Solver,
    # What its set-up compiles is traced for these devices
    mesh: jax.sharding.Mesh | None,  # noqa: ARG001
    stages: tuple[Stage, ...],
) -> Method:
    """Make the method, one object for runs that differ in seed and traced numbers: it keeps what
    its set-up compiles."""
    return add_stages(METHODS.entry(name).make(options, solver.model, solver), stages)


@when_replaced
def _forget() -> None:
    """Clear the caches of what was made by name, because a plug-in has been redefined."""
    for kept in (data.load_checked, _compute_featured, _compute_grams, _make_model, _make_method):
        kept.cache_clear()
    federations.clear_caches()
    compiled.forget()
