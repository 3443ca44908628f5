"""Tuning: what climbs how far, that a run which has paused computes what a run at once does, and
that a search can be stopped."""

import dataclasses
import json

import numpy as np
import pytest

import cfljax
from cfljax.commands import tune as command
from cfljax.config import read_spec
from cfljax.devices.machine import describe_machine
from cfljax.engine.resume import Checkpoint, Spent
from cfljax.errors import SpecError, StoreError
from cfljax.launch import rung
from cfljax.launch import search_plan as halving
from cfljax.launch.batch import run_batch
from cfljax.launch.checkpoints import Checkpoints, to_arrays
from cfljax.launch.search_plan import plan_search
from cfljax.store import Store
from cfljax.store.units import read_search

DATA = {"name": "blobs", "samples": 120, "partition": "iid", "clients": 4}
TABLE = {
    "name": "small", "data": DATA, "model": "mclr", "seeds": [0, 1], "train": {"rounds": 6, "lr": [1e-4, 0.3, 0.01, 0.1]},
    "method": ["fedavg", {"name": "ifca", "clusters": 2}], "search": {"first": 1, "reduce": 2},
}  # fmt: skip


def test_rungs_and_counts():
    assert halving.list_rungs(10, 3, 200) == [10, 30, 90, 200]
    assert halving.list_rungs(10, 3, 200, 20) == [20, 40, 100, 200] and halving.list_rungs(
        10, 3, 5
    ) == [5]
    assert halving.count_settings(27, 4, 3) == [27, 9, 3, 1] and halving.count_settings(
        4, 4, 3
    ) == [4, 1, 1, 1]
    assert halving.count_cost(9, [10, 30, 90], 3) == 9 * 10 + 3 * 20 + 60
    assert halving.count_affordable(9, [10, 30, 90], 3, 9 * 10 + 3 * 20 + 60) == 9
    assert (
        halving.count_affordable(9, [10, 30, 90], 3, 209) == 8
        and halving.count_affordable(9, [10, 30, 90], 3, 89) == 0
    )
    assert halving.rank_best([0.1, None, 0.3, float("nan"), 0.3], 1, 3) == [
        2,
        4,
        0,
    ] and halving.rank_best([2.0, 1.0, None], -1, 1) == [1]
    assert (
        halving.draw_settings(5, 9) == [0, 1, 2, 3, 4]
        and halving.draw_settings(20, 4) == halving.draw_settings(20, 4)
        and len(set(halving.draw_settings(20, 4))) == 4
    )


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune") / "r"
    return cfljax.tune(TABLE, folder, metric="train_loss", quiet=True), folder


def test_each_method_spends_the_same_and_the_best_comes_to_the_end(searched):
    results, folder = searched
    table = read_search(Store(folder, read_only=True))
    assert table["rungs"] == [1, 2, 4, 6] and table["seeds"] == [10000]
    for group in table["groups"]:
        assert sorted(len(each["scores"]) for each in group["settings"]) == [1, 1, 2, 4]
        best = max(group["settings"], key=lambda each: len(each["scores"]))
        assert best["varies"] == {"train.lr": 0.3} and best["rounds"] == [1, 2, 3, 4, 5, 6]
        assert best["scores"] == [best["values"][at - 1] for at in (1, 2, 4, 6)]
    assert (
        len(results) == 2
        and {r.seed for r in results} == {10000}
        and {r.summary["rounds"] for r in results} == {6}
    )
    assert list((folder / "checkpoints").iterdir()) == []


def test_what_was_chosen_is_a_column_of_every_table_even_if_all_chose_the_same(searched):
    results, folder = searched
    for found in (results, cfljax.load(folder)):
        assert found.to_pandas()["train.lr"].tolist() == [0.3, 0.3]
        assert set(found.history()["train.lr"]) == {0.3}
        assert found.table()["lr"].tolist() == [0.3, 0.3]
        assert len(found.filter(lr=0.3, method="ifca")) == 1
    page = results.report(figures=False).read_text(encoding="utf-8")
    assert page.count("<small>lr=0.3</small></th>") == 2
    table = TABLE | {"method": "fedavg", "seeds": [0]}
    compared = cfljax.tune(
        table, folder.parent / "c", metric="train_loss", quiet=True, then_compare=[0, 1]
    )
    assert compared.to_pandas()[["train.lr", "seed"]].to_numpy().tolist() == [[0.3, 0], [0.3, 1]]


