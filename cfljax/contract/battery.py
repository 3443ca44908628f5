"""HOST. Check a method or a model of one's own: play it on small data, change what must not matter,
and compare."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from cfljax import keys, lazy
from cfljax.config import read_spec
from cfljax.config.plugins import load, locate_error
from cfljax.contract import outputs
from cfljax.contract.padding import pad
from cfljax.devices.compiled import forget
from cfljax.devices.machine import describe_machine
from cfljax.engine.groups import default_flags
from cfljax.engine.outputs import Output
from cfljax.engine.quantities import DIAGNOSTICS
from cfljax.engine.settings import Assembled
from cfljax.engine.simulate import simulate
from cfljax.errors import CfljaxError, SpecError, suggest
from cfljax.experiment.assemble import assemble_batch
from cfljax.experiment.batching import make_batches
from cfljax.experiment.federations import sample_shape
from cfljax.federation.gather import client_rows, samples
from cfljax.lazy import jax, jnp
from cfljax.methods import METHODS
from cfljax.models import MODELS
from cfljax.models.flat import paths_of
from cfljax.registry.entries import list_registered
from cfljax.registry.options import Table
from cfljax.round.common import first_model
from cfljax.types import Federation, Model, on_host

ROUNDS = 2
CLIENTS = 9
PARTICIPANTS = 5
RUNS = 3
ORDER = np.array([4, 2, 8, 0, 7, 1, 3, 6, 5])
DUMMIES = 3
"""Clients without samples that are put behind the others."""
UNHELD_SAMPLES = 4
HUGE_RATE = 1e30
"""A learning rate with which every model diverges."""
BLOBS: Table = {"name": "blobs", "samples": 300, "features": 6, "classes": 4}
"""The data that methods are checked on: numbers, so that a client's can be NaN."""
TRUE_GROUPS: Table = {"partition": "label_permutation", "groups": 2, "clients": CLIENTS}
REPEATS = "the same seed gives the same bits"
"""The property without which no others that compare runs can be looked at."""
# The plan is the same whatever the machine, so that padding changes nothing else
PLAN: Table = {"lanes": 1, "gram": 0, "keep": False, "stream": 0, "quick": True}


class Check(NamedTuple):
    """One property that was looked at."""

    subject: str
    """As `method "bold"`."""
    property: str
    """What must hold, in words."""
    status: Literal["passed", "failed", "skipped"]
    message: str = ""
    """What is wrong and what to do, or why it was skipped."""

    def __str__(self) -> str:
        mark = {"passed": "✓", "failed": "✗", "skipped": "–"}[self.status]
        words = f": {self.message}" if self.message else ""
        return f"{mark} {self.property}{words}"


class _Skipped(Exception):
    """A property cannot be looked at; the message says why."""


class _Stage:
    """Three runs of one method, which can be played again with something changed."""

    def __init__(self, table: Table, sets: Iterable[str]) -> None:
        spec = read_spec(table, sets)
        batches = make_batches(spec.runs(), RUNS)
        if len(batches) != 1 or batches[0].width != RUNS:
            raise SpecError("its seeds must share one program: set no list, and no seeds")
        self.run = batches[0].first
        self.rounds = self.run.train.rounds
        self.batch = batches[0]
        self.parts: Assembled = assemble_batch(self.batch, describe_machine(speed=None))

    @functools.cached_property
    def plain(self) -> list[Output]:
        """The outputs of the three runs, as a sweep makes them."""
        return self.play()

    @property
    def federation(self) -> Federation:
        """The clients, as numpy arrays."""
        return jax.device_get(self.parts.federation)

    def play(
        self,
        federation: Federation | None = None,
        rates: dict[int, float] | None = None,
        runs: slice = slice(None),
        chunk_rounds: int | None = None,
    ) -> list[Output]:
        """Play the runs. `rates`: the learning rates of some of them."""
        parts = self.parts
        if federation is not None:
            parts = parts._replace(federation=jax.device_put(federation))
        hypers = [dict(each) for each in self.batch.hypers]
        for run, rate in (rates or {}).items():
            # Some methods have a local learning rate, which is the one that counts
            hypers[run] |= {name: rate for name in ("lr", "local_lr") if name in hypers[run]}
        return simulate(parts, self.batch.seeds[runs], hypers[runs], chunk_rounds=chunk_rounds)


