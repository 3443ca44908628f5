"""FedALA (Zhang et al. 2023): FedAvg of a global model w, whose clients begin each local training
at w with a head that is mixed of w's head and their own, number by number, with learned weights.
This beginning is scored; the accuracy of w is `accuracy_global`.

A participant has the model v that it last trained, and the weights W in [0, 1] of its head, 1 at
first. When w arrives, it learns W on a share of its samples: on each batch W ← W − eta ∇f(m) ⊙ (w −
v), clipped to [0, 1]. Here m has the body of w and the head v + (w − v) ⊙ W. Then it trains from m,
and sends what becomes of it.

A newcomer, like any client that was not drawn yet, is scored with w.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from cfljax import keys
from cfljax.lazy import jnp
from cfljax.local.train import Position, make_stepper, start_at
from cfljax.models.flat import head_of, part_of
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.recipes import (
    AVERAGES,
    Ask,
    AtHome,
    AtHomeState,
    GradientAt,
    OwnSteps,
    Solver,
    StepRule,
    Work,
    jobs_from,
    option,
)
from cfljax.types import Array, Federation, Hyper, LocalStep, Model, Tree

ABOUT = About(
    title="FedALA",
    family="personal",
    authors="Zhang et al.",
    year=2023,
    paper="FedALA: adaptive local aggregation for personalized federated learning",
    venue="AAAI",
    link="https://arxiv.org/abs/2212.01197",
)
READINGS = (
    Reading(
        "Mixed layers",
        paper="the p last; p = 1 in its comparisons",
        here="the last dense layer",
    ),
    Reading(
        "First learning of W",
        paper="until W has converged; its program: until the losses of ten passes are alike",
        here="a fixed number of passes",
        option="first_epochs",
    ),
    Reading(
        "Samples",
        paper="a random part of them",
        here="the first batches of a random order, in each pass another one",
        option="share",
    ),
    Reading(
        "Client that is not drawn",
        paper="keeps v and W; its program lets all clients learn W in each round, and puts the "
        "mixture in the place of v",
        here="it keeps both",
    ),
    Reading(
        "Client that trains for the first time",
        paper="all take part in the first round, from the first model",
        here="from w",
    ),
    Reading(
        "Scored model",
        paper="the beginning; its program lets all clients learn W in each round",
        here="the beginning by the W of a client's last round",
    ),
    BY_SAMPLES,
)


@dataclasses.dataclass(frozen=True)
class FedALA(AtHome):
    """FedALA: FedAvg whose clients begin with a mixture of the global head and their own.

    A client keeps v f32[d] and the weights W f32[d], of which the head's are used. When w f32[d]
    arrives it takes steps of length `eta` on W over `share` of its samples: `first_epochs` passes
    when it does so for the first time, then one pass a round. It trains from v + (w − v) ⊙ W, and
    `average` says how the results are averaged.
    """

    own_steps, vectors_kept = True, 2

    eta: float = option(
        1.0, "learning rate of the weights", low=0.0, traced=True, search=(0.1, 10.0, "log")
    )
    share: float = option(
        0.8,
        "share of its samples on which a client learns the weights",
        above=0.0,
        high=1.0,
        traced=True,
    )
    first_epochs: int = option(
        10, "passes over these samples when it does so for the first time; later one", low=1
    )
    average: str = option("samples", "weights of the participants", choices=AVERAGES)

    def first_home(self, w: Array, solver: Solver, federation: Federation, hyper: Hyper) -> Array:
        """Return what a client has before its first training: v is w_0, and all weights are 1."""
        return Home(w, jnp.ones_like(w), jnp.zeros(1)).write()

    def personal(self, state: AtHomeState) -> Array:
        """Return f32[C, d]: the model with which each client's local training would begin."""
        return mix_models(state.w, Home.read(state.rows))

    def receive(self, ask: Ask, state: AtHomeState) -> Array:
        """Let the participants learn W, but not before their first training."""
        home = state.rows[ask.cohort.ids]
        cohort = ask.cohort
        trainings = Home.read(home).trainings[:, 0]
        # All programs have as many epochs as the first time needs; later ones do one of them
        share = ask.hyper["share"] * jnp.where(trainings == 1, 1.0, 1 / self.first_epochs)
        learners = cohort._replace(mask=cohort.mask & (trainings > 0), work=share)
        jobs = jobs_from(learners, state.w, jnp.zeros_like(cohort.ids), home=home)
        solver = ask.solver.with_work(Work(self.first_epochs, None, ask.solver.work.batch))
        learner = solver.with_own_steps(lambda hyper, _: self.learn(solver.model, hyper))
        # A key of its own, so that W and the model are trained on other batches
        key = keys.fold(ask.key, "weights")
        learned = ask.train(learner, key, jobs).home
        assert learned is not None
        return learned

    def learn(self, model: Model, hyper: Hyper) -> OwnSteps:
        """Return the steps W ← W − eta ∇f(m) ⊙ (w − v), where m is the mixture, on the head's
        weights."""
        head = part_of(model, head_of(model))

        def begin(start: Tree, home: Array) -> tuple[Array, Array]:
            return model.ravel(start), home

        def step(
            gradient: GradientAt, at: tuple[Array, Array]
        ) -> tuple[tuple[Array, Array], Array]:
            w, vector = at
            home = Home.read(vector)
            found = gradient(model.unravel(mix_models(w, home)))
            moves = hyper["eta"] * model.ravel(found.grads) * (w - home.model)
            weights = jnp.clip(home.weights - jnp.where(head, moves, 0.0), 0.0, 1.0)
            return (w, home._replace(weights=weights).write()), found.loss

        def end(at: tuple[Array, Array]) -> tuple[Tree, Array]:
            w, vector = at
            return model.unravel(w), vector

        return OwnSteps(begin, step, end)

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return plain steps, which begin with the mixture. The trained model is the next v."""
        move = make_stepper(rule, LocalStep.of(hyper), ())

        def begin(start: Tree, home: Array) -> tuple[Position, Array]:
            mixture = mix_models(model.ravel(start), Home.read(home))
            return start_at(rule, model.unravel(mixture), None), home

        def step(
            gradient: GradientAt, at: tuple[Position, Array]
        ) -> tuple[tuple[Position, Array], Array]:
            position, home = at
            found = gradient(position.params)
            return (move(position, found), home), found.loss

        def end(at: tuple[Position, Array]) -> tuple[Tree, Array]:
            position, vector = at
            home = Home.read(vector)
            trained = Home(model.ravel(position.params), home.weights, home.trainings + 1)
            return position.params, trained.write()

        return OwnSteps(begin, step, end)


class Home(NamedTuple):
    """What a client has at home. Leading axes, as of clients, come before those here."""

    # f32[d]: v
    model: Array
    # f32[d]: W, of which the head's numbers are learned and all others stay 1
    weights: Array
    # f32[1]: how often the client has trained
    trainings: Array

    @classmethod
    def read(cls, vector: Array) -> Home:
        """Read it from a vector f32[2 d + 1]."""
        d = vector.shape[-1] // 2
        return cls(*jnp.split(vector, (d, 2 * d), axis=-1))

    def write(self) -> Array:
        """Return it as a vector f32[2 d + 1]."""
        return jnp.concatenate(self, axis=-1)


def mix_models(w: Array, home: Home) -> Array:
    """Return f32[d]: v + (w − v) ⊙ W for the global model w f32[d]."""
    # Written so that it is w to the bit where W is 1
    return w + (1 - home.weights) * (home.model - w)