def test_without_ranges_declared_ones_are_searched(tmp_path):
    table = TABLE | {"train": {"rounds": 2, "lr": 0.1}, "samples": 3, "method": "fedprox"}
    results = cfljax.tune(table, tmp_path, metric="train_loss", quiet=True, then_compare=[0, 1])
    (group,) = read_search(Store(tmp_path, read_only=True))["groups"]
    tried = [each["varies"]["train.lr"] for each in group["settings"]]
    assert sorted(tried) == [0.01, 0.1, 1.0]
    assert {each["varies"]["method.mu"] for each in group["settings"]} == {0.001, 0.01, 0.1}
    assert len(results) == 2 and set(results.to_pandas()["train.lr"]) <= set(tried)


def test_fine_tuned_models_are_chosen_by_what_they_end_with(tmp_path):
    table = TABLE | {"method": "fedavg_ft", "search": {"first": 1}}
    table |= {"train": {"rounds": 2, "lr": [0.1, 0.01], "finetune_steps": 9}}
    table["data"] = table["data"] | {"validation": 0.2}
    results = cfljax.tune(table, tmp_path, quiet=True)
    (group,) = read_search(Store(tmp_path, read_only=True))["groups"]
    (last,) = [each for each in group["settings"] if len(each["scores"]) == 2]
    (result,) = results
    assert last["scores"][-1] == result.record["summary"]["val_accuracy_finetuned"]
    assert last["scores"][0] == result.history["val_accuracy"][1]
    assert last["scores"][-1] != result.history["val_accuracy"][-1]


def test_a_run_that_has_paused_is_bit_equal_to_one_at_once(searched):
    for result in searched[0]:
        own = {"clusters": 2} if result.method == "ifca" else {}
        once = cfljax.run(result.method, DATA, "mclr", seed=10000, rounds=6, lr=0.3, **own)
        assert once.run == result.run
        for name, array in result.arrays.items():
            assert np.array_equal(array, once.arrays[name], equal_nan=True), name


def test_runs_may_pause_in_one_batch_and_go_on_in_another(tmp_path, searched):
    runs = [
        run
        for run in read_spec(TABLE, ["seeds=[10000]", "method=fedavg"]).runs()
        if run.train.lr in (0.3, 0.1, 0.01)
    ]
    store = Store(tmp_path)
    wide = rung.Climber(store, describe_machine(), "labels", "train_loss", 3)
    wide.climb(runs, 2)
    assert [wide.count_rounds(run) for run in runs] == [2, 2, 2] and wide.read_curve(
        runs[0], 2
    ).rounds == [1, 2]
    assert wide.read_curve(runs[0], 1).rounds == [1]
    wide.climb(runs[1:2], 3)
    wide._replace(limit=2).climb(runs, 6)
    kept = {result.run: result for result in searched[0]}
    assert any(run.id in kept for run in runs)
    for run in runs:
        _, arrays = store.read(run.id)
        (_, once), *_ = run_batch(
            rung.batching.make_batches([run], 1)[0], describe_machine(), "labels"
        )
        assert all(np.array_equal(arrays[name], once[name], equal_nan=True) for name in arrays)


def test_a_search_that_is_stopped_goes_on_to_the_same_end(tmp_path, searched, monkeypatch):
    monkeypatch.setenv("CFLJAX_CHECKPOINT", "0")
    wanted = json.loads((searched[1] / "tune.json").read_text())
    climb, calls = rung.Climber._train, 0

    def stops(self, batch, until):
        nonlocal calls
        calls += 1
        if calls in (3, 7, 12):
            raise KeyboardInterrupt
        climb(self, batch, until)

    monkeypatch.setattr(rung.Climber, "_train", stops)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            cfljax.tune(TABLE, tmp_path / "r", metric="train_loss", quiet=True)
    results = cfljax.tune(TABLE, tmp_path / "r", metric="train_loss", quiet=True)
    assert json.loads((tmp_path / "r" / "tune.json").read_text()) == wanted
    assert {r.run for r in results} == {r.run for r in searched[0]}
    before = calls
    cfljax.tune(TABLE, tmp_path / "r", metric="train_loss", quiet=True)
    assert calls == before  # nothing is left to do