def check_file(file: str, sets: Iterable[str] = ()) -> list[Check]:
    """Check all methods and models that a plug-in registers."""
    (plugin,) = load([file], where="check")
    found = list_registered(plugin)
    if not found:
        raise SpecError(
            f'check = "{file}": registers nothing; put @cfljax.register_method("name") or '
            '@cfljax.register_model("name") above what it has'
        )
    checks = []
    for kind, name in found:
        if kind in ("method", "model"):
            checks += _check_entry(kind, name, list(sets), [plugin])
        else:
            why = "only methods and models are checked; play it in a sweep of two rounds"
            checks.append(Check(f'{kind} "{name}"', "all", "skipped", why))
    return checks


def check_name(name: str, sets: Iterable[str] = ()) -> list[Check]:
    """Check the method, or else the model, that has this name."""
    for kind, registry in (("method", METHODS), ("model", MODELS)):
        if name in registry:
            return _check_entry(kind, name, list(sets), [])
    raise SpecError(
        f'check = "{name}": no method or model has this name' + suggest(name, [*METHODS, *MODELS])
    )


def _check_entry(kind: str, name: str, sets: list[str], plugins: list[str]) -> list[Check]:
    """Check a method or model."""
    lazy.load()
    with default_flags():
        return (_check_method if kind == "method" else _check_model)(name, sets, plugins)


def _check_method(name: str, sets: list[str], plugins: list[str]) -> list[Check]:
    """Check a method on nine clients of two groups."""
    fields = dataclasses.fields(METHODS.entry(name).options)
    two = {"clusters": 2} if "clusters" in [field.name for field in fields] else {}
    # With a body and a head, which some methods treat differently
    model: Table = {"name": "mlp", "hidden": [4]}
    table = _make_table(BLOBS, model, {"name": name} | two, plugins)
    # Values of another method of the file would be refused
    known = [
        each
        for each in sets
        if not each.startswith("method.") or each.split("=")[0].split(".")[1] in (name, "train")
    ]
    subject = f'method "{name}"'
    checks = [_look(subject, *each) for each in _list_declarations(name)]
    checks += _check_stage(
        subject, table, known, _list_properties, f"--set method.{name}.OPTION=VALUE"
    )
    return checks


def _check_model(name: str, sets: list[str], plugins: list[str]) -> list[Check]:
    """Check a model by itself, and in FedAvg."""
    table = _make_table({"name": "digits"}, {"name": name}, {"name": "fedavg"}, plugins)
    known = [each for each in sets if not each.startswith("method.")]
    properties = _list_model_properties
    return _check_stage(f'model "{name}"', table, known, properties, "--set data=mnist")


def _make_table(data: Table, model: Table, method: Table, plugins: list[str]) -> Table:
    """Return the spec of a stage."""
    train = {
        "rounds": ROUNDS,
        "participation": PARTICIPANTS,
        "epochs": 1,
        "batch": 5,
        "lr": 0.1,
        "eval_every": 1,
        "plan": PLAN,
    }
    return {
        "plugins": plugins,
        "data": data | TRUE_GROUPS,
        "model": model,
        "method": [method],
        "train": train,
        "seeds": list(range(RUNS)),
    }


Property = tuple[str, Callable[[], str], str]
"""(What must hold, a function that says what is wrong, what to do then)."""


def _check_stage(
    subject: str,
    table: Table,
    sets: list[str],
    properties: Callable[[_Stage], Iterable[Property]],
    hint: str,
) -> list[Check]:
    """Play a stage, and look at its properties; without a stage there are none. `hint`: a flag that
    may help."""
    stages: list[_Stage] = []

    def begin() -> str:
        stages.append(_Stage(table, sets))
        _ = stages[0].plain
        return ""

    advice = f"what it needs is given by --set, as in {hint} or --set train.lr=0.01"
    first = _look(subject, "its rounds can be played", begin, advice)
    if first.status != "passed":
        return [first, Check(subject, "all others", "skipped", "its rounds could not be played")]
    checks = [first]
    for each in properties(stages[0]):
        checks.append(_look(subject, *each))
        if each[0] == REPEATS and checks[-1].status == "failed":
            why = "no run can be compared with another of its seed"
            return [*checks, Check(subject, "all others", "skipped", why)]
    return checks


