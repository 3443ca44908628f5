"""Random search beside grids."""

import numpy as np
import pytest

from cfljax.config.data import Arrive, draw_arrivals
from cfljax.errors import SpecError
from tests.config.small import read, runs, spec


def _lrs(written, **more):
    return [run.train.lr for run in runs(spec(train={"lr": written}, samples=200, **more))]


def test_samples_are_spread_over_the_range():
    drawn = np.array(_lrs("log(1e-4, 1e-2)"))
    assert len(set(drawn)) == 200
    assert (drawn >= 1e-4).all()
    assert (drawn <= 1e-2).all()
    assert 70 < (drawn < 1e-3).sum() < 130  # even on the logarithmic scale: half below the middle
    drawn = np.array(_lrs({"low": 1, "high": 3}))
    assert 70 < (drawn < 2).sum() < 130


def test_integers_reach_both_bounds():
    found = runs(
        spec(
            train={"epochs": {"low": 1, "high": 3}, "participation": {"low": 2, "high": 4}},
            samples=60,
        )
    )
    assert {run.train.epochs for run in found} == {1, 2, 3}
    assert {run.train.participation for run in found} == {2, 3, 4}
    assert {type(run.train.participation) for run in found} == {int}


def test_draws_are_the_same_for_all_methods_and_seeds_and_one_more_range_changes_none():
    methods = ["fedavg", "ifca"]
    found = runs(spec(method=methods, train={"lr": "log(1e-4, 1e-1)"}, samples=5, seeds="0:3"))
    assert len(found) == 30
    assert len({run.train.lr for run in found}) == 5
    more = runs(
        spec(
            method=methods,
            train={"lr": "log(1e-4, 1e-1)", "momentum": "lin(0, 0.9)"},
            samples=5,
            seeds="0:3",
        )
    )
    assert {run.train.lr for run in more} == {run.train.lr for run in found}
    assert len(more) == 30


def test_the_search_seed_changes_the_draws():
    assert set(_lrs("lin(0, 1)")) == set(_lrs("lin(0, 1)"))
    assert not set(_lrs("lin(0, 1)")) & set(_lrs("lin(0, 1)", search_seed=1))


def test_only_methods_with_a_range_are_sampled():
    found = runs(
        spec(
            method=["fedavg", {"name": "fedprox", "mu": "log(0.01, 1)"}],
            train={"lr": [0.1, 0.2]},
            samples=4,
        )
    )
    assert [run.method for run in found].count("fedavg") == 2
    assert [run.method for run in found].count("fedprox") == 8
    assert set(found[-1].varies) == {"train.lr", "method.mu"}


def test_rules_see_the_drawn_numbers():
    (first, *_) = runs(spec(train={"lr": "lin(0, 1)"}, samples=5))
    assert (
        len(
            runs(spec(train={"lr": "lin(0, 1)"}, samples=5, exclude=[{"train.lr": first.train.lr}]))
        )
        == 4
    )


def test_samples_without_a_range_are_asked_about():
    assert "no option has a range" in read(spec(samples=5)).warnings[0]


def test_late_clients_come_when_they_should():
    assert not draw_arrivals(None, np.ones(7, bool), 0).any()
    rounds = draw_arrivals(Arrive(clients=3, first=5, last=5), np.ones(10, bool), 0)
    assert sorted(rounds) == [0] * 7 + [5] * 3
    everybody = np.ones(1000, bool)
    rounds = draw_arrivals(Arrive(rate=0.5, first=10, last=19), everybody, 1)
    assert (rounds > 0).sum() == 500
    assert set(rounds[rounds > 0]) == set(range(10, 20))
    assert (rounds == draw_arrivals(Arrive(rate=0.5, first=10, last=19), everybody, 1)).all()
    assert (rounds != draw_arrivals(Arrive(rate=0.5, first=10, last=19), everybody, 2)).any()
    with pytest.raises(SpecError, match="only 2 clients that train"):
        draw_arrivals(Arrive(clients=3, first=1, last=1), np.array([True, False, True, False]), 0)


def test_only_clients_that_train_come_late():
    trains = np.arange(40) % 2 == 0
    rounds = draw_arrivals(Arrive(rate=0.5, first=5, last=5), trains, 0)
    assert (rounds[trains] == 5).sum() == 10 and not rounds[~trains].any()
