"""FedBCD (Wu et al. 2021): a global and personal models by block coordinate descent on Σ_i f_i(x_i)
+ ρ ‖x_i − z‖². The CFL-MGD paper compares with it.

A participant takes 1 to `max_steps` mini-batch steps, a random number of its own each round, on its
personal model x_i, which stays with it; then z ← z − lr_z (z − mean of all x_i), over every client
that has arrived and holds data, whether it took part or not. Local training is the method's own:
`train.lr`, `momentum`, `weight_decay`, `epochs`, `steps` and `batch` have no say in it; `lr_decay`
has. Scored with z; the accuracy of the x_i is the diagnostic `accuracy_personal`.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from cfljax import keys
from cfljax.federation.cohort import present
from cfljax.kernels.mix import Rule, add_noise, sum_by
from cfljax.lazy import jnp
from cfljax.local.rates import factor_of_round
from cfljax.registry import Entry
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Ask,
    PersonalConfig,
    RowUpdates,
    Solver,
    Work,
    first_model,
    jobs_from,
    option,
    round_of_rows,
)
from cfljax.types import Array, Cohort, Federation, Hyper, LocalStep, Method, Model, Quantity

ABOUT = About(
    title="FedBCD",
    family="personal",
    authors="Wu et al.",
    year=2021,
    paper="Federated block coordinate descent scheme for learning global and personalized models",
    venue="AAAI",
    link="https://arxiv.org/abs/2012.13900",
    communication="z down, one update up",
)
READINGS = (
    Reading(
        "Local training",
        paper="SGD 0.005 with momentum 0.9 and weight decay 1e-4, batches of 32, 1 to 5 steps",
        here="the same, not the options of `train`",
        option=("local_lr", "local_momentum", "local_weight_decay", "local_batch", "max_steps"),
    ),
    Reading(
        "Step of z",
        paper="1 for an MLP, 0.1 for a ResNet",
        here="1",
        option="lr_z",
    ),
)


@dataclasses.dataclass(frozen=True)
class Config(PersonalConfig):
    """Options of FedBCD.

    `rho` is ρ, the pull between personal and global models, and `lr_z` the step of z. `local_lr`,
    `local_momentum`, `local_weight_decay` and `local_batch` are the numbers of local SGD,
    which takes 1 to `max_steps` steps.
    """

    diagnostics = {
        "personal_distance": Quantity("mean distance of personal models from the global one"),
        "accuracy_personal": Quantity("accuracy of the personal models", "share"),
    }
    trains_once = False
    searches_lr = False

    rho: float = option(
        1.0,
        "strength of the pull between personal and global model",
        low=0.0,
        traced=True,
        search=(0.01, 1.0, "log"),
    )
    lr_z: float = option(
        1.0,
        "step of the global model to the mean of the personal ones (ResNet: 0.1)",
        low=0.0,
        traced=True,
    )
    local_lr: float = option(
        0.005, "learning rate of local SGD", low=0.0, traced=True, search=(0.01, 2.0, "log")
    )
    local_momentum: float = option(0.9, "its momentum", low=0.0, traced=True)
    local_weight_decay: float = option(1e-4, "its weight decay", low=0.0, traced=True)
    local_batch: int = option(32, "samples per local step", low=1)
    max_steps: int = option(5, "a participant takes 1 to this many local steps", low=1)

    @property
    def without(self) -> dict[str, str]:
        """Refuse an optimiser, as local training is the method's own SGD."""
        return super().without | {"optimizer": "local training is its own SGD"}


class State(NamedTuple):
    """z, and the models that stay with the clients."""

    # f32[1, d]
    z: Array
    # f32[C, d]: the x_i
    rows: Array
    # bool[C]: has trained its x_i
    drawn: Array
    noise: Array | None = None
    """f32[1, d]: all noise of `train.privacy` so far. The sum of the x_i grows by each round's
    updates, and so does this."""


