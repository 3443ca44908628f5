"""`average = "nova"` against a plain numpy program with stragglers, and where it is another
average."""

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.kernels.mix import fednova_weights, weights_by
from cfljax.local.averages import sum_factors
from cfljax.methods import METHODS
from cfljax.round.common import first_models
from cfljax.types import LocalStep
from tests import play, toy
from tests.often import KINDS, rarely
from tests.reference import plain, server

SEED, ROUNDS, PARTICIPANTS = 5, 3, 5
SLOW = {"stragglers": 0.5, "straggler_work": 0.3}
EPOCHS = {"epochs": 2, "batch": 5}


def nova_methods():
    fields = {
        name: METHODS.entry(name).options.__dataclass_fields__.get("average") for name in METHODS
    }
    return [
        name
        for name, field in fields.items()
        if field is not None and "nova" in field.metadata["choices"]
    ]


def work_of(key, uid):
    """The share of its steps that a participant does, as the package draws it."""
    luck = np.asarray(keys.scores(key, "straggler", np.array([uid])) >> 8)[0] / 2**24
    return SLOW["straggler_work"] if luck < SLOW["stragglers"] else 1.0


@pytest.mark.parametrize(("name", "options", "numbers"), [
    rarely("fedavg", {}, {}), rarely("fedavg", {}, {"momentum": 0.8}), rarely("fedprox", {"mu": 3.0}, {}),
    ("fedprox", {"mu": 2.0}, {"momentum": 0.5}), rarely("ifca", {"clusters": 2}, {}),
], ids=["fedavg", "momentum", "proximal", "both", "ifca"])  # fmt: skip
def test_rounds_follow_the_plain_program(name, options, numbers):
    federation, k = toy.federation("quantity", clients=7, sigma=1.0), options.get("clusters", 1)
    hyper = SLOW | numbers
    out = play.rounds(
        name,
        federation,
        ROUNDS,
        PARTICIPANTS,
        SEED,
        work=EPOCHS,
        hyper=hyper,
        average="nova",
        **options,
    )
    starts = first_models(keys.root(SEED), toy.model(), k)
    local = numbers | ({"mu": options["mu"]} if "mu" in options else {})
    given = plain.Net(6, 4), plain.Clients(federation), starts, SEED, ROUNDS, PARTICIPANTS, work_of
    wanted = server.nova(*given, **local)
    for t in range(ROUNDS):
        assert np.abs(out.models(t + 1) - wanted[t]).max() < 2e-5
    every_step_alike = server.nova(*given, normalise=False, **local)
    assert np.abs(out.models() - every_step_alike[-1]).max() > 2e-3  # steps count


def nova_and_samples(name, work, hyper=None):
    """Three rounds of a method with either average, and how many take part."""
    options, everybody = play.options(name), 9 if name in play.EVERYBODY else 5
    given = {"work": work, "hyper": hyper, "model": options.pop("model", None)} | options
    runs = [
        play.rounds(name, play.nine_clients(), 3, everybody, SEED, average=each, **given)
        for each in ("nova", "samples")
    ]
    return *runs, everybody


@pytest.mark.parametrize("name", ["fedavg"])
def test_with_equal_steps_it_is_the_mean_by_samples(name):
    nova, samples, everybody = nova_and_samples(name, {"steps": 3, "batch": 5})
    assert np.allclose(nova.models(), samples.models(), atol=1e-5) and np.array_equal(
        nova.labels(), samples.labels()
    )
    for told, plainly in zip(nova.infos, samples.infos, strict=True):
        more = [int(a) - int(b) for a, b in zip(told.traffic, plainly.traffic, strict=True)]
        drawn = {
            "ocfl": [told.diag.get("participants")],
            "fl_hc": [5, 9],
            "fedgwc": [3],
        }  # fl_hc: once everybody
        assert more[:3] == [0, 0, 0] and more[3] in drawn.get(
            name, [everybody]
        )  # each participant sends its length


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in nova_methods() if name in KINDS])
def test_with_stragglers_it_is_not(name):
    nova, samples, _ = nova_and_samples(name, {"steps": 8}, SLOW)
    least = 1e-4 if name != "joint" else 0.0  # its steps are local_steps, one
    assert (
        nova.models().shape != samples.models().shape
        or np.abs(nova.models() - samples.models()).max() >= least
    )


def test_lengths_are_those_of_each_gradient_followed_on_its_own():
    steps = np.array([0, 1, 2, 5, 17], np.int32)
    for momentum, mu in ((None, None), (0.9, None), (None, 4.0), (0.5, 2.0), (0.0, 0.0)):
        found = sum_factors(jnp.asarray(steps), LocalStep(jnp.float32(0.1), momentum, mu=mu))
        wanted = [server.length(int(n), 0.1, momentum or 0.0, mu or 0.0) for n in steps]
        assert np.allclose(found, wanted, rtol=1e-5)
        assert (
            momentum is None or not mu or wanted[-1] > 5.5
        )  # with negative factors the plain sum is 4.98


def test_a_straggler_weighs_by_its_samples_and_the_whole_step_is_the_mean_length():
    mix = weights_by(
        np.array([0, 0, 1, -1], np.int32), np.ones(4, bool), np.array([3.0, 1.0, 2.0, 9.0]), 3
    )
    found = np.asarray(fednova_weights(mix, np.array([2.0, 10.0, 4.0, 0.0])))
    wanted = np.array([[0.75 * 4 / 2, 0.25 * 4 / 10, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    assert np.allclose(found, wanted)


def test_no_share_of_a_straggler_gets_lost_with_no_step():
    found = np.asarray(fednova_weights(np.array([[0.5, 0.5]]), np.array([0.0, 4.0])))
    assert np.allclose(found, [[0.0, 0.25]])
