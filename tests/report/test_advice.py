"""What a careful colleague would say of results: each rule speaks where it should, and is silent
elsewhere."""

import json

import pytest

import cfljax
from cfljax.commands import report as command
from cfljax.report import tables, tuning
from cfljax.report.comparison import rows
from cfljax.report.configurations import collect
from cfljax.report.notes import list_advice
from cfljax.report.page import page
from cfljax.report.report_data import read
from cfljax.results.advice import Entrant, advise_on_runs, advise_on_search, find_edges
from cfljax.store import Store
from tests.report import synthetic


def entrant(method, clusters=(1, 1, 1), asked=None, data="d", title=None, scores=None, **summary):
    """An entrant with a run for each number of clusters that it ended with."""
    records = []
    for seed, found in enumerate(clusters):
        loss, accuracy = scores[seed] if scores else (0.1 * seed + len(method), 0.5)
        told = {
            "clusters_last": found,
            "loss_last": loss,
            "accuracy_last": accuracy,
            "accuracy_worst10": accuracy - 0.1,
        }
        options = {} if asked is None else {"clusters": asked}
        config = {"method": {"name": method, **options}}
        records.append(
            {"method": method, "seed": seed, "config": config, "summary": told | summary}
        )
    return Entrant(title or method, data, records)


def test_a_method_that_never_split_is_named():
    said = advise_on_runs([entrant("cfl_sattler"), entrant("fl_hc", (1, 2, 1)), entrant("fedavg")])
    assert len(said) == 1 and said[0].startswith("cfl_sattler never split") and "3 runs" in said[0]


def test_one_cluster_that_was_asked_for_is_no_news():
    assert advise_on_runs([entrant("ifca", asked=1), entrant("oracle"), entrant("ditto")]) == []


def test_a_method_that_equals_fedavg_to_the_last_digit_is_named():
    scores = [(0.5, 0.81), (0.51, 0.82), (0.52, 0.8)]
    near = [*scores[:2], (0.52000001, 0.8)]
    plain = entrant("fedavg", scores=scores)
    said = advise_on_runs([plain, entrant("feddrift", (2, 2, 2), scores=scores)])
    assert len(said) == 1 and said[0].startswith("feddrift equals FedAvg")
    assert advise_on_runs([plain, entrant("feddrift", (2, 2, 2), scores=near)]) == []
    elsewhere = entrant("feddrift", (2, 2, 2), scores=scores, data="other")
    assert advise_on_runs([plain, elsewhere]) == []
    tuned = entrant("fedavg_ft", scores=scores, accuracy_finetuned=0.9)
    assert advise_on_runs([plain, tuned]) == []


def test_models_that_are_not_used_are_counted():
    said = advise_on_runs([entrant("ifca", (2, 4, 3), asked=4)])
    assert said == ["ifca used 2 to 3 of 4 models in 2 of 3 runs"]
    said = advise_on_runs([entrant("ifca", (2, 4, 2), asked=4)])
    assert said == ["ifca used 2 of 4 models in 2 of 3 runs"]
    assert advise_on_runs([entrant("ifca", (4, 4, 4), asked=4)]) == []
    assert advise_on_runs([entrant("fedem", (2, 2, 2), asked=4)]) == []


def test_another_number_of_clusters_on_which_methods_agree_is_proposed():
    three = [entrant("fedgroup", (3, 3, 3), 4), entrant("fesem", (3, 3, 4), 4)]
    said = advise_on_runs(three)
    assert "4 clusters were asked for, and 5 of 6 runs" in said[-1]
    assert said[-1].endswith("try clusters = 3")
    for others in (
        [entrant("fedgroup", (3, 3, 3), 4)],
        [entrant("fedgroup", (3, 4, 4), 4), entrant("fesem", (4, 4, 4), 4)],
        [entrant("fedgroup", (3, 3, 3), 4), entrant("fesem", (3, 3, 3), 3)],
    ):
        assert not any("asked for" in line for line in advise_on_runs(others))