@dataclasses.dataclass(frozen=True)
class Labels:
    """Options of a data set whose test labels may be other ones."""

    shuffled: bool = cfljax.option(False, "whether the test labels are drawn at random")


def test_no_choice_looks_at_test_labels(tmp_path):
    @cfljax.register_data("twins", Labels)
    def twins(options, rng):
        y = np.arange(120) % 3
        x = (np.eye(3)[y] + rng.normal(0, 0.5, (120, 3))).astype(np.float32)
        tested = rng.permutation(y) if options.shuffled else y
        return {"x_train": x, "y_train": y, "x_test": x, "y_test": tested}

    scores, tests = [], []
    for shuffled in (False, True):
        table = TABLE | {
            "method": "fedavg",
            "data": {"name": "twins", "partition": "iid", "clients": 4, "shuffled": shuffled},
        }
        results = cfljax.tune(table, tmp_path / str(shuffled), metric="train_loss", quiet=True)
        (group,) = read_search(Store(tmp_path / str(shuffled), read_only=True))["groups"]
        scores.append(
            [(each["varies"], each["scores"], each["values"]) for each in group["settings"]]
        )
        tests.append([result.summary["accuracy_last"] for result in results])
    assert scores[0] == scores[1] and tests[0] != tests[1]


def test_a_budget_is_the_same_for_each_method_and_is_kept(tmp_path):
    table = TABLE | {"method": ["fedavg", {"name": "ifca", "clusters": [1, 2, 3, 4]}]}
    whole, bounded = (
        plan_search(read_spec(table), "train_loss"),
        plan_search(read_spec(table), "train_loss", budget=4),
    )
    assert [len(group.settings) for group in whole.groups] == [
        4,
        16,
    ] and "4 to 16 settings" in whole.warnings[-1]
    assert [len(group.settings) for group in bounded.groups] == [4, 5]
    for group in bounded.groups:
        assert halving.count_cost(len(group.settings), bounded.steps, 2) <= 4 * 6 / 2
    with pytest.raises(SpecError, match="--budget 1: one setting of each method takes 2 runs"):
        plan_search(read_spec(table), "train_loss", budget=1)


@pytest.mark.parametrize(("metric", "sets", "words"), [
    ("accuracy", [], "--metric accuracy: is measured on test data"), ("accuracy_last", [], "is measured on test data"),
    ("purity", [], "is not a metric to choose by"), ("val_accuracy", [], "add data.validation = 0.1"),
    ("train_loss", ["train.rounds=4,6"], "train.rounds = [4, 6]: a search needs one number"),
    ("train_loss", ["search.frist=2"], "search.frist: there is no such option"),
    ("train_loss", ["search.reduce=1"], "search.reduce = 1"),
])  # fmt: skip
def test_what_cannot_be_searched_is_refused_in_one_line(metric, sets, words):
    with pytest.raises(SpecError) as error:
        plan_search(read_spec(TABLE, sets), metric)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_another_search_needs_another_folder(searched):
    with pytest.raises(SpecError, match="record of another search"):
        cfljax.tune(TABLE | {"search": {"first": 2}}, searched[1], metric="train_loss", quiet=True)
    with pytest.raises(SpecError, match="seed 10000 was used to choose the settings"):
        cfljax.tune(TABLE, searched[1], metric="train_loss", quiet=True, then_compare=[0, 10000])


SPEC = """
data = { name = "blobs", samples = 120, partition = "iid", clients = 4 }
model = "mclr"
samples = 3
train = { rounds = 6, lr = "log(1e-3, 1)" }
method = ["fedavg", "local"]
search = { first = 2, seeds = "100:102" }
"""


