"""Methods that correct each client's steps by a vector of its own: their options, their state, and what their rounds share.

Inside true groups (`groups = "true"`) the members of a group share a model and a control of their own, as in `oracle`. Where
the groups change (`data.drift`), a client takes its own vector along to its new group.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax.kernels.mix import Mixed, usable, weights_by
from cfljax.lazy import jnp
from cfljax.local.send import attackers
from cfljax.local.solver import Solver
from cfljax.registry.options import option
from cfljax.round.common import first_model, need_groups
from cfljax.round.config import PersonalConfig
from cfljax.types import Array, Cohort, Federation, Hyper, Method, Model
from cfljax.types.method import Round


@dataclasses.dataclass(frozen=True)
class ControlConfig(PersonalConfig):
    """The base class of the options of these methods. Each client keeps a vector, but is scored with its group's model."""

    own = False
    own_server = True

    groups: str = option("one", "who shares a model: all clients, or those of a true group", choices=("one", "true"))

    def per_client(self, clients: int, d: int) -> int:
        """Its control vector."""
        return d


class Controlled(NamedTuple):
    """The state of these methods."""

    models: Array
    """f32[K, d]."""
    control: Array
    """f32[K, d]: the server's control vector of each model, a mean over the clients of its group."""
    own: Array
    """f32[C, d]: the control vector of each client; zeros until it has trained."""
    labels: Array
    """i32[C]: the model of each client."""

    def kept_by(self, ids: Array, mask: Array, vectors: Array) -> Array:
        """f32[C, d]: the clients' control vectors, with `vectors` f32[S, d] for the clients i32[S] where mask bool[S]."""
        return self.own.at[jnp.where(mask, ids, self.own.shape[0])].set(vectors, mode="drop")


def controlled(name: str, config: ControlConfig, model: Model, round: Round[Controlled]) -> Method[Controlled]:
    """The method of this name whose rounds are done by `round`."""
    apart = config.groups == "true"

    def setup(key: Array, federation: Federation, hyper: Hyper) -> dict[str, np.ndarray]:
        if apart:
            need_groups(f'method "{name}" with groups = "true"', federation)
        return {}

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> Controlled:
        labels = jnp.asarray(federation.group) if apart else jnp.zeros(federation.clients, jnp.int32)
        models = jnp.tile(first_model(key, model), (federation.groups if apart else 1, 1))
        return Controlled(models, jnp.zeros_like(models), jnp.zeros((federation.clients, model.size)), labels)

    def follow(state: Controlled, federation: Federation) -> Controlled:
        return state._replace(labels=jnp.asarray(federation.group))

    models, followed = lambda state: (state.models, state.labels), follow if apart else None
    return Method(init, round, models, setup=setup, chooses=not apart, follow=followed)


def shares(state: Controlled, federation: Federation, cohort: Cohort, average: str) -> Array:
    """f32[K, S]: the weight of each participant among all clients of its group that train in some round, by their samples or
    equally (`average`)."""
    size = federation.train.count.astype(jnp.float32)
    of_all = weights_by(state.labels, federation.trains, size, state.models.shape[0], average)
    return jnp.where(cohort.mask, of_all[:, cohort.ids], 0.0)


def unbroken(cohort: Cohort, *rows: Array) -> tuple[Array, list[Array]]:
    """(bool[S]: which participants send nothing but finite rows f32[S, d], the rows): where one of a participant's rows is
    not finite, none is."""
    sane = jnp.stack([usable(each) for each in rows]).all(axis=0)
    return cohort.mask & sane, [jnp.where((cohort.mask & ~sane)[:, None], jnp.nan, each) for each in rows]


def known(solver: Solver, federation: Federation, cohort: Cohort, hyper: Hyper, meant: Array, told: Array) -> Array:
    """f32[S, d]: what each participant itself counts as sent, of what it meant and what arrived. That is what arrived, so that what
    compression leaves out stays to be sent; but an attacker goes on with what it would have sent honestly."""
    if solver.sending.attack not in ("sign_flip", "noise"):
        return told
    lies = attackers(solver.sending, hyper, federation)[cohort.ids]
    return jnp.where(lies[:, None], meant, told)


def counted(cohort: Cohort, sane: Array, models: Array, moved: Mixed) -> Mixed:
    """The record of a round with the new models f32[K, d]. `sane` bool[S]: the participants that were not left out."""
    return moved._replace(new=models, nonfinite=jnp.sum(cohort.mask & ~sane, dtype=jnp.int32))
