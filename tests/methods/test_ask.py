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
from cfljax.extend import AtHome, ByScore, Clustered, OwnSteps, Peers
from cfljax.local.compressors.sign import Sign
from cfljax.local.send import Sending
from cfljax.round.ask import Ask, ask_all
from cfljax.round.entry import entry
from tests import play, toy
from tests.often import rarely


@dataclasses.dataclass(frozen=True)
class Steep(Clustered):
    """The cluster depends on the gradient at the first model."""

    choice, clusters = ByScore(), 3

    def score(self, ask, state):
        found = ask.gradients(state.models)
        ask.show(found=found)
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
    """Participants compare three models after they have trained, and send seven numbers."""

    def exchange(self, ask, before, after, arrived, home):
        ask.losses(jnp.tile(before.first, (3, 1)))
        ask.upload(7)
        return after


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
    ("recipe", "down", "up", "floats"),
    [rarely(Steep, 3, 2, 0), rarely(Listening, 3, 1, 0), (Curious, 3, 1, 7)],
)
def test_questions_are_billed(recipe, down, up, floats):
    """Three models, one of which is trained: two more than without the question."""
    assert [int(each) for each in one_round(recipe).traffic] == [
        5 * each for each in (down, up, 0, floats)
    ]


COUNTED = {
    "download": (lambda ask, models: ask.download(models), (1, 0, 0, 0, 0)),
    "two models": (lambda ask, models: ask.download(models, each=2), (2, 0, 0, 0, 0)),
    "some": (lambda ask, models: ask.download(models, who=jnp.arange(5) < 0), (0, 0, 0, 0, 0)),
    "numbers down": (lambda ask, models: ask.download(4, each=jnp.int32(2)), (0, 0, 8, 0, 0)),
    "download_all": (lambda ask, models: ask.download_all(models), (2, 0, 0, 0, 0)),
    "upload": (lambda ask, models: ask.upload(), (0, 1, 0, 0, 0)),
    "losses": (lambda ask, models: ask.losses(models), (2, 0, 0, 0, 0)),
    "sample_losses": (lambda ask, models: ask.sample_losses(models), (2, 0, 0, 0, 0)),
    "gradients": (lambda ask, models: ask.gradients(models), (2, 1, 0, 0, 0)),
    "moves": (lambda ask, models: ask.moves(models[0], "updates", 1), (1, 1, 0, 0, 0)),
    "numbers up": (lambda ask, models: ask.upload(7, who=True), (0, 0, 0, 7, 0)),
    "updates": (lambda ask, models: ask.updates(models[0], epochs=1), (0, 0, 0, 0, 1)),
}
"""What asks, and what it bills for each participant: vectors down and up, numbers down and up; and
trainings before the round."""


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize(("depth", "asked"), [rarely(0, 5), rarely(1, 3), (2, 2)])
def test_what_some_are_asked_is_billed_to_the_round(name, depth, asked):
    """`depth`: asked of all five participants, of three of them, or of two of these three."""
    question, (*sent, trained) = COUNTED[name]
    federation, hyper = play.seven_clients(), {"lr": jnp.float32(0.1)}
    cohort = play.drawn(keys.root(0), federation, 5, 0, hyper)
    ask = Ask(toy.solver(toy.model()), keys.root(0), federation, cohort, hyper)
    some = ask
    for number in (3, 2)[:depth]:
        some = some.of(jnp.arange(5) < number)
    question(some, jnp.zeros((3, toy.model().size)))
    assert [int(each) for each in ask.bill()] == [each * asked for each in sent]
    count = ask.pretrained_count
    assert (count if trained == 0 else int(count)) == (trained * asked or None)


INSIDE = {
    "a branch": lambda asked, w: jax.lax.cond(w[0, 0] > 0, asked, jnp.sum, w),
    "a loop": lambda asked, w: jax.lax.fori_loop(0, 2, lambda _, w: w + asked(w), w),
    "map": lambda asked, w: jax.lax.map(lambda one: asked(one[None]), w),
    "vmap": lambda asked, w: jax.vmap(lambda one: asked(one[None]))(w),
    "jit": lambda asked, w: jax.jit(asked)(w),
    "grad": lambda asked, w: jax.grad(asked)(w),
}


@pytest.mark.parametrize("where", INSIDE)
@pytest.mark.parametrize("depth", [0, 1])
def test_a_question_inside_of_what_jax_traces_is_an_error(where, depth):
    """It would be billed once, however often it is asked there, or its count could not leave."""
    federation, hyper = play.seven_clients(), {"lr": jnp.float32(0.1)}

    def one_round(w):
        cohort = play.drawn(keys.root(0), federation, 5, 0, hyper)
        ask = Ask(toy.solver(toy.model()), keys.root(0), federation, cohort, hyper)
        some = ask.of(cohort.mask) if depth else ask
        return INSIDE[where](lambda models: jnp.sum(some.losses(models)), w)

    with pytest.raises(SpecError, match="branch, loop or vmap of JAX") as error:
        jax.eval_shape(one_round, jnp.zeros((3, toy.model().size)))
    assert "\n" not in str(error.value)


def test_clients_may_be_scored_inside_of_what_jax_traces():
    """Outside of a round nothing is sent."""
    federation, solver = play.seven_clients(), toy.solver(toy.model())

    def score(w):
        ask = ask_all(solver, keys.root(0), federation, federation.trains, {}, None)
        return jax.lax.map(lambda one: ask.losses(one[None])[0], w)

    assert jax.eval_shape(score, jnp.zeros((3, toy.model().size))).shape == (3, 7)


def test_what_is_shown_of_some_is_shown_of_the_round():
    ask = Ask(
        None,
        None,
        play.seven_clients(),
        play.drawn(keys.root(0), play.seven_clients(), 5, 0, {}),
        {},
    )
    ask.of(jnp.arange(5) < 3).of(jnp.arange(5) < 2).show(noted=jnp.int32(1))
    assert ask.shown == {"noted": 1}
    with pytest.raises(SpecError, match="a method shows 'noted' twice"):
        ask.show(noted=jnp.int32(2))
    with pytest.raises(SpecError, match="`ask.show` inside a branch, loop or vmap"):
        jax.eval_shape(jax.vmap(lambda one: ask.show(other=one)), jnp.zeros(3))


def test_a_gradient_arrives_as_an_update_does():
    plain, signs = (
        np.abs(one_round(Steep, **sending).diag["found"]) for sending in ({}, {"compress": Sign()})
    )
    np.testing.assert_allclose(
        signs, np.broadcast_to(plain.mean(axis=1, keepdims=True), plain.shape), rtol=1e-5
    )


def test_clusters_that_nobody_joins_are_an_error():
    with pytest.raises(
        SpecError,
        match="method.idle: no client joins its 3 clusters; write choice = ByScore\\(\\), or",
    ):
        type("Idle", (Clustered,), {"clusters": 3})().check_run("method.idle", Train(), None, None)


def test_an_exchange_that_returns_counts_is_told_how_to_bill_them():
    class Old(Curious):
        def exchange(self, ask, before, after, arrived, home):
            return after, 0, 7

    with pytest.raises(SpecError, match="Old.exchange returns the state alone now") as error:
        one_round(Old)
    assert "\n" not in str(error.value)
