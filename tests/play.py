"""Some rounds of a method on a small federation: the one place where tests and drills make a method
and let it work.

`batch` plays whole runs as a sweep does, with the engine and its evaluations, and returns their
outputs. `rounds` plays round after round of one run without evaluations, which compiles quickly,
and returns the states in between.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import data, keys
from cfljax.config import Train
from cfljax.contract.outputs import list_unlike
from cfljax.engine.settings import Assembled, Settings
from cfljax.engine.simulate import Output, simulate
from cfljax.federation import PARTITIONS, cohort
from cfljax.federation.pack import pack
from cfljax.local.attacks import exact_share, flip_labels
from cfljax.local.rates import at_round
from cfljax.local.send import Sending
from cfljax.methods import METHODS
from cfljax.registry.options import drop_traced, list_traced
from cfljax.round.stages import add_stages, make_stages
from tests import toy

ROUNDS = 4
OPTIONS = {
    "ccs_rfedavg": {"theta": 0.3},
    "fedgroup": {"clusters": 2, "alpha": 3, "pretrain_steps": 4},
    "ocfl": {"clients_per_cluster": 5},
    "cfl_sattler": {
        "min_rounds": 1,
        "eps1": 10.0,
        "eps2": 0.0,
        "split_every": 2,
        "max_clusters": 9,
    },
    "ocfl_zuziak": {"max_clusters": 9},
    "fedgwc": {"clients_per_cluster": 3, "eps": 1.0, "notes": 3, "max_clusters": 9},
    "sr_fca": {"refine_every": 2, "pretrain_epochs": 2, "max_clusters": 9},
    "cfl_gp": {"clusters": 2, "period": 1},
    "fl_hc": {"warmup_rounds": 1},
    "flux": {"cluster_after": 1, "max_clusters": 9},
    "one_shot": {"clusters": 2},
    "stocfl": {"max_clusters": 7},
    "feddrift": {"every": 2, "start": "each", "max_clusters": 7},
    "fedper": {"model": toy.model(7)},
    **dict.fromkeys(
        ("fedrod", "moon", "fedala", "fedproto", "fedpac", "fedclust"), {"model": toy.model(7)}
    ),
    "fedccfa": {"model": toy.model(7), "align_after": 1},
    "lg_fedavg": {"model": toy.model(7)},
    "fedbn": {"model": toy.batched_model()},
    "fedrep": {"model": toy.model(7), "head_epochs": 2},
    "fedbabu": {"model": toy.model(7)},
}
"""What a method needs to do something interesting in four rounds on nine clients; with "model" on
another model than the toy, which has one layer only; a method that is not listed runs with its
defaults, and two clusters where it has that option."""
EVERYBODY = {"cfl_sattler", "ocfl_zuziak"}
"""Methods that need all clients in each round."""


class Prepared(NamedTuple):
    """A method, made, with its compiled functions."""

    config: object
    model: object
    method: object
    init: object
    """method.init, compiled."""
    round: object
    """method.round, compiled."""


class Played(NamedTuple):
    """The states after 0, 1, … rounds (after regrouping, where there was one) and the Info of each
    round."""

    states: list
    infos: list
    method: object

    def models(self, t=-1):
        """f32[K, d] after t rounds."""
        return np.asarray(self.method.models(self.states[t])[0])

    def labels(self, t=-1):
        """i32[C] after t rounds."""
        return np.asarray(self.method.models(self.states[t])[1])

    def diag(self, name, t=-1):
        """A diagnostic of round t."""
        return np.asarray(self.infos[t].diag[name])


@functools.cache
def nine_clients():
    """Nine clients of two true groups, as numpy arrays."""
    source = data.load("blobs", {"samples": 300, "features": 6, "classes": 4}, seed=3)
    checked = PARTITIONS.check("label_permutation", {"clients": 9, "groups": 2}, "data")
    parts = PARTITIONS.entry("label_permutation").make(checked, source, np.random.default_rng(5))
    return pack(parts, source, "none")


@functools.cache
def seven_clients():
    """Seven clients of unequal mixes of classes."""
    return toy.federation("dirichlet", clients=7, alpha=0.5)


def options(name):
    """The options that a method needs on nine clients."""
    two = {"clusters": 2} if "clusters" in METHODS.entry(name).options.__dataclass_fields__ else {}
    return two | OPTIONS.get(name, {})


def prepared(name, work=None, model=None, **options):
    """The method with these options; the same compiled functions for options that differ in traced
    numbers only. `work`: what `toy.solver` takes."""
    fields = METHODS.entry(name).options.__dataclass_fields__
    fixed = {
        k: v for k, v in options.items() if k not in fields or not fields[k].metadata["traced"]
    }
    config = METHODS.check(name, fixed, f"method.{name}")
    return _prepared(name, drop_traced(config), toy.solver(model or toy.model(), **(work or {})))


@functools.cache
def _prepared(name, config, solver):
    model = solver.model
    method = METHODS.entry(name).make(config, model, solver)
    method = add_stages(method, make_stages(name, Train(), config, solver))
    return Prepared(config, model, method, jax.jit(method.init), jax.jit(method.round))


_draw = jax.jit(cohort.draw, static_argnums=2)


def drawn(key, federation, participants, t, hyper):
    """The participants of round t, by one compiled program for all runs with as many clients."""
    away = {
        name: hyper[name] for name in ("dropout", "stragglers", "straggler_work") if name in hyper
    }
    return _draw(key, federation, participants, jnp.int32(t), away)


def rounds(
    name,
    federation,
    rounds=ROUNDS,
    participants=5,
    seed=0,
    lr=0.1,
    work=None,
    hyper=None,
    state=None,
    model=None,
    **options,
):
    """Rounds 0 … rounds − 1 of one run, with the host's part of the method; `participants` None:
    everybody. `hyper`: numbers over `lr` and the options' own. `state`: the one to begin with, in
    place of the method's."""
    _, _, method, init, step = prepared(name, work, model, **options)
    sending, participants = (
        (work or {}).get("sending", Sending()),
        participants or federation.clients,
    )
    numbers = (
        {"lr": lr} | list_traced(METHODS.check(name, options, f"method.{name}")) | (hyper or {})
    )
    hyper = {k: jnp.float32(v) for k, v in exact_share(sending.attack, numbers, federation).items()}
    key, seen = keys.root(seed), flip_labels(sending.attack, hyper, federation)
    if state is None:
        setup = (
            {}
            if method.setup is None
            else method.setup(key, seen, hyper | {"participants": participants})
        )
        state = init(key, federation, hyper, jax.tree.map(jnp.asarray, setup))  # as the engine does
    states, infos = [], []
    for t in range(rounds + 1):
        state = regrouped(method, key, state, seen, hyper, t, rounds)
        states.append(state)
        if t < rounds:
            each, number = keys.fold(key, "round", t), jnp.int32(t)
            now = seen.at(t)  # after a drift
            present = drawn(each, now, participants, t, hyper)
            state, info = step(each, state, now, present, at_round(hyper, number))
            infos.append(info)
    return Played(states, infos, method)


