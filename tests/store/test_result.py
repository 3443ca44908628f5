import numpy as np
import pytest

from cfljax.commands import process
from cfljax.commands.load import parser, run
from cfljax.errors import StoreError
from cfljax.report.results import Results
from cfljax.store import DamagedWarning, Store
from tests.store.helpers import make_arrays, make_record

SUMMARY = [
    *(
        "accuracy_max",
        "accuracy_last",
        "accuracy_last10",
        "accuracy_worst10",
        "accuracy_client_std",
    ),
    *("loss_last", "ari_last", "nmi_last", "purity_last", "clusters_last"),
    *(
        "rounds",
        "round_to_target",
        "bytes_up",
        "bytes_down",
        "seconds_compile",
        "seconds_train",
        "seconds_eval",
    ),
]
CURVES = [
    *(
        "accuracy",
        "accuracy_worst10",
        "accuracy_client_std",
        "loss",
        "ari",
        "nmi",
        "purity",
        "clusters",
    ),
    *("bytes_up", "bytes_down"),
]


VARYING = ["model.hidden", "train.lr", "method.beta"]


@pytest.fixture
def folder(tmp_path):
    store = Store(tmp_path / "out")
    full = dict.fromkeys(SUMMARY[:14], 0.5) | {
        "rounds": 2,
        "round_to_target": None,
        "bytes_up": 10_000_000_001,
    }
    configs = [
        {"model": {"hidden": hidden}, "train": {"lr": lr}, "method": {"beta": beta}}
        for hidden, lr, beta in (([200], 0.1, 0.5), ([100], 0.2, 0.5), ([100], 0.1, 0.9))
    ]
    store.write(
        "b", make_record(summary=full, config=configs[0], varies={"train.rounds": 3}), make_arrays()
    )
    store.write(
        "a",
        make_record(seed=1, method="fedavg", config=configs[1], status="diverged"),
        make_arrays(0.5),
    )
    store.write(
        "c", make_record(seed=2, status="failed", summary={}, error="boom", config=configs[2]), {}
    )
    return store.folder


def test_the_summary_frame_has_the_promised_columns(folder):
    frame = Results(folder).to_pandas()
    assert list(frame.columns) == [
        "run",
        "method",
        "seed",
        "model.hidden",
        "train.lr",
        "method.beta",
        "status",
        *SUMMARY,
    ]
    assert sorted(frame["run"]) == ["a", "b", "c"] and set(frame["status"]) == {
        "done",
        "diverged",
        "failed",
    }
    row = frame.set_index("run").loc["b"]
    assert (row["accuracy_max"], row["bytes_up"], row["rounds"]) == (0.5, 10_000_000_001, 2)
    assert (row["seconds_compile"], row["seconds_train"], row["seconds_eval"]) == (1.5, 2.0, 0.25)
    assert np.isnan(row["round_to_target"]) and row["model.hidden"] == "[200]"
    assert frame.set_index("run").loc["c", SUMMARY[:14]].isna().all()


def test_the_summary_frame_has_the_labels_of_a_spec_that_gives_some(folder):
    Store(folder).write("b", make_record(label="my IFCA"), make_arrays())
    frame = Results(folder).to_pandas()
    assert list(frame.columns)[:4] == ["run", "method", "seed", "label"]
    assert frame.set_index("run")["label"].to_dict() == {"a": "fedavg", "b": "my IFCA", "c": "ifca"}


def test_an_option_that_varies_elsewhere_is_taken_from_the_configuration(folder):
    assert Results(folder).to_pandas().set_index("run").loc["c", "train.lr"] == 0.1


def test_runs_come_in_the_order_of_the_plan_and_those_of_an_earlier_spec_are_left_out(folder):
    assert list(Results(folder).to_pandas()["run"]) == ["a", "b", "c"]
    Store(folder).write_plan({"units": ["c", "not-yet", "b"]})
    assert list(Results(folder).to_pandas()["run"]) == ["c", "b"] and len(Results(folder)) == 2
    assert "1 of an earlier spec left out" in repr(Results(folder))
    assert list(Results(folder, everything=True).to_pandas()["run"]) == ["c", "b", "a"]


def test_the_history_frame_is_tidy(folder):
    frame = Results(folder).history()
    assert list(frame.columns) == ["run", "method", "seed", *VARYING, "round", *CURVES]
    assert (
        list(frame["method"]) == ["fedavg"] * 3 + ["ifca"] * 3
        and frame["seed"].tolist() == [1] * 3 + [0] * 3
    )
    assert list(frame["run"]) == ["a"] * 3 + ["b"] * 3 and list(frame["round"]) == [0, 1, 2] * 2
    assert frame["accuracy"].tolist() == [
        *(np.float32([0.1, 0.5, 0.75]) * np.float32(0.5)),
        *np.float32([0.1, 0.5, 0.75]),
    ]


def test_runs_are_found_by_their_places_and_drawn(folder):
    results = Results(folder)
    assert [results[at].run for at in (0, 1, -1)] == ["a", "b", "c"] and results["b"].seed == 0
    for missing in (3, -4, "nothing"):
        with pytest.raises(StoreError, match="there is no run"):
            results[missing]
    assert [[each.run for each in results[:2]], results[5:]] == [["a", "b"], []]
    with pytest.raises(StoreError, match=r"those of ifca are results.filter\(method='ifca'\)"):
        results["ifca"]
    axes = results.plot().axes[0]
    assert axes.get_xlabel() == "round" and len(axes.lines) == 2
    # The best is the first
    assert axes.lines[0].get_label() == "IFCA hidden=[200] beta=0.5"
    assert axes.lines[0].get_ydata().tolist() == results.history()["accuracy"].tolist()[3:]
    with pytest.raises(StoreError, match="there is no such column"):
        results.plot("accuracies")