@pytest.mark.long
def test_the_command_compares_the_best_on_fresh_seeds(tmp_path, capsys):
    spec, out = tmp_path / "small.toml", tmp_path / "r"
    spec.write_text(SPEC)
    (tmp_path / "own.py").write_text("")
    words = [
        str(spec),
        "--plugin",
        str(tmp_path / "own.py"),
        "--metric",
        "train_loss",
        "--out",
        str(out),
        "--no-cache",
        "--quiet",
    ]
    flags = command.parser().parse_args(
        [*words, "--dry-run", "--budget", "9", "--keep", "labels", "--set", "search.reduce=3"]
    )
    assert command.run(flags) == 0 and not out.exists()
    assert "fedavg: 3 settings of 2 seeds: 3 to round 2, 1 to round 6" in capsys.readouterr().out
    assert command.run(command.parser().parse_args([*words, "--then-compare", "0:3"])) == 0
    said = capsys.readouterr().out
    assert "best setting" in said and "runs spent" in said and " last " in said
    results = cfljax.load(out)
    assert {result.seed for result in results} == {0, 1, 2} and len(results) == 6
    page = (out / "report" / "index.html").read_text(encoding="utf-8")
    assert (
        "Successive halving by train_loss, with seeds 100, 101" in page
        and "chosen" in page
        and "<polyline" in page
    )
    assert command.run(command.parser().parse_args([*words, "--no-report"])) == 0
    assert {result.seed for result in cfljax.load(out)} == {100, 101}


@pytest.mark.long
def test_several_processes_choose_the_same(tmp_path):
    spec = tmp_path / "small.toml"
    spec.write_text(SPEC)
    for workers in (1, 2):
        words = [
            str(spec),
            "--metric",
            "train_loss",
            "--out",
            str(tmp_path / str(workers)),
            "--quiet",
            "--no-report",
        ]
        assert (
            command.run(
                command.parser().parse_args(
                    [*words, "--workers", str(workers), "--then-compare", "0:2"]
                )
            )
            == 0
        )
    one, two = (json.loads((tmp_path / name / "tune.json").read_text()) for name in ("1", "2"))
    assert [len(each["scores"]) for each in one["groups"][0]["settings"]] == [
        len(s["scores"]) for s in two["groups"][0]["settings"]
    ]
    assert {r.run for r in cfljax.load(tmp_path / "1")} == {
        r.run for r in cfljax.load(tmp_path / "2")
    }


FOUR, BOTH = (
    {"name": "ifca", "label": "four", "clusters": 4},
    {"name": "ifca", "label": "any", "clusters": [2, 4]},
)


@pytest.mark.parametrize("methods", [[FOUR, BOTH], [BOTH, FOUR]])
def test_settings_that_rows_share_belong_to_each_of_them(tmp_path, methods):
    table = TABLE | {
        "method": methods,
        "train": {"rounds": 4, "lr": [0.3, 1e-4]},
        "search": {"first": 2, "reduce": 2},
    }
    results = cfljax.tune(table, tmp_path / "r", metric="train_loss", quiet=True, then_compare=[0])
    groups = {
        each["label"]: each for each in read_search(Store(tmp_path / "r", read_only=True))["groups"]
    }
    assert [len(groups[label]["settings"]) for label in ("four", "any")] == [2, 4]
    shared = {each["runs"][0]: each["scores"] for each in groups["four"]["settings"]}
    for each in groups["any"]["settings"]:
        if (other := shared.get(each["runs"][0])) is not None:
            assert all(a == b for a, b in zip(each["scores"], other, strict=False))
    rows = {entry["label"]: entry["units"] for entry in Store(tmp_path / "r").read_plan()["labels"]}
    assert sorted(rows) == ["any", "four"] and {
        run for units in rows.values() for run in units
    } == {r.run for r in results}


def test_the_best_setting_of_two_rows_is_compared_in_both(tmp_path):
    table = TABLE | {
        "method": [FOUR | {"clusters": 2}, BOTH | {"clusters": [2]}],
        "train": {"rounds": 2, "lr": [0.3, 1e-4]},
    }
    results = cfljax.tune(table, tmp_path / "r", metric="train_loss", quiet=True, then_compare=[0])
    assert len(results) == 1
    rows = Store(tmp_path / "r").read_plan()["labels"]
    assert [(row["label"], len(row["units"])) for row in rows] == [("four", 1), ("any", 1)]