def regrouped(method, key, state, federation, hyper, t, rounds):
    """The state after t rounds with the host's part of the method, if it has one then."""
    if method.regroup is None or t not in method.regroup_after(rounds):
        return state
    return jax.tree.map(
        jnp.asarray, method.regroup(keys.fold(key, "regroup", t), state, federation, hyper, t)
    )


def models_of(method, states):
    """f64[rounds + 1, K, d] and labels [rounds + 1, C]."""
    pairs = [method.models(s) for s in states]
    return np.array([np.asarray(m, np.float64) for m, _ in pairs]), np.array(
        [np.asarray(y) for _, y in pairs]
    )


def unlike(one, other):
    """The names of the arrays of two outputs that are not the same bits. The states that runs can
    be continued from are left out: programs that agree in all results may hold other ones."""
    return [name for name in list_unlike(one, other) if not name.startswith("['last']")]


def batch(
    name, federation, rounds=ROUNDS, participants=5, seeds=None, hypers=({},), work=None, model=None, settings=None,
    mesh=None, chunk_rounds=None, resume=None, checkpoint=None, **options,
) -> list[Output]:  # fmt: skip
    """The outputs of a batch of runs; `participants` None: everybody. `hypers` are laid over lr =
    0.1 and the options' own numbers; `settings`: more of the engine's. Their stages are programs,
    as in short runs. Calls that differ in numbers, seeds and samples only have the same
    programs."""
    work, participants = {"quick": True} | (work or {}), participants or federation.clients
    _, model, method, *_ = prepared(name, work, model, **options)
    config = METHODS.check(name, options, f"method.{name}")
    each = {
        "sequential": work.get("sequential", True),
        "sending": work.get("sending", Sending()),
        **(settings or {}),
    }
    engine, solver = (
        Settings(rounds, participants, **{"evaluations": rounds + 1} | each),
        toy.solver(model, **work),
    )
    key = (name, drop_traced(config), solver)
    return simulate(
        Assembled(
            method,
            model,
            jax.device_put(federation),
            engine,
            solver.plan,
            mesh,
            program_key=key,
            model_key=model,
        ),
        list(range(len(hypers))) if seeds is None else seeds,
        [{"lr": 0.1} | list_traced(config) | hyper for hyper in hypers],
        chunk_rounds=chunk_rounds,
        resume=resume,
        checkpoint=checkpoint,
    )


def on_nine(name, hypers=({},), seeds=None, federation=None, participants=None, **more):
    """`batch` of any method on nine clients (or a changed federation) with the options that it
    needs: five take part in a round, or all where the method asks for that."""
    federation = nine_clients() if federation is None else federation
    if participants is None:
        participants = int((np.asarray(federation.uid) >= 0).sum()) if name in EVERYBODY else 5
    if (
        "local_lr" in METHODS.entry(name).options.__dataclass_fields__
    ):  # the only learning rate that counts
        hypers = [hyper | ({"local_lr": hyper["lr"]} if "lr" in hyper else {}) for hyper in hypers]
    return batch(
        name,
        federation,
        participants=participants,
        seeds=seeds,
        hypers=hypers,
        **options(name) | more,
    )
