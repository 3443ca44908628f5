"""Runs that share shapes and static options share a batch and a program."""

import math

import pytest

from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.experiment.batching import (
    Size,
    check_memory,
    estimate_memory,
    format_bytes,
    list_hyper,
    make_batches,
    split_batch,
    static_key,
)
from cfljax.experiment.dry_run import dry_run
from tests.config.small import runs, spec

SIZE = Size(clients=100, parameters=1000, learners=100, pool_bytes=10**6)


def _programs(found):
    return {batch.program_key for batch in found}


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 8, 20, 1000])
def test_every_run_is_in_one_batch_and_each_method_needs_one_program(limit):
    methods = [
        "fedavg",
        {"name": "fedprox", "mu": [0.1, 1]},
        {"name": "cfl_mgd", "beta": [0.1, 0.5]},
    ]
    found = runs(spec(method=methods, train={"lr": "log(1e-3, 1, 4)"}, seeds="0:5"))
    made = make_batches(found, limit)
    assert sorted(run.id for batch in made for run in batch.runs) == sorted(run.id for run in found)
    assert all(1 <= len(batch.runs) <= batch.width <= limit for batch in made)
    assert len(_programs(made)) == 3
    assert len({batch.id for batch in made}) == len(made)
    assert len(made) <= sum(math.ceil(n / limit) for n in (20, 40, 40))


def test_traced_numbers_and_seeds_share_a_program_and_static_options_do_not():
    one = static_key(runs(spec())[0])
    for change in ("train.lr=0.7", "train.lr=1e30", "train.lr_decay=0.9", "seeds=[4]"):
        assert static_key(runs(spec(), change)[0]) == one
    for change in (
        "train.rounds=3",
        "train.batch=5",
        "model.hidden=[3]",
        "data.clients=7",
        "data.seed=1",
        "train.optimizer=adam",
    ):
        assert static_key(runs(spec(), change)[0]) != one
    prox = spec(method="fedprox")
    assert static_key(runs(prox)[0]) == static_key(runs(prox, "method.fedprox.mu=3")[0])
    assert static_key(runs(prox)[0]) != static_key(runs(prox, "method.fedprox.average=uniform")[0])


def test_code_is_shared_whatever_the_data_the_rounds_and_the_participants():
    def key(*changes):
        (batch,) = make_batches(runs(spec(), *changes)[:1], 1)
        return batch.code_key

    for change in ("data.clients=7", "train.rounds=3", "train.participation=0.5", "train.lr=0.7"):
        assert key(change) == key()
    for change in ("train.epochs=3", "model.hidden=[3]", "train.plan.clients=200"):
        assert key(change) != key()


def test_labels_do_not_split_batches():
    methods = [{"name": "fedprox", "mu": 0.1, "label": "weak"}, {"name": "fedprox", "mu": 1}]
    assert len(make_batches(runs(spec(method=methods)), 8)) == 1


def test_runs_with_data_of_their_own_have_batches_of_their_own_and_one_program():
    made = make_batches(
        runs(spec(data={"name": "digits", "seed": "run"}, seeds="0:3", train={"lr": [0.1, 0.2]})), 8
    )
    assert len(made) == 3
    assert len(_programs(made)) == 1
    assert len({static_key(batch.first) for batch in made}) == 3


def test_numbers_reach_the_program_stacked_and_padded():
    (first, second) = make_batches(
        runs(spec(method="fedprox", train={"lr": [0.1, 0.2, 0.3]}, seeds=[7])), 2
    )
    assert first.hypers == [{"lr": lr, "lr_decay": 1.0, "mu": 1.0} for lr in (0.1, 0.2)]
    assert (len(second.runs), [hyper["lr"] for hyper in second.hypers], second.seeds) == (
        1,
        [0.3, 0.3],
        [7, 7],
    )
    assert second.hypers[0] == second.hypers[1] == list_hyper(second.first)


def test_numbers_that_mean_nothing_at_zero_are_absent():
    (run,) = runs(spec(), "train.momentum=0.9", "train.stragglers=0.1")
    assert set(list_hyper(run)) == {"lr", "lr_decay", "momentum", "stragglers", "straggler_work"}
    (run,) = runs(spec(), "train.dropout=0.5", "train.weight_decay=1e-4")
    assert set(list_hyper(run)) == {"lr", "lr_decay", "weight_decay", "dropout"}
    assert len(_programs(make_batches(runs(spec(), "train.momentum=0,0.5,0.9"), 8))) == 2