def write_runs(folder):
    """Runs of FedAvg, and of Sattler's method with the same numbers and one cluster."""
    store, names = Store(folder), []
    for method in ("fedavg", "cfl_sattler"):
        for seed in range(2):
            names.append(f"{method}-{seed}")
            arrays = synthetic.arrays_of(seed, 0.7)
            record = synthetic.record_of(names[-1], seed, arrays, method=method)
            record["summary"] |= {"clusters_last": 1}
            store.write(names[-1], record, arrays)
    store.write_plan({"name": "small", "units": names})


def test_terminal_page_and_json_say_it(tmp_path, capsys):
    write_runs(tmp_path)
    table = rows(collect([tmp_path]).configurations)
    said = list_advice(table)
    assert len(said) == 2 and "never split" in said[0] and "equals FedAvg" in said[1]
    shown = tables.to_terminal(table)
    written = page(read([tmp_path]))
    assert all(line in shown for line in said) and "Worth a look" in written
    assert "never split" in written
    flags = command.parser().parse_args([str(tmp_path), "--json", "--no-figures"])
    assert command.run(flags) == 0
    assert json.loads(capsys.readouterr().out)["worth_a_look"] == said
    synthetic.sweep(tmp_path / "plain", methods=(("fedavg", 0.5), ("local", 0.4)))
    plain = rows(collect([tmp_path / "plain"]).configurations)
    assert list_advice(plain) == [] and "worth a look" not in tables.to_terminal(plain)


def search(values, scores, option="train.lr", method="fedavg"):
    """The record of a search over one option, with one rung."""
    settings = [
        {"varies": {option: value}, "runs": ["a"], "scores": [score], "rounds": [], "values": []}
        for value, score in zip(values, scores, strict=True)
    ]
    group = {"label": method, "method": method, "data": "", "settings": settings}
    return {
        "groups": [group],
        "rungs": [5],
        "metric": "val_accuracy",
        "reduce": 3,
        "seeds": [0],
        "rounds": 5,
    }


@pytest.mark.parametrize(
    ("values", "scores", "end"),
    [
        ((0.01, 0.05, 0.2), (0.1, 0.2, 0.3), "largest"),
        ((0.01, 0.05, 0.2), (0.3, 0.2, 0.1), "least"),
        ((0.01, 0.05, 0.2), (0.1, 0.3, 0.2), None),
        ((0.05,), (0.3,), None),
        ((0.01, 0.2), (None, None), None),
    ],
)
def test_a_best_value_at_an_edge_is_told(values, scores, end):
    table = search(values, scores)
    edges = find_edges(table["groups"][0], table)
    assert [edge.end for edge in edges] == ([end] if end else [])
    said = advise_on_search(table)
    assert len(said) == len(edges)
    for form in (tuning.text(table), tuning.section(table)):
        assert (f"is the {end} that was tried" in form) == bool(end)


def test_the_bound_of_an_option_is_no_edge():
    at_bound = search((0.0, 0.1, 1.0), (0.3, 0.2, 0.1), "method.mu", "fedprox")
    assert advise_on_search(at_bound) == []
    beyond = search((0.0, 0.1, 1.0), (0.1, 0.2, 0.3), "method.mu", "fedprox")
    assert len(advise_on_search(beyond)) == 1
    words = search(("a", "b", "c"), (0.1, 0.2, 0.3), "method.metric", "fl_hc")
    assert advise_on_search(words) == []
    gone = search((1, 2), (0.1, 0.2), "method.mu", "no_such_method")
    assert len(advise_on_search(gone)) == 1


def test_tune_json_has_the_edges(tmp_path):
    table = {
        "data": {"name": "blobs", "samples": 120, "partition": "iid", "clients": 4},
        "model": "mclr",
        "train": {"rounds": 2, "lr": [1e-4, 0.1]},
        "method": "fedavg",
    }
    cfljax.tune(table, tmp_path, metric="train_loss", quiet=True)
    told = json.loads((tmp_path / "tune.json").read_text())
    (group,) = told["groups"]
    assert group["at_edge"] == [{"option": "train.lr", "value": 0.1, "end": "largest"}]
    assert len(told["worth_a_look"]) == 1 and "train.lr = 0.1" in told["worth_a_look"][0]