def test_data_that_follow_the_seed_in_one_row_only_are_two_data_sets_of_a_search():
    table = TABLE | {
        "seeds": [0],
        "data": [DATA | {"seed": "run"}, DATA | {"seed": 0}],
        "method": "fedavg",
    }
    groups = plan_search(read_spec(table), "train_loss").groups
    assert [len(group.settings) for group in groups] == [4, 4]


def test_an_edited_record_of_a_search_is_refused(tmp_path, searched):
    store = Store(tmp_path)
    words = (searched[1] / "tune.json").read_text()
    (tmp_path / "tune.json").write_text(words.replace('"reduce": 2', '"reduce": 3'))
    with pytest.raises(
        StoreError, match=r"tune\.json: cannot be read \(its SHA-256 does not match\)"
    ):
        read_search(store)


def test_only_checkpoints_of_one_round_are_joined(tmp_path):
    runs = read_spec(TABLE, ["seeds=[10000]", "method=fedavg", "train.lr=[0.3, 0.1]"]).runs()
    store, (batch,) = Store(tmp_path), rung.batching.make_batches(runs, 2)

    def joined(*done):
        for run, rounds in zip(runs, done, strict=True):
            array = np.full((1, 3), rounds)
            point = Checkpoint(
                rounds, {".state": array}, {"loss": array}, Spent(0.0, 0.0, 1.0, 0.0)
            )
            store.save_checkpoint(run.id, *to_arrays(point))
        return rung.PerRunCheckpoints(store, batch, 6).load()

    both = joined(2, 2)
    assert both.done == 2 and both.spent.rounds == 2.0
    assert both.carry[".state"].shape == both.rows["loss"].shape == (2, 3)
    assert joined(2, 3) is None


def test_the_checkpoint_of_a_batch_is_one_of_each_run(tmp_path):
    runs = read_spec(TABLE, ["seeds=[10000]", "method=fedavg", "train.lr=[0.3, 0.1]"]).runs()
    store, (batch,) = Store(tmp_path), rung.batching.make_batches(runs, 2)
    state, loss = np.arange(6.0).reshape(2, 3), np.arange(4.0).reshape(2, 2)
    of_batch = rung.PerRunCheckpoints(store, batch, until=2)
    of_batch.done = 2
    of_batch.save(lambda: Checkpoint(2, {".state": state}, {"loss": loss}, Spent(0, 0, 3.0, 0)))
    for at, run in enumerate(runs):
        own = Checkpoints(store, run.id).load()
        assert own.carry[".state"].tolist() == state[at : at + 1].tolist()
        assert own.rows["loss"].tolist() == loss[at : at + 1].tolist() and own.spent.rounds == 1.5
    assert np.array_equal(of_batch.load().carry[".state"], state)


def test_a_batch_is_trained_if_only_one_of_its_runs_is_behind(tmp_path, monkeypatch):
    """Another process may have trained the other one in a batch of its own."""
    runs = read_spec(TABLE, ["seeds=[10000]", "method=fedavg", "train.lr=[0.3, 0.1]"]).runs()
    store, (batch,) = Store(tmp_path), rung.batching.make_batches(runs, 2)
    climber, trained = rung.Climber(store, describe_machine(), "labels", "train_loss", 2), []

    def reach(runs, done):
        for run in runs:
            store.save_checkpoint(run.id, {}, {"done": done})

    def climb(self, batch, until):
        trained.append(batch)
        reach(batch.runs, until)

    monkeypatch.setattr(rung.Climber, "_train", climb)
    reach(runs[:1], 2)
    assert climber._take(batch, 2) and [climber.count_rounds(run) for run in runs] == [2, 2]
    assert climber._take(batch, 2) and trained == [batch]


def test_a_run_without_its_checkpoint_is_no_failed_run(tmp_path):
    (run,) = read_spec(TABLE, ["seeds=[10000]", "method=fedavg", "train.lr=0.3"]).runs()
    climber = rung.Climber(Store(tmp_path), describe_machine(), "labels", "train_loss", 1)
    with pytest.raises(
        StoreError, match="has no usable checkpoint at round 2; start the search again"
    ):
        climber.read_curve(run, 2)
