"""What runs take on this machine: kept as they end, and what a dry run says of others."""

from types import SimpleNamespace

import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.experiment import times
from cfljax.experiment.batching import Size, make_batches
from cfljax.experiment.dry_run import dry_run

SIZE = Size(clients=20, parameters=100, learners=20)


@pytest.fixture(autouse=True)
def empty(monkeypatch, tmp_path):
    monkeypatch.setenv("CFLJAX_CACHE", str(tmp_path))
    return tmp_path


def made(method="fedavg", data="blobs", **train):
    return make_batches(
        read_spec({"data": data, "train": {"rounds": 3} | train, "method": method}).runs(), 1
    )


def seconds(*found):
    return times.estimate(found, [SIZE] * len(found))


def test_a_run_that_ended_says_how_long_the_same_program_takes_for_more_rounds_and_nothing_is_known_before(
    empty,
):
    assert "a run" in dry_run(made(), SIZE) and "time on this machine: unknown" in dry_run(
        made(), SIZE
    )
    run = cfljax.run("fedavg", data="blobs", rounds=3)
    spent, (size,) = run.record["timings"], [Size(100, run.models.shape[1], 100)]
    (three,), (six,) = (times.estimate(made(rounds=n), [size]) for n in (3, 6))
    # Estimates are of one core
    cores = three / sum(spent.values())
    assert cores == pytest.approx(round(cores), rel=1e-6)
    # Three rounds and evaluations more than three rounds and four evaluations
    more = spent["train"] + 3 / 4 * spent["eval"]
    assert six - three == pytest.approx(cores * more, rel=1e-6)
    assert "time on this machine: about 0:" in dry_run(made(rounds=6), size) and " s\n" in dry_run(
        made(rounds=6), size
    )


def test_another_method_is_judged_by_its_kind_and_other_data_are_unknown():
    cfljax.run("fedavg", data="blobs", rounds=2)
    (known, again), (like,), (other,) = (
        seconds(*made() * 2),
        seconds(*made("ifca")),
        seconds(*made(data="digits")),
    )
    assert known > again > 0 and like > 0 and other is None  # a program is compiled once
    assert "at least" in times.describe_estimates([known, None])


@pytest.mark.parametrize(
    "written", ["{", "[1]", '{"a": 1}', '{"a": [1.0, 2.0, 3.0, NaN]}', '{"a": [1, 2, 3, 4]}']
)
def test_a_damaged_file_is_no_file(written, empty):
    cfljax.run("fedavg", data="blobs", rounds=1)
    (file,) = empty.glob("times-*.json")
    file.write_text(written)
    assert seconds(*made()) == [None]


def store(train, monkeypatch, busy=False, **seconds):
    """Store the times of a batch of FedAvg whose training took so long."""
    monkeypatch.setattr(times, "_is_busy", lambda: busy)
    (batch,) = made()
    spent = {"compile": 5.0, "train": train, "eval": 0.0, "setup": 1.0} | seconds
    output = SimpleNamespace(history={"round": [0, 1, 2, 3]}, seconds=tuple(spent.values()))
    times.store_times(batch, SIZE, [output], threads=1)
    return times.estimate([batch], [SIZE])[0]


def test_estimates_are_of_the_fastest_run_and_of_a_machine_that_is_not_busy(monkeypatch):
    assert store(60.0, monkeypatch, busy=True) == pytest.approx(66)  # better than nothing
    assert store(10.0, monkeypatch) == pytest.approx(16)
    assert store(30.0, monkeypatch, busy=True, compile=50.0) == pytest.approx(16)
    assert store(12.0, monkeypatch, setup=0.5) == pytest.approx(15.5)
    # Of another program the last run counts, because it need not be of the same size
    (other,) = seconds(*made("ifca"))
    assert other == pytest.approx(12 + 0.5 + 5)


def test_a_machine_is_busy_if_more_wants_to_run_than_it_has_cores(monkeypatch):
    monkeypatch.setattr(times.os, "cpu_count", lambda: 4)
    for load, busy in ((4.0, False), (5.5, True)):
        monkeypatch.setattr(times.os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert times._is_busy() == busy


@pytest.mark.parametrize(
    "evaluated, said",
    [
        (4.0, ""),
        # As half of the training they are an eighth: two of four in three rounds are left, at least
        (
            40.0,
            "evaluation takes about 80% of the time; train.eval_every = 3 saves 40%, "
            "train.eval_clients = 2 saves 72%",
        ),
    ],
)
def test_evaluations_that_take_more_than_a_third_are_told_with_what_changes_it(
    evaluated, said, monkeypatch
):
    store(10.0, monkeypatch, eval=evaluated)
    assert times.advise_on_evaluation(made(), [SIZE]) == [said]
    assert (f"  fedavg: {said}\n" in dry_run(made(), SIZE)) == bool(said)


def test_evaluations_that_are_rare_already_are_not_told(monkeypatch):
    store(10.0, monkeypatch, eval=40.0)
    # One before and one after 300 rounds, that took ten seconds each
    assert times.advise_on_evaluation(made(rounds=300, eval_every=300), [SIZE]) == [""]
