"""Tables and frames of a folder that has grown are those of one made at once: what is shown is what
today's spec asks for."""

import numpy as np
import pandas as pd
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.report import table_files, tables
from cfljax.report.comparison import rows as table_of
from cfljax.report.configurations import collect
from cfljax.report.results import Results
from cfljax.store import Store
from tests.report import synthetic
from tests.store.helpers import make_arrays, make_record

BASE = {
    "data": {"name": "digits", "clients": 4}, "model": {"name": "mlp", "hidden": [8]}, "train": {"rounds": 2, "lr": [0.01, 1.0]},
    "seeds": "0:6",
}  # fmt: skip
WHOLE = BASE | {
    "method": [{"name": "fedavg", "label": "plain"}, {"name": "ifca", "clusters": [2, 3]}]
}
STEPS = [
    WHOLE | {"train": {"rounds": 2, "lr": 0.01}, "seeds": "0:3", "method": [{"name": "fedavg", "label": "first"}]},
    BASE | {"seeds": "0:3", "method": [{"name": "fedavg", "label": "first"}]},
    BASE | {"method": [{"name": "fedavg", "label": "first"}]}, BASE | {"method": [{"name": "fedavg", "label": "plain"}]}, WHOLE,
]  # fmt: skip
SHRUNK = WHOLE | {"train": {"rounds": 2, "lr": 1.0}, "seeds": "0:5"}


def start(folder, table):
    """What a start leaves in the folder, without the computing: results that depend on the run's id
    alone."""
    store, spec = Store(folder), read_spec(table)
    for run in spec.units():
        if not store.has(run.id):
            arrays = synthetic.arrays_of(int(run.id, 16) % 2**31, 0.2 + int(run.id[:4], 16) / 2**17)
            record = synthetic.record_of(
                run.id, run.seed, arrays, run.label, run.method, config=run.resolved()
            )
            store.write(run.id, record | {"varies": dict(run.varies)}, arrays)
    store.write_plan(spec.describe_sweep())
    return folder


def shown(folder):
    """All forms of the table, and the frames."""
    table, results = table_of(collect([folder]).configurations), Results(folder)
    forms = [
        tables.to_terminal(table),
        table_files.to_markdown(table),
        table_files.to_latex(table),
        table_files.to_csv(table),
    ]
    return forms, results.to_pandas(), results.history(), [each.label for each in results]


@pytest.mark.parametrize("steps", [STEPS, [*STEPS, SHRUNK]], ids=["grown", "grown and shrunk"])
def test_a_folder_that_has_grown_shows_what_one_made_at_once_does(tmp_path, steps):
    for table in steps:
        start(tmp_path / "grown", table)
    start(tmp_path / "once", steps[-1])
    (forms, summary, history, labels), (forms_once, summary_once, history_once, labels_once) = map(
        shown, (tmp_path / "grown", tmp_path / "once")
    )
    assert forms == forms_once and labels == labels_once and "plain" in forms[0]
    pd.testing.assert_frame_equal(summary, summary_once, check_exact=True)
    pd.testing.assert_frame_equal(history, history_once, check_exact=True)


def test_a_number_that_varies_since_a_later_start_has_a_column_and_rows_of_its_own(tmp_path):
    one = BASE | {"method": "fedavg", "seeds": "0:3"}
    for lr in (0.01, 1.0, [0.01, 1.0]):
        start(tmp_path, one | {"train": {"rounds": 2, "lr": lr}})
    assert [(c.name, c.runs) for c in collect([tmp_path]).configurations] == [
        ("fedavg lr=0.01", "3"),
        ("fedavg lr=1.0", "3"),
    ]
    assert Results(tmp_path).to_pandas().groupby("train.lr").size().to_dict() == {0.01: 3, 1.0: 3}


def test_a_number_that_varies_no_more_parts_no_configuration(tmp_path):
    one = BASE | {"method": "fedavg"}
    start(tmp_path, one | {"seeds": "0:3"})
    start(tmp_path, one | {"train": {"rounds": 2, "lr": 0.01}})
    assert [(c.name, c.runs) for c in collect([tmp_path]).configurations] == [("fedavg", "6")]


def test_a_run_that_two_rows_share_counts_in_both(tmp_path):
    data = {"name": "digits", "seed": [0, "run"]}
    start(
        tmp_path, BASE | {"data": data, "train": {"rounds": 2}, "method": "fedavg", "seeds": "0:3"}
    )
    found = collect([tmp_path])
    assert [(c.name, c.runs) for c in found.configurations] == [
        ("fedavg seed=0", "3"),
        ("fedavg seed=run", "3"),
    ]
    assert len(found.units) == found.planned == 5
    frame = Results(tmp_path).to_pandas()
    assert frame.groupby("data.seed")["seed"].apply(list).to_dict() == {
        0: [0, 1, 2],
        "run": [0, 1, 2],
    }
    results = Results(tmp_path)
    history = results.history().drop_duplicates(["data.seed", "seed"])
    assert history.groupby("data.seed")["seed"].apply(list).to_dict() == {
        0: [0, 1, 2],
        "run": [0, 1, 2],
    }
    assert [line.get_label() for line in results.plot().axes[0].lines] == [
        "FedAvg seed=0",
        "FedAvg seed=run",
    ]


def test_data_drawn_from_the_runs_own_seeds_is_one_configuration(tmp_path):
    start(
        tmp_path,
        BASE
        | {"data": {"name": "digits", "seed": "run"}, "train": {"rounds": 2}, "method": "fedavg"},
    )
    assert [(c.name, c.runs) for c in collect([tmp_path]).configurations] == [("fedavg", "6")]
    (tmp_path / "plan.json").unlink()
    assert [(c.name, c.runs) for c in collect([tmp_path]).configurations] == [("fedavg", "6")]


