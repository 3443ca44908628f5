"""What is computed differently since 0.1 by methods: those runs have another id, and no others."""

import pytest

from cfljax.config import read_spec

DECAY = {"lr_decay": 0.9}
OPTION_ONE = {"name": "cfl_mgd", "aggregate": "gradient"}


@pytest.mark.parametrize(
    ("method", "train", "changes"),
    [
        ("fesem", {}, ["FeSEM's centres"]),
        ({"name": "joint", "loss_reduction": "sum"}, {}, ["penalty in a summed loss"]),
        ({"name": "joint", "similarity": "euclidean"}, DECAY, ["learning rate of scoring"]),
        ({"name": "fedgroup", "newcomer": "latest"}, DECAY, ["learning rate of scoring"]),
        ({"name": "fedgroup", "newcomer": "latest"}, {}, []),
        ({"name": "fedgroup", "newcomer": "latest"}, DECAY | {"score": "assigned"}, []),
        ({"name": "fedgroup", "newcomer": "latest", "assign": "random"}, DECAY, []),
        ("fedgroup", DECAY, []),
        ("joint", DECAY, []),
        ("ifca", DECAY, []),
        ("fedavg", {"robust": "krum"}, ["Krum's distances"]),
        ("fedavg", {"robust": "median"}, []),
        (OPTION_ONE, {"compress": "int8"}, ["CFL-MGD's one vector"]),
        (OPTION_ONE, {"attack": {"name": "sign_flip", "share": 0.1}}, ["CFL-MGD's one vector"]),
        (OPTION_ONE, {"attack": {"name": "label_flip", "share": 0.1}}, []),
        (OPTION_ONE, {}, []),
        ("cfl_mgd", {"compress": "int8"}, []),
        ("fedavg", {"dropout": 0.5, "participation": 2}, ["rounds without participants"]),
        ("fedavg", {"dropout": 0.5}, []),
        ("ocfl", {"dropout": 0.5}, ["rounds without participants"]),
        ("joint", {"dropout": 0.5}, ["Joint's last moves"]),
        ("ditto", {}, []),
        ("ditto", {"participation": 100}, []),
        ("ditto", {"participation": 99}, ["Ditto's clients not yet drawn"]),
        ("ditto", {"participation": 0.5}, ["Ditto's clients not yet drawn"]),
        ("ditto", {"dropout": 0.5}, ["Ditto's clients not yet drawn"]),
    ],
)
def test_runs_that_come_out_differently_say_so(method, train, changes):
    (run,) = read_spec({"data": "digits", "method": [method], "train": train}).runs()
    assert list(run.changes) == changes


@pytest.mark.parametrize("method", ["cfl_sattler", "fl_hc", "pacfl", "fedgroup"])
def test_late_clients_that_choose_by_loss_are_billed_for_all_models(method):
    late = {"arrive": {"clients": 5, "round": 3}}
    changes = [read_spec({"data": {"name": "digits"} | more, "method": [method]}).runs()[0].changes for more in ({}, late)]
    assert ["models to choose from" in each for each in changes] == [False, method != "fedgroup"]


def test_runs_that_draw_a_share_of_the_clients_of_which_some_never_train_say_so():
    def concerned(participation, **data):
        table = {"data": {"name": "digits", "partition": "rotated"} | data, "method": ["fedavg"]}
        (run,) = read_spec(table | {"train": {"participation": participation}}).runs()
        return "shares of the clients that train" in run.changes

    some, late = {"test_clients": 20}, {"arrive": {"clients": 5, "round": 3}}
    assert concerned(0.5, **some) and concerned(1.0, **some, **late)
    assert not (concerned(1.0, **some) or concerned(10, **some) or concerned(0.5) or concerned(0.5, **late))


@pytest.mark.parametrize(
    ("data", "concerned"),
    [
        ({"partition": "rotated", "test": "global"}, True),
        ({"partition": "rotated", "test": "global", "groups": 1}, False),
        ({"partition": "rotated"}, False),
        ({"partition": "dirichlet", "test": "global", "rotate": 2}, True),
        ({"partition": "dirichlet", "test": "global"}, False),
        ({"partition": "iid", "test": "global"}, False),
    ],
)
def test_runs_that_share_a_test_set_in_several_views_say_so(data, concerned):
    (run,) = read_spec({"data": {"name": "digits"} | data, "method": ["ifca"]}).runs()
    assert ("one test set in several views" in run.changes) == concerned


def test_runs_whose_pixels_were_those_of_test_samples_too_say_so():
    for how, concerned in (("pixel", True), ("pixel_all", False), ("unit", False)):
        (run,) = read_spec({"data": {"name": "digits", "normalise": how}, "method": ["fedavg"]}).runs()
        assert ("pixels of training samples" in run.changes) == concerned


@pytest.mark.parametrize(
    ("data", "concerned"),
    [
        ({"partition": "rotated", "test_clients": 4}, True),
        ({"partition": "rotated"}, False),
        ({"partition": "dirichlet", "min_samples": 0}, True),
        ({"partition": "dirichlet"}, False),
    ],
)
def test_runs_in_which_some_clients_never_train_say_so(data, concerned):
    (run,) = read_spec({"data": {"name": "digits"} | data, "method": ["ifca"]}).runs()
    assert ("clients that never train" in run.changes) == concerned


@pytest.mark.parametrize(
    ("clients", "test", "rounds", "change"),
    [
        (100, "global", 200, None),
        (20_000, "own", 200, None),
        (20_000, "global", 200, "sums of very many samples"),
        (1_000_000, "own", 100, None),
        (1_000_000, "own", 215, "sums of very much traffic"),
    ],
)
def test_runs_in_which_a_sum_ran_over_say_so(clients, test, rounds, change):
    data = {"name": "blobs", "partition": "iid", "clients": clients, "test": test}
    (run,) = read_spec({"data": data, "method": [{"name": "ifca", "clusters": 10}], "train": {"rounds": rounds}}).runs()
    assert list(run.changes) == ([] if change is None else [change])
