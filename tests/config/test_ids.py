"""The id of a run changes with what matters and with nothing else."""

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest

from cfljax.config import read_spec
from cfljax.config.revisions import REVISIONS
from cfljax.registry.options import option
from tests.config.small import SMALL, SOURCES, Synthetic, read, runs, spec

WHOLE = {"data": "digits", "method": "fedavg"}
LATE, NEW = {"arrive": {"clients": 2, "round": 3}}, {"new_clients": {"share": 0.2}}
TURNS, RELABELS, MOVES = (
    {"what": what, "kind": "sudden", "at": [3], "share": 0.5}
    for what in ("rotation", "labels", "group")
)
TOML = """
name = "a"
data = { name = "synthetic", model_spread = 1, partition = "rotated", groups = 4 }
model = { name = "mlp", hidden = [200] }
train = { rounds = 50, participation = 0.5, steps = 10, batch = "full", lr = 0.1, optimizer = { name = "adam", b1 = 0.5, eps = 1 } }
seeds = [3]
[[method]]
name = "cfl_mgd"
clusters = 4
beta = 1
"""
COSMETIC = [
    ('name = "a"', 'name = "another"'),
    ('name = "a"', '# a comment\nname = "a"'),
    ('name = "a"', ""),
    ("model_spread = 1,", "model_spread = 1.0,"),
    ("beta = 1", "beta = 1.0"),
    ("beta = 1", 'beta = 1\nlabel = "ours"'),
    ("beta = 1", "beta = [1]"),
    ("beta = 1", 'beta = "lin(1, 2, 1)"'),
    ("beta = 1", 'estimate = "full"\nbeta = 1'),
    ("rounds = 50", "rounds = 50, lr_decay = 1.0, momentum = 0"),
    ("rounds = 50", "rounds = 50, momentum = -0.0"),
    ("rounds = 50, participation = 0.5", "participation = 0.5, rounds = 50"),
    ("seeds = [3]", 'seeds = "3:4"'),
    ("clusters = 4\nbeta = 1", "beta = 1\nclusters = 4"),
    ("b1 = 0.5, eps = 1", "eps = 1.0, b1 = 0.5"),
    ("hidden = [200]", "hidden = [[200]]"),
    ('name = "synthetic", model_spread = 1', 'model_spread = 1, name = ["synthetic"]'),
    ("groups = 4", "groups = 4, users = 100, seed = 0"),
    ("[[method]]", "[defaults]\nclusters = 9\n[[method]]"),
    ("[[method]]", "[size.small]\ntrain.rounds = 3\n[[method]]"),
    ("seeds", "samples = 3\nseeds"),
]
MATTERS = [
    ('"synthetic", model_spread = 1', '"synthetic", model_spread = 2'),
    ('partition = "rotated", groups = 4', 'partition = "iid"'),
    ("groups = 4", "groups = 5"),
    ("groups = 4", "groups = 4, seed = 1"),
    ("groups = 4", 'groups = 4, seed = "run"'),
    ("groups = 4", 'groups = 4, normalise = "pixel"'),
    ("groups = 4", "groups = 4, users = 50"),
    ("groups = 4", "groups = 4, arrive = { clients = 2, round = 3 }"),
    ("groups = 4", "groups = 4, angles = [0]"),
    ('"mlp", hidden = [200]', '"mclr"'),
    ("[200]", "[201]"),
    ("[200]", "[200, 200]"),
    ("rounds = 50", "rounds = 51"),
    ("participation = 0.5", "participation = 0.6"),
    ("participation = 0.5", "participation = 1"),
    ("steps = 10", "epochs = 10"),
    ("steps = 10", "steps = 11"),
    ('batch = "full"', "batch = 10"),
    ("lr = 0.1", "lr = 0.1000000001"),
    ("lr = 0.1", "lr = 1e30"),
    ('"adam"', '"adamw"'),
    ("b1 = 0.5", "b1 = 0.6"),
    ("rounds = 50", "rounds = 50, eval_every = 2"),
    ("rounds = 50", 'rounds = 50, precision = "high"'),
    ("rounds = 50", "rounds = 50, dropout = 0.1"),
    ("seeds = [3]", "seeds = [4]"),
    ("clusters = 4", "clusters = 3"),
    ("beta = 1", "beta = 0.9"),
    ("beta = 1", 'beta = 1\nestimate = "batch"'),
    ("beta = 1", "beta = 1\ntrain = { rounds = 9 }"),
    ('"cfl_mgd"\nclusters = 4\nbeta = 1', '"ifca"\nclusters = 4'),
]