def _look(subject: str, name: str, find: Callable[[], str], advice: str) -> Check:
    """Look at a property."""
    try:
        wrong = find()
    except _Skipped as why:
        return Check(subject, name, "skipped", str(why))
    except CfljaxError as error:
        wrong = f"{locate_error(error)}{' '.join(str(error).split())}"
    except Exception as error:
        # The first line: errors of JAX go on with a page of advice
        words = (str(error).strip().splitlines() or [""])[0]
        wrong = f"{locate_error(error)}{type(error).__name__}: {words}"
        return Check(subject, name, "failed", wrong)
    if wrong:
        return Check(subject, name, "failed", f"{wrong}. {advice[:1].upper()}{advice[1:]}")
    return Check(subject, name, "passed")


def _list_declarations(name: str) -> Iterator[Property]:
    """List what a method must say of itself."""
    entry = METHODS.entry(name)

    def find_summary() -> str:
        return "" if entry.summary.endswith(".") else f"its first sentence is {entry.summary!r}"

    def find_help() -> str:
        fields = dataclasses.fields(entry.options)
        bare = [field.name for field in fields if not field.metadata.get("help")]
        return f"without help: {', '.join(bare)}" if bare else ""

    yield (
        "its docstring says what it is",
        find_summary,
        "begin the docstring with a sentence and a full stop",
    )
    yield (
        "its options are declared with a help text",
        find_help,
        'write each as cfljax.option(default, "what it is")',
    )


def _list_properties(stage: _Stage) -> Iterator[Property]:
    """List what must hold of a method."""
    options = stage.run.options
    yield (
        "its diagnostics are declared",
        lambda: outputs.describe_undeclared(stage.plain[0], options.diagnostics | DIAGNOSTICS),
        'name them in diagnostics = {"name": Quantity("what it is", "share")}',
    )
    yield from _list_common(stage)

    def find_order() -> str:
        moved = stage.play(stage.federation.take(on_host(ORDER)))
        find = functools.partial(outputs.describe_order, order=ORDER)
        return _find_first(find, stage.plain, moved)

    yield (
        "the order of clients changes nothing",
        _on_nine(stage, find_order),
        "positions are only names: draw what is of a client by its identity, federation.uid",
    )

    def find_broken() -> str:
        if not np.issubdtype(np.asarray(stage.federation.pool.x).dtype, np.floating):
            raise _Skipped("these samples are whole numbers, none of which is NaN")
        if not options.sends:
            raise _Skipped("it sends no updates")
        broken = outputs.break_clients(stage.federation, 3)
        return outputs.describe_broken_client(stage.play(broken)[0], 3)

    yield (
        "a client with broken samples harms no other",
        _on_nine(stage, find_broken),
        "leave out updates that are not usable(…), and count them in nonfinite as mix_updates does",
    )

    def find_diverged() -> str:
        played = stage.play(rates={1: HUGE_RATE})
        # The runs before and behind the one that diverges
        return _find_first(outputs.describe_difference, stage.plain[::2], played[::2])

    yield (
        "a run that diverges leaves the runs beside it alone",
        find_diverged,
        "keep all that a run changes in its state, and nothing in the class",
    )


def _list_common(stage: _Stage) -> Iterator[Property]:
    """List what must hold of a method as of a model in FedAvg."""
    first = stage.plain[0]
    clients = stage.parts.federation.clients
    yield (
        "its history, models and labels are complete and finite",
        lambda: outputs.describe_history(first, stage.rounds, clients),
        "look for a division by 0 and a logarithm of 0; --set train.lr=0.01 if it diverged",
    )
    yield (
        "it learns",
        lambda: outputs.describe_learning(first),
        "give it a fitting rate by --set train.lr=0.01, or more rounds by --set train.rounds=5",
    )

    def find_chance() -> str:
        first = stage.plain
        # A number that was drawn while a program was traced stays in it, so trace again
        forget()
        return _find_first(outputs.describe_difference, first, stage.play())

    yield (
        REPEATS,
        find_chance,
        "draw from the key that you are given (ask.key, key), never from np.random or a clock",
    )
    yield (
        "the rounds of a chunk change nothing",
        lambda: _find_first(outputs.describe_difference, stage.plain, stage.play(chunk_rounds=1)),
        "keep all that a round leaves to the next in the state",
    )
    yield (
        "a run alone is the run in a batch",
        lambda: outputs.describe_difference(stage.plain[1], stage.play(runs=slice(1, 2))[0]),
        "keep all that a run changes in its state, and nothing in the class",
    )

    def find_padding() -> str:
        padded = pad(stage.federation, DUMMIES, UNHELD_SAMPLES)
        return _find_first(outputs.describe_padding, stage.plain, stage.play(padded))

    yield (
        "padding changes nothing",
        _on_nine(stage, find_padding),
        "leave out of sums what is masked: cohort.mask for participants, federation.trains for "
        "clients, and let no sample depend on another",
    )