def make(config: Config, model: Model, solver: Solver) -> Method[State]:
    """FedBCD: personalized models pulled to a global one, which follows their mean.

    A round: each participant takes 1 to `config.max_steps` steps of SGD on f_i(x_i) + ρ ‖x_i − z‖²,
    from its personal model x_i, where `config.rho` is ρ. The server sets z ← z − lr_z (z − mean of
    all x_i), f32[d], over the clients that have arrived and hold data.

    Args:
        config: the options; `local_lr`, `local_momentum`, `local_weight_decay` and `local_batch`
            are the numbers of local SGD.
        model: the network, whose parameters are a vector f32[d].
        solver: local training, with which the method takes its own number of steps.

    Returns:
        The method, whose state is a `State`: z f32[1, d], and the x_i f32[C, d].
    """
    working = solver.with_work(Work(None, config.max_steps, config.local_batch))

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        first = first_model(key, model)[None]
        noise = None if solver.rule(key, hyper).noise is None else jnp.zeros_like(first)
        return State(
            z=first,
            rows=jnp.tile(first, (federation.clients, 1)),
            drawn=jnp.zeros(federation.clients, bool),
            noise=noise,
        )

    def train(ask: Ask, state: State, rows: Array) -> RowUpdates:
        cohort = ask.cohort
        mine = jnp.arange(cohort.ids.shape[0], dtype=jnp.int32)
        steps = draw_steps(ask.key, ask.federation.uid[cohort.ids], config.max_steps)
        jobs = jobs_from(
            cohort, rows, mine, anchor=ask.download(state.z), anchor_of=jnp.zeros_like(mine)
        )
        # The number of steps as a share of the most, as all trainings of a program are as long
        jobs = jobs._replace(work=cohort.work * steps / config.max_steps)
        trainer = working.with_step(lambda hyper: local_step(hyper, cohort))
        updates = trainer.fit(ask.key, ask.federation, jobs, ask.hyper)
        ask.upload()
        return RowUpdates(jobs, updates, rows, updates.delta)

    def merge(ask: Ask, before: State, after: State, done: RowUpdates) -> tuple[State, Array]:
        # The mean of all x_i, also of those that have not taken part
        there = present(ask.federation, ask.cohort.round)
        rule = solver.rule(ask.key, ask.hyper)
        mean, noise = average_personal(rule, after.rows, there, before.noise)
        moves = jnp.any(there) & jnp.isfinite(mean).all()
        z = jnp.where(moves, before.z - ask.hyper["lr_z"] * (before.z - mean), before.z)
        distances = jnp.linalg.norm(after.rows - z, axis=1)
        ask.show(personal_distance=jnp.sum(equal_shares(there) * distances))
        return after._replace(z=z, noise=noise), jnp.broadcast_to(z, done.start.shape)

    return Method(
        init,
        round_of_rows(solver, train, merge),
        models=lambda state: (state.z, jnp.zeros(state.drawn.shape, jnp.int32)),
        also=lambda state: {"personal": (state.rows, jnp.arange(state.rows.shape[0]))},
    )


def equal_shares(there: Array) -> Array:
    """Return f32[C]: the same share for each client that is `there` bool[C], 0 for others."""
    return jnp.where(there, 1.0, 0.0) / jnp.maximum(jnp.sum(there), 1)


def average_personal(
    rule: Rule, personal: Array, there: Array, noise: Array | None
) -> tuple[Array, Array | None]:
    """Return (f32[1, d] the mean of the x_i, f32[1, d] all noise so far; None: there is none).

    Args:
        rule: How the server averages in this round.
        personal: f32[C, d] the x_i.
        there: bool[C] the clients that count.
        noise: f32[1, d] all noise before this round.
    """
    mean = sum_by(rule._replace(noise=None), equal_shares(there)[None], personal)[0]
    if noise is None:
        return mean, None
    # One x_i is in the sum with weight 1, so noise is drawn for the sum and then divided
    noise = add_noise(rule, there[None].astype(jnp.float32), noise)
    return mean + noise / jnp.maximum(jnp.sum(there), 1), noise


def draw_steps(key: Array, uid: Array, most: int) -> Array:
    """Draw the number of steps of each participant, i32[S], from 1 to `most`, by its identity in
    `uid` i32[S]."""
    # 24 bits fit into a float32, so the number is below 1
    drawn = (keys.scores(key, "steps", uid) >> 8).astype(jnp.float32) / (1 << 24)
    return 1 + jnp.floor(drawn * most).astype(jnp.int32)


def local_step(hyper: Hyper, cohort: Cohort) -> LocalStep:
    """Return the numbers of local training in this round of the cohort."""
    decay = factor_of_round(hyper, cohort.round)
    return LocalStep(
        hyper["local_lr"] if decay is None else hyper["local_lr"] * decay,
        hyper["local_momentum"],
        hyper["local_weight_decay"],
        # The gradient of ρ ‖x − z‖² is 2 ρ (x − z)
        2 * hyper["rho"],
    )


fedbcd = Entry(Config, make)