def test_the_limit_may_depend_on_the_group():
    found = runs(spec(method=["fedavg", "ifca"], seeds="0:6"))
    made = make_batches(found, lambda group: 2 if group[0].method == "ifca" else 6)
    assert [len(batch.runs) for batch in made] == [6, 2, 2, 2]
    with pytest.raises(ValueError, match="at least one"):
        make_batches(found, 0)


def test_a_batch_that_does_not_fit_is_halved():
    (batch,) = make_batches(runs(spec(seeds="0:5")), 8)
    two = split_batch(batch)
    assert [run for half in two for run in half.runs] == list(batch.runs)
    assert [half.width for half in two] == [3, 3]
    assert len(_programs(two)) == 1
    assert _programs(two) == _programs(make_batches(runs(spec(seeds="0:6")), 3))
    single = make_batches(runs(spec()), 1)[0]
    assert split_batch(single) == [single]
    assert estimate_memory(two[0], SIZE) < estimate_memory(batch, SIZE)


def test_a_dry_run_counts_runs_batches_programs_memory_and_bytes():
    found = runs(
        spec(method=["fedavg", "ifca"], train={"rounds": 10, "participation": 20}, seeds="0:5")
    )
    text = dry_run(make_batches(found, 2), SIZE)
    assert text.startswith("runs 10, batches 6, programs to compile 2")
    fedavg = next(line for line in text.splitlines() if line.split()[1:2] == ["fedavg"])
    assert " 4 MB      4 MB " in fedavg  # 5 runs × 10 rounds × 20 clients × 4,000 bytes
    assert (
        dry_run(make_batches(found, 2), SIZE, sent=["  ifca: K models"]).splitlines()[-2]
        == "  ifca: K models"
    )
    assert dry_run(make_batches(found, 2), lambda batch: SIZE) == text
    assert dry_run([], SIZE).startswith("runs 0")


def real(name, participants=100, **options):
    table = {
        "name": "real",
        "data": {"name": "blobs", "clients": 1_000_000},
        "method": [{"name": name} | options],
    }
    return make_batches(
        read_spec(table | {"train": {"rounds": 1, "participation": participants}}).runs(), 1
    )


MILLION = Size(clients=1_000_000, parameters=18_948, learners=1_000_000)


@pytest.mark.parametrize(
    "name", ["local", "ditto", "fedbcd", "fesem", "fedsoft", "apfl", "pfedme", "per_fedavg"]
)
def test_a_model_for_each_of_a_million_clients_is_refused_with_the_figure(name):
    (batch,) = real(name)
    assert f"{name} holds for its clients: 75.8 GB" in dry_run([batch], MILLION)
    with pytest.raises(
        SpecError,
        match=r"1,000,000 clients, 18,948 parameters\) would take 75.8 GB of memory, and there is "
        r"8 GB",
    ):
        check_memory(batch, MILLION, 8 * 10**9)


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_so_is_a_control_vector_for_each_of_them(name):
    (batch,) = real(name)
    with pytest.raises(
        SpecError, match=f"{name}: its state per client .* would take 75.8 GB of memory"
    ):
        check_memory(batch, MILLION, 8 * 10**9)


@pytest.mark.parametrize("name", ["ocfl", "one_shot"])
def test_so_are_the_updates_of_all_of_them_unless_they_are_sketches(name):
    (batch,), (sketched,) = real(name, similarity="exact"), real(name, similarity="sketch")
    with pytest.raises(
        SpecError, match='would take 75.8 GB of memory.*similarity = "sketch" needs less'
    ):
        check_memory(batch, MILLION, 20 * 10**9)
    check_memory(sketched, MILLION, 20 * 10**9)


def test_memory_does_not_grow_with_participants_where_updates_come_in_blocks():
    for name, options in (
        ("fedavg", {}),
        ("ifca", {"clusters": 4}),
        ("ccs_rfedavg", {"similarity": "sketch"}),
    ):
        (batch,) = real(name, 100_000, **options)
        assert estimate_memory(batch, MILLION) < 4e9
    (batch,) = real("ccs_rfedavg", 10_000)
    assert estimate_memory(batch, MILLION) > 4 * 10_000 * 18_948 * 4


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.7, "1 kB"),
        (12345, "12.3 kB"),
        (999_600, "1 MB"),
        (5e15, "5e+03 TB"),
    ],
)
def test_amounts_of_bytes(count, text):
    assert format_bytes(count) == text
