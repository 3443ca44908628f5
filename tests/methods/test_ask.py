"""What participants are asked for is billed by itself, whichever recipe asks, and sent as an update
is."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.extend import AtHome, Clustered, OwnSteps, Peers
from cfljax.local.send import Sending
from cfljax.round.entry import entry
from tests import play, toy


@dataclasses.dataclass(frozen=True)
class Steep(Clustered):
    """The cluster depends on the gradient at the first model."""

    chooses, clusters = True, 3

    def score(self, ask, state):
        found = ask.diag["found"] = ask.gradients(state.models)
        return found[:, :3].T


@dataclasses.dataclass(frozen=True)
class Listening(AtHome):
    """Participants compare three models before they train."""

    def receive(self, ask, state):
        ask.losses(jnp.tile(state.w, (3, 1)))
        return super().receive(ask, state)

    def steps(self, model, hyper, rule):
        step = lambda gradient, carry: (carry, gradient(carry[0]).loss)  # noqa: E731
        return OwnSteps(lambda start, home: (start, home), step, lambda carry: carry)


@dataclasses.dataclass(frozen=True)
class Curious(Peers):
    """Participants compare three models after they have trained."""

    def exchange(self, ask, before, after, arrived, home):
        ask.losses(jnp.tile(before.first, (3, 1)))
        return after, 0, 7


def one_round(recipe, **sending):
    solver, fed, hyper = (
        toy.solver(toy.model(), sending=Sending(**sending)),
        play.seven_clients(),
        {"lr": jnp.float32(0.1)},
    )
    method = entry("mine", recipe).make(recipe(), toy.model(), solver)
    key = keys.root(0)
    state = method.init(
        key, fed, hyper, {} if method.setup is None else method.setup(key, fed, hyper)
    )
    cohort = play.drawn(key, fed, 5, 0, hyper)
    return jax.jit(method.round)(key, state, fed, cohort, hyper)[1]


@pytest.mark.parametrize(
    ("recipe", "down", "up", "floats"), [(Steep, 3, 2, 0), (Listening, 3, 1, 0), (Curious, 3, 1, 7)]
)
def test_questions_are_billed(recipe, down, up, floats):
    assert [int(each) for each in one_round(recipe).traffic] == [5 * down, 5 * up, 0, floats]


def test_a_gradient_arrives_as_an_update_does():
    plain, signs = (
        np.abs(one_round(Steep, **sending).diag["found"]) for sending in ({}, {"compress": "sign"})
    )
    np.testing.assert_allclose(
        signs, np.broadcast_to(plain.mean(axis=1, keepdims=True), plain.shape), rtol=1e-5
    )


def test_clusters_that_nobody_joins_are_an_error():
    with pytest.raises(
        SpecError,
        match="method.idle: nobody joins its 3 clusters; set chooses = True, or write begin",
    ):
        type("Idle", (Clustered,), {"clusters": 3})().check_run("method.idle", Train(), None, None)