def _find_first(
    find: Callable[[Output, Output], str], ones: list[Output], others: list[Output]
) -> str:
    """Return the first difference that `find` sees between two outputs of one run; "" for none."""
    return next(filter(None, map(find, ones, others)), "")


def _on_nine(stage: _Stage, find: Callable[[], str]) -> Callable[[], str]:
    """Skip the property for federations that cannot be changed here."""

    def find_if_possible() -> str:
        federation = stage.federation
        if federation.clients != CLIENTS or federation.drift is not None:
            raise _Skipped(f"it is looked at on {CLIENTS} clients whose data stay")
        return find()

    return find_if_possible


def _list_model_properties(stage: _Stage) -> Iterator[Property]:
    """List what must hold of a model."""
    model = stage.parts.model
    begin = [model.init(keys.root(seed)) for seed in (0, 0, 1)]
    yield (
        "it begins as its key says",
        lambda: _describe_starts(*map(np.asarray, begin)),
        "draw the parameters from the key or the rngs that you are given",
    )
    yield (
        "a sample's output does not depend on the samples beside it",
        lambda: _describe_mixing(model, begin[0], stage.parts.federation),
        "keep the first axis: x.reshape(x.shape[0], -1); normalise by BatchNorm, GroupNorm or "
        "LayerNorm",
    )
    yield (
        "all its parameters are trained",
        lambda: _describe_untrained(stage),
        "remove what is not used and stop_gradient; train.freeze keeps parameters as they are",
    )
    yield from _list_common(stage)


def _describe_starts(one: np.ndarray, again: np.ndarray, other: np.ndarray) -> str:
    """Say what is wrong with the parameters of two equal keys and of another."""
    if not np.array_equal(one, again):
        return "the same key gives other parameters"
    if np.array_equal(one, other) and np.any(one != 0):
        return "two keys give the same parameters, so that all clusters begin equal"
    return "" if np.isfinite(one).all() else "parameters are not finite"


def _describe_mixing(model: Model, flat: jax.Array, federation: Federation) -> str:
    """Say how much the outputs of some samples differ between a batch and each alone."""
    count = min(4, int(np.asarray(federation.train.count)[0]))
    rows = client_rows(federation.train, jnp.int32(0), jnp.arange(count))
    x, _ = samples(federation, jnp.int32(0), rows, jnp.ones(count, bool))
    x = x.reshape(count, *sample_shape(federation))
    params = model.unravel(flat)
    whole = np.asarray(model.forward(params, x))
    alone = np.concatenate([np.asarray(model.forward(params, x[i : i + 1])) for i in range(count)])
    if np.allclose(whole, alone, rtol=1e-4, atol=1e-5):
        return ""
    return f"outputs differ by {np.abs(whole - alone).max():.2g} between a batch and one sample"


def _describe_untrained(stage: _Stage) -> str:
    """Say which arrays of parameters the rounds have left as they were."""
    model = stage.parts.model
    begin = np.asarray(first_model(keys.root(stage.batch.seeds[0]), model))
    end = stage.plain[0].models[0]
    before, after = (jax.tree.leaves(model.unravel(jnp.asarray(flat))) for flat in (begin, end))
    still = [
        path
        for (path, _), a, b in zip(paths_of(model), before, after, strict=True)
        if np.array_equal(a, b)
    ]
    return f"never change: {', '.join(still)}" if still else ""