def test_a_line_is_the_mean_over_seeds(folder):
    store = Store(folder)
    for seed, half in ((5, 0.25), (6, 0.75)):
        record = make_record(seed=seed, method="ditto", config={"train": {"lr": 0.3}})
        store.write(
            f"s{seed}",
            record,
            {"history/round": np.arange(2), "history/accuracy": np.array([half, 0.5])},
        )
    line = Results(folder).plot().axes[0].lines[-1]
    assert line.get_label() == "Ditto" and line.get_ydata().tolist() == [0.5, 0.5]


def test_a_run_that_stopped_keeps_its_last_value_and_a_diverged_one_is_left_out(folder):
    """As on the page: else the end of a line is the mean of the seeds that happened to go on."""
    store, rounds = Store(folder), np.arange(4, dtype=np.float32)
    runs = [(3, "done", 2, 0.5), (4, "done", 4, 0.75), (5, "diverged", 3, 0.0)]
    for seed, status, length, last in runs:
        config = {"train": {"rounds": 3, "stop": {"patience": 1}}}
        record = make_record(seed=seed, method="ditto", status=status, config=config)
        accuracy = np.where(np.arange(length) < length - 1, 0.25, last).astype(np.float32)
        curves = {"history/round": rounds[:length], "history/accuracy": accuracy}
        store.write(f"s{seed}", record, curves)
    results = Results(folder)
    # The last of the lines marks where runs stopped
    *_, line, marks = results.plot().axes[0].lines
    assert line.get_label() == "Ditto" and marks.get_xdata().tolist() == [1]
    assert line.get_xdata().tolist() == [0, 1, 2, 3]
    assert line.get_ydata().tolist() == [0.25, 0.375, 0.375, 0.625]
    frame = results.history()
    assert frame[frame["seed"] == 3]["round"].tolist() == [0, 1]


def test_a_label_is_neither_mathematics_nor_a_formula(folder, tmp_path):
    Store(folder).write("b", make_record(label=r"=1+1 $ \frac{ $"), make_arrays())
    Store(folder).write("a", make_record(label="-1e3", seed=1), make_arrays())
    results = Results(folder)
    results.plot().savefig(tmp_path / "plot.png")
    results.to_csv(tmp_path / "runs.csv")
    flags = [str(folder), "--history", str(tmp_path / "history.csv")]
    assert process.main(run, parser(), flags) == 0
    for name in ("runs.csv", "history.csv"):
        text = (tmp_path / name).read_text()
        assert r",'=1+1 $ \frac{ $," in text and ",-1e3," in text
        assert ",=1" not in text and ",'-" not in text


def test_a_method_s_own_curves_follow_and_tables_stay_out(folder):
    own = {
        "history/round": np.arange(2),
        "history/ccs_threshold": np.ones(2),
        "history/accuracy_clusters": np.ones((2, 4)),
    }
    Store(folder).write("d", make_record(), own)
    assert list(Results(folder).history().columns)[-1] == "ccs_threshold"


def test_one_run_has_its_arrays_by_name(folder):
    result = Results(folder)["b"]
    assert (
        result.labels.dtype == np.int32
        and result.labels.tolist() == [1, 1]
        and result.labels_history.shape == (3, 2)
    )
    assert result.models.shape == (2, 3) and result.client_accuracy.tolist() == [0.5, 1.0]
    assert (result.run, result.method, result.seed, result.status) == ("b", "ifca", 0, "done")
    assert result.config["train"]["lr"] == 0.1 and result.summary["accuracy_max"] == 0.5
    assert list(result.history) == ["round", "accuracy"] and result.diag == {}
    frame = result.to_pandas()
    assert list(frame.columns) == ["round", "accuracy"] and frame["round"].tolist() == [0, 1, 2]
    failed = Results(folder)["c"]
    assert failed.models is None and failed.labels is None and len(failed.to_pandas()) == 0


def test_representations_are_short_and_escaped(folder):
    Store(folder).write("e", make_record(config={"model": {"name": "<script>"}}), {})
    Store(folder).write("f", make_record(config={"model": {"name": "mine"}}), {})
    results = Results(folder)
    text = repr(results["e"])
    assert (
        text.startswith("Result(method=ifca, seed=0, status=done")
        and len(text) < 200
        and "\n" not in text
    )
    assert "<script>" not in results["e"]._repr_html_() and "<script>" not in results._repr_html_()
    assert "5 runs" in repr(results) and "diverged" in repr(results)


def test_a_place_that_cannot_be_exported_to_is_one_line(folder, tmp_path):
    with pytest.raises(StoreError, match="cannot write"):
        Results(folder).to_csv(tmp_path / "nowhere" / "x.csv")


def test_a_damaged_run_hides_no_other_and_nothing_is_moved(folder):
    path = folder / "units" / "a.npz"
    path.write_bytes(bytes(path.stat().st_size))
    results = Results(folder)
    with pytest.warns(DamagedWarning, match="a: damaged") as caught:
        assert [r.run for r in results] == ["b", "c"]
    assert len(caught) == 1
    with pytest.warns(DamagedWarning):
        assert set(results.history()["run"]) == {"b"}
    assert path.exists()


def test_a_folder_that_is_none_and_a_run_that_is_none_are_one_line(folder, tmp_path):
    with pytest.raises(StoreError, match="not a results folder"):
        Results(tmp_path)
    with pytest.raises(StoreError, match="no run 'zzz'"):
        Results(folder)["zzz"]
    (tmp_path / "new").mkdir()
    empty = Results(Store(tmp_path / "new").folder)
    assert (
        len(empty) == 0
        and len(empty.to_pandas()) == 0
        and len(empty.history()) == 0
        and "0 runs" in repr(empty)
    )