def without_varies(folder):
    """The plan as a start before 0.3.0 has written it."""
    plan = Store(folder).read_plan()
    return plan | {
        "labels": [{k: v for k, v in row.items() if k != "varies"} for row in plan["labels"]]
    }


def test_what_varies_is_told_alike_from_runs_from_the_plan_and_from_records(tmp_path):
    names = {"data": [{"name": "digits"}, {"name": "blobs", "features": [3, 4]}]}
    ways = {
        "train": [
            {"rounds": 2, "epochs": [1, 2]},
            {"rounds": 2, "steps": 3, "attack": {"name": "noise", "share": 0.1}},
        ]
    }
    for number, table in enumerate((*STEPS, SHRUNK, WHOLE | names, WHOLE | ways)):
        folder = start(tmp_path / str(number), table)
        for plan in (None, without_varies(folder)):
            found = {record["id"]: record["varies"] for record in Results(folder, sweep=plan).rows}
            assert found == {run.id: run.varies for run in read_spec(table).units()}


def test_an_option_that_a_record_lacks_differs_only_where_the_plan_does_not_say(tmp_path):
    start(tmp_path, BASE | {"method": {"name": "fedgroup"}, "train": {"rounds": 2}, "seeds": "0:2"})
    store = Store(tmp_path)
    name = store.ids()[0]
    record, arrays = store.read(name)
    old = {key: value for key, value in record["config"]["method"].items() if key != "eta_g"}
    assert len(old) == len(record["config"]["method"]) - 1
    kept = {
        key: value for key, value in record.items() if key not in ("schema", "arrays", "sha256")
    }
    store.write(name, kept | {"config": record["config"] | {"method": old}}, arrays)
    assert [(c.name, c.runs) for c in collect([tmp_path]).configurations] == [("fedgroup", "2")]
    rows = Results(tmp_path, sweep=without_varies(tmp_path)).rows
    assert [row["varies"] for row in rows] == [{"method.eta_g": None}, {"method.eta_g": 0.0}]


def test_no_run_takes_the_place_of_another_with_its_seed(tmp_path):
    store = Store(tmp_path)
    for name, value in (("a", 0.2), ("b", 0.6)):
        store.write(name, make_record(summary={"accuracy_max": value}), make_arrays())
    cell = table_of(collect([tmp_path]).configurations)[0].cells["accuracy_max"]
    assert cell.n == 2 and cell.mean == pytest.approx(0.4)


@pytest.mark.parametrize(
    "labels",
    [
        "x",
        [3],
        [{"label": "", "units": []}],
        [{"label": "a", "units": ["../x"]}],
        [{"label": "a", "units": [], "varies": [{}]}],
        [{"label": "a", "units": ["x"], "varies": [3]}],
    ],
)
def test_labels_that_no_sweep_lays_down_are_damage(tmp_path, labels):
    from cfljax.store import DamagedWarning

    store = Store(tmp_path)
    store.write_plan({"units": [], "labels": labels})
    with pytest.warns(DamagedWarning, match="labels is no list"):
        assert store.read_plan() is None


def test_rounds_to_a_target_are_counted_from_the_curves_when_asked(tmp_path):
    store = Store(tmp_path)
    for seed in range(2):  # as two starts with other targets have recorded it
        arrays = {
            "history/round": np.arange(4),
            "history/accuracy": np.float32([0.1, 0.4, 0.6, 0.95]),
        }
        store.write(
            f"r{seed}",
            make_record(seed=seed, summary={"round_to_target": 1 + seed, "accuracy_max": 0.95}),
            arrays,
        )
    assert Results(tmp_path).to_pandas()["round_to_target"].isna().all()
    assert [each.summary["round_to_target"] for each in Results(tmp_path)] == [None, None]
    assert [each.summary["round_to_target"] for each in cfljax.load(tmp_path, target=0.9)] == [3, 3]
    assert cfljax.load(tmp_path, target=0.9).to_pandas()["round_to_target"].tolist() == [3, 3]
    assert cfljax.load(tmp_path, target=0.5).to_pandas()["round_to_target"].tolist() == [2, 2]
    with pytest.raises(SpecError, match="target = 50"):
        cfljax.load(tmp_path, target=50)


def test_a_start_shows_its_own_runs_when_another_has_laid_down_its_plan_since(tmp_path):
    mine, other = (
        BASE | {"method": name, "train": {"rounds": 2}, "seeds": "0:2"}
        for name in ("fedavg", "ifca")
    )
    start(tmp_path, mine)
    start(tmp_path, other)
    assert (
        tables.write_comparison(Results(tmp_path, sweep=read_spec(mine).describe_sweep()))
        .splitlines()[1]
        .startswith("fedavg")
    )
    assert tables.write_comparison(Results(tmp_path)).splitlines()[1].startswith("ifca")


def test_folders_whose_partitions_have_other_seeds_are_not_on_the_same_data(tmp_path):
    tables_of = [
        BASE | {"data": BASE["data"] | {"seed": seed}, "method": "fedavg", "train": {"rounds": 2}}
        for seed in (1, 2, 1)
    ]
    folders = [
        start(tmp_path / str(i), table | {"train": {"rounds": 2 + i}})
        for i, table in enumerate(tables_of)
    ]
    first, second, third = (each.block for each in collect(folders).configurations)
    assert first == third != second
    run = [start(tmp_path / name, tables_of[0] | {"data": BASE["data"] | {"seed": "run"}, "seeds": seeds})
           for name, seeds in (("a", [1]), ("b", [1, 2]))]  # fmt: skip
    one, other = (each.block for each in collect(run).configurations)
    assert one == other