def _id(tmp_path, text):
    path = tmp_path / "spec.toml"
    path.write_text(text)
    (run,) = read(path).runs()
    return run.id


@pytest.mark.parametrize(("old", "new"), COSMETIC)
def test_cosmetic_edits_leave_the_id(tmp_path, old, new):
    assert old in TOML
    assert _id(tmp_path, TOML) == _id(tmp_path, TOML.replace(old, new, 1))


def test_what_matters_changes_the_id(tmp_path):
    ids = {_id(tmp_path, TOML)}
    for old, new in MATTERS:
        assert old in TOML
        made = _id(tmp_path, TOML.replace(old, new, 1))
        assert made not in ids, (old, new)
        ids.add(made)


def test_how_files_are_checked_does_not_matter():
    (one,), (other,) = (runs(spec(data={"name": "mnist", "checksums": c})) for c in (True, False))
    assert one.cheap_id == other.cheap_id


def test_an_option_that_is_added_changes_no_id_at_its_default(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Later(Synthetic):
        noise: float = option(0.0)

    (before,) = runs(spec(data="synthetic"))
    monkeypatch.setitem(SMALL[SOURCES], "synthetic", Later)
    (default,), (other,) = (
        runs(spec(data={"name": "synthetic", **more})) for more in ({"noise": 0.0}, {"noise": 0.1})
    )
    assert before.id == default.id != other.id


def test_another_version_of_results_has_other_ids(monkeypatch):
    (before,), (after,) = runs(spec()), runs(spec())
    first = before.id
    monkeypatch.setattr("cfljax.config.run.RESULTS_VERSION", 2)
    assert after.id != first


MENDED = {
    "normalise": [
        {"data": {"name": "digits", "normalise": "pixel"}},
        {"data": {"name": "digits", "normalise": "pixel_all", "partition": "rotated"}},
        {"data": {"name": "digits", "normalise": "pixel_all", "views": ["rotated"]}},
        {"data": {"name": "digits", "normalise": "pixel_all", "drift": TURNS}},
    ],
    "freeze": [
        {"model": {"name": "cnn", "norm": "batch"}, "train": {"freeze": "norm"}},
        {"model": {"name": "cnn", "norm": "batch"}, "train": {"freeze": ["body"]}},
    ],
    "pacfl.arrive": [{"method": "pacfl", "data": {"name": "digits", **LATE, **NEW}}],
    "drift.labels": [
        {"method": name, "data": {"name": "digits", "drift": RELABELS}}
        for name in ("fedrod", "ccs_rfedavg")
    ]
    + [
        {
            "method": "ccs_rfedavg",
            "data": {"name": "digits", "partition": "label_swap", "drift": MOVES},
        }
    ],
    "fedgroup.statistics": [
        {
            "model": {"name": "cnn", "norm": "batch"},
            "method": {"name": "fedgroup", "eta_g": 0.1},
        }
    ],
    "flux": [{"method": "flux"}],
    "fedccfa": [{"method": "fedccfa"}],
    "compress.statistics": [
        {"model": {"name": "cnn", "norm": "batch"}, "train": {"compress": "sign"} | more}
        for more in (
            {},
            {"freeze": "head"},
            {"parts": {"norm": "all"}},
            {"parts": {"head": "client"}},
        )
    ],
}
AS_BEFORE = [
    {},
    {"data": {"name": "digits", "normalise": "pixel_all"}},
    {"data": {"name": "digits", "normalise": "none", "partition": "rotated"}},
    {"model": {"name": "cnn", "norm": "batch"}, "train": {"freeze": "head"}},
    {"model": {"name": "cnn"}, "train": {"freeze": "body"}},
    {"method": "pacfl", "data": {"name": "digits", **LATE}},
    {"method": "pacfl", "data": {"name": "digits", **NEW}},
    {"method": "fedgroup", "model": {"name": "cnn", "norm": "batch"}},
    {"model": "cnn", "train": {"compress": "sign"}},
    {"model": {"name": "cnn", "norm": "batch"}, "train": {"compress": "none"}},
    {
        "model": {"name": "cnn", "norm": "batch"},
        "train": {"compress": "sign", "parts": {"norm": "client"}},
    },
    {"model": {"name": "cnn", "norm": "batch"}, "train": {"compress": "sign"}, "method": "fedbn"},
    {"model": {"name": "cnn", "norm": "batch"}, "train": {"compress": "sign"}, "method": "local"},
    {"method": {"name": "fedgroup", "eta_g": 0.1}, "model": "cnn"},
    {"method": "fedrod"},
    {"method": "fedrod", "data": {"name": "digits", "drift": TURNS}},
    {"method": "fedrod", "data": {"name": "digits", "partition": "rotated", "drift": MOVES}},
    {"method": "fedavg", "data": {"name": "digits", "drift": RELABELS}},
]


def test_results_that_are_mended_have_other_ids_and_all_others_have_their_own(monkeypatch):
    def ids():
        tables = [*(table for each in MENDED.values() for table in each), *AS_BEFORE]
        return [read_spec(WHOLE | table).runs()[0].id for table in tables]

    now = ids()
    monkeypatch.setattr("cfljax.config.run.list_revisions", lambda run: ())
    before = ids()
    changed = [a != b for a, b in zip(now, before, strict=True)]
    assert changed == [True] * (len(now) - len(AS_BEFORE)) + [False] * len(AS_BEFORE)
    assert [name.split()[0] for name in REVISIONS] == list(MENDED)


def test_a_count_of_one_is_not_a_fraction_of_one():
    (one,), (all_of_them,) = (runs(spec(train={"participation": p})) for p in (1, 1.0))
    assert one.id != all_of_them.id


def test_the_seed_of_the_data_follows_the_run_when_told_to():
    follows = runs(spec(data={"name": "digits", "seed": "run"}, seeds=[3, 4]))
    (fixed,) = runs(spec(data={"name": "digits", "seed": 4}, seeds=[4]))
    assert [run.data_seed for run in follows] == [3, 4]
    assert follows[1].id == fixed.id != follows[0].id
    assert follows[1].resolved()["data"]["seed"] == 4
    assert "data.seed" not in follows[0].varies


def test_a_resolved_run_reads_back_as_itself(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(TOML)
    (run,) = read(path).runs()
    (again,) = runs(run.resolved())
    assert again == run
    assert again.id == run.id
    assert again.resolved() == run.resolved()


def test_late_clients_read_back():
    for arrive in (
        {"clients": 2, "round": 3},
        {"rate": 0.2, "from": 1, "until": 9},
        {"rate": 0.2, "round": 3},
    ):
        (run,) = runs(spec(data={"name": "digits", "arrive": arrive}))
        (again,) = runs(run.resolved())
        assert again.id == run.id


def test_ids_do_not_depend_on_the_process():
    code = (
        "from tests.config.small import runs, spec; print(runs(spec(data={'name': 'synthetic', "
        "'users': 7}))[0].id)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    (run,) = runs(spec(data={"users": 7, "name": "synthetic"}))
    assert found == run.id + "\n"


def test_runs_survive_pickling_and_hash():
    (run,) = runs(spec(train={"optimizer": {"name": "adam", "b1": 0.5}}))
    again = pickle.loads(pickle.dumps(run))
    assert again == run
    assert again.id == run.id
    assert hash(again) == hash(run)
    assert again.train.optimizer_pair == ("adam", {"b1": 0.5})


def test_reading_leaves_the_dict_alone():
    table = spec(
        train={"lr": [0.1, 0.2]},
        method=[{"name": ["ifca", "fedavg"], "clusters": 3}],
        size={"small": {"seeds": [1]}},
    )
    before = copy.deepcopy(table)
    runs(table, "size=small", "method.ifca.clusters=5", "train.lr=3")
    assert table == before
