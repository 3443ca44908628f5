"""Learning rates that change over the rounds."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.config.read import read_spec
from cfljax.config.train import Train
from cfljax.errors import SpecError
from cfljax.local.rates import MOST_ROUNDS, Schedule, at_round, before_rounds


def factors(name, rounds=None, **options):
    return np.array(Schedule(name, rounds=rounds, **options).factors())


def test_factors_are_those_of_the_formulas():
    half = (1 + np.cos(np.pi * np.arange(4) / 4)) / 2
    np.testing.assert_allclose(factors("cosine", 4), half)
    np.testing.assert_allclose(factors("cosine", 4, end=0.2), 0.2 + 0.8 * half)
    np.testing.assert_allclose(
        factors("warmup_cosine", 6, warmup=2, end=0.2), [0.5, 1.0, *(0.2 + 0.8 * half)]
    )
    np.testing.assert_allclose(factors("step", at=(2, 3)), [1, 1, 0.1, 0.01])
    np.testing.assert_allclose(factors("step", at=(1,), factor=0.5), [1, 0.5])
    np.testing.assert_allclose(factors("exponential", 3, factor=0.5), [1, 0.5, 0.25])
    np.testing.assert_allclose(factors("exponential", 3), [1, 0.99, 0.99**2])


def train(**options):
    made = Train(**options)
    made.check("train")
    return made


def test_a_schedule_is_as_long_as_the_run_unless_it_says_so():
    assert train(rounds=7, lr_schedule="cosine").lr_schedule.rounds == 7
    assert train(rounds=7, lr_schedule={"name": "cosine", "rounds": 5}).lr_schedule.rounds == 5
    assert train(rounds=7, lr_schedule={"name": "step", "at": (3,)}).lr_schedule.rounds is None
    server = {"name": "sgd", "lr": 1.0, "lr_schedule": "cosine"}
    assert train(rounds=7, server=server).server.lr_schedule.rounds == 7


def test_a_run_that_is_cut_short_keeps_the_schedule_of_the_whole():
    whole = train(rounds=90, lr_schedule="cosine")
    assert dataclasses.replace(whole, rounds=10).lr_schedule == whole.lr_schedule


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lr_schedule": "linear"}, 'train.lr_schedule.name = "linear": unknown'),
        ({"lr_schedule": {"name": "cosine", "at": (3,)}}, 'belongs to name = "step"'),
        ({"lr_schedule": {"name": "cosine", "factor": 0.5}}, '"step" or "exponential"'),
        ({"lr_schedule": "step"}, "train.lr_schedule.at: missing"),
        ({"lr_schedule": {"name": "step", "at": (3, 2)}}, "at = [3, 2]: must be in order"),
        ({"lr_schedule": {"name": "step", "at": (3, 3)}}, "at = [3, 3]: must be in order"),
        ({"lr_schedule": {"name": "step", "at": (3,), "rounds": 9}}, "leave it out"),
        ({"lr_schedule": "warmup_cosine", "rounds": 5}, "warmup = 5: must be less than its 5"),
        ({"lr_schedule": "cosine", "rounds": MOST_ROUNDS + 1}, "train.lr_schedule.rounds"),
        ({"lr_schedule": "cosine", "lr_decay": 0.9}, "train.lr_decay = 0.9: train.lr_schedule"),
        ({"server": {"name": "sgd", "lr": 1.0, "lr_schedule": "step"}}, "server.lr_schedule.at"),
    ],
)
def test_what_does_not_fit_is_told(options, said):
    with pytest.raises(SpecError) as error:
        train(**options)
    assert said in str(error.value)


def test_the_rate_of_the_server_has_a_schedule_of_its_own():
    hyper = {"lr": jnp.float32(2), "lr_decay": jnp.float32(0.5), "server.lr": jnp.float32(3)}
    hyper |= {"server.lr_factors": jnp.array([1.0, 0.1])}
    now = at_round(hyper, jnp.int32(5))
    assert float(now["lr"]) == 2 * 0.5**5 and float(now["server.lr"]) == np.float32(3) * np.float32(
        0.1
    )


def test_what_is_done_before_the_rounds_has_the_rate_of_the_first():
    hyper = {"lr": 2.0, "lr_decay": 0.5, "lr_factors": (0.25, 1.0), "server.lr": 3.0}
    assert before_rounds(hyper) == hyper | {"lr": 0.5}
    assert before_rounds({"lr": 2.0, "lr_decay": 0.5}) == {"lr": 2.0, "lr_decay": 0.5}


SPEC = {
    "data": {"name": "digits", "partition": "iid", "clients": 4},
    "model": "mclr",
    "method": "fedavg",
}


def trains(*sets, **given):
    return [run.train for run in read_spec(SPEC | {"train": given}, sets=sets).runs()]


def test_a_rate_and_its_schedule_are_written_together_or_apart():
    (together,) = trains(lr={"value": 0.2, "schedule": "step", "at": [3], "factor": 0.5}, rounds=9)
    (apart,) = trains(lr=0.2, lr_schedule={"name": "step", "at": [3], "factor": 0.5}, rounds=9)
    assert together == apart and together.lr == 0.2
    rate = {"value": 1.0, "schedule": "cosine"}
    (server,) = trains(server={"name": "adam", "lr": rate, "b1": 0.5}, rounds=9)
    assert server.server.lr == 1.0 and server.server.arguments == {"b1": 0.5}
    assert server.server.lr_schedule == Schedule("cosine", end=0.0, rounds=9)


def test_another_rate_is_laid_over_a_schedule():
    rate = {"value": 0.2, "schedule": "cosine"}
    for over in ("train.lr=[0.3, 0.4]", "train.lr.value=[0.3, 0.4]"):
        made = trains(over, lr=rate)
        assert [each.lr for each in made] == [0.3, 0.4]
        assert all(each.lr_schedule == Schedule("cosine", rounds=100) for each in made)
    for over in ("train.lr.schedule=exponential", "train.lr={schedule='exponential'}"):
        (made,) = trains(over, "train.lr.factor=0.9", lr=rate)
        assert made.lr == 0.2
        assert made.lr_schedule == Schedule("exponential", factor=0.9, rounds=100)
    (plain,) = trains('train.lr_schedule="none"', lr=rate)
    assert plain.lr_schedule is None and plain.lr == 0.2


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        ([0.1, {"value": 0.2, "schedule": "cosine"}], "give each schedule a table of its own"),
        ({"value": 0.2, "end": 0.1}, "train.lr.end: belongs to a schedule"),
    ],
)
def test_rates_that_cannot_be_read_are_told(rate, said):
    with pytest.raises(SpecError, match="train.lr") as error:
        trains(lr=rate)
    assert said in str(error.value)
