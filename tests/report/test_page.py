import base64
import hashlib
import json
import os
import random
import re

import numpy as np
import pytest

from cfljax.engine.metrics import RESERVED_NAMES
from cfljax.engine.quantities import HISTORY
from cfljax.methods import METHODS
from cfljax.report import page as page_module
from cfljax.report import run_pictures, write
from cfljax.report.curves import MOST_CURVES
from cfljax.report.page import page
from cfljax.report.report_data import read
from cfljax.store import Store
from cfljax.types import Quantity
from tests.report import synthetic


def data_of(text):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
    )


def made(*folders, **options):
    return page(read(folders, **options))


def test_everything_is_in_the_page(tmp_path):
    synthetic.everything(tmp_path)
    text = made(tmp_path)
    data = data_of(text)
    assert len(data["configs"]) == 6
    assert (
        {p["config"] for p in data["pictures"]}
        == {p["config"] for p in data["confusions"]}
        == set(range(6))
    )
    assert data["own"].keys() == {"epsilon"} and data["history"]["accuracy"][0]["x"] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    (new,) = (band for band in data["newcomers"] if band is not None)
    assert (new["x"], new["m"]) == ([0, 1, 5], [0.5, 0.53, 0.65])
    assert (
        "ValueError: it went wrong" in text
        and "in round 3" in text
        and "cpu" in text
        and "jax 0.12.0" in text
    )


def test_numbers_are_called_what_their_makers_call_them(tmp_path):
    """A name may mean something else for another method, and for the history."""
    curve, store = np.linspace(1, 0.5, 6, dtype=np.float32), Store(tmp_path)
    own = {"epsilon": curve, "clusters": curve, "participants": curve}
    synthetic.add(store, "a", 0, method="ccs_rfedavg", own=own)
    synthetic.add(store, "b", 0, method="ocfl", own={"participants": curve})
    synthetic.add(store, "c", 0, method="apfl", own={"alpha": curve, "accuracy_global": curve})
    synthetic.add(store, "d", 0, method="of a user", own={"my_number": curve})
    names = data_of(made(tmp_path))["names"]
    assert names["own"] == {
        name: [quantity.words, quantity.unit]
        for name, quantity in {
            "epsilon": METHODS.entry("ccs_rfedavg").options.diagnostics["epsilon"],
            "clusters": METHODS.entry("ccs_rfedavg").options.diagnostics["clusters"],
            "participants (ccs_rfedavg)": METHODS.entry("ccs_rfedavg").options.diagnostics[
                "participants"
            ],
            "participants (ocfl)": METHODS.entry("ocfl").options.diagnostics["participants"],
            "alpha": METHODS.entry("apfl").options.diagnostics["alpha"],
            "accuracy_global": METHODS.entry("apfl").options.diagnostics["accuracy_global"],
            "my_number": Quantity("my number"),
        }.items()
    }
    assert "threshold" in names["own"]["epsilon"][0] and "priva" not in names["own"]["epsilon"][0]
    assert names["history"]["clusters"][0] == "clusters" != names["own"]["clusters"][0]
    assert names["history"]["bytes"][1] == "bytes"
    assert {unit for _, unit in names["final"].values()} == {"share"}


def test_every_column_of_the_history_says_what_it_is():
    others = {"bytes", "traffic", "labels", "diag", "valid", "run"}
    assert RESERVED_NAMES - others == HISTORY.keys() - {"bytes"}


def test_the_scripts_of_the_page_declare_each_name_once(tmp_path):
    """They are one script, in which a second declaration is a syntax error: nothing is drawn."""
    synthetic.everything(tmp_path)
    scripts = re.findall(r"<script>(.*?)</script>", made(tmp_path), re.S)
    names = re.findall(r"^(?:const|let|function|class) (\w+)", "\n".join(scripts), re.M)
    assert len(names) > 50 and sorted(names) == sorted(set(names))


def test_curves_are_means_and_standard_deviations_over_the_seeds(tmp_path):
    store = synthetic.sweep(tmp_path, methods=(("ifca", 0.8),), seeds=4)
    values = np.array([store.read(name).arrays["history/accuracy"] for name in store.ids()])
    band = data_of(made(tmp_path))["history"]["accuracy"][0]
    np.testing.assert_allclose(band["m"], values.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(band["s"], values.std(axis=0, ddof=1), rtol=1e-4)


def test_runs_of_different_lengths_are_averaged_round_by_round(tmp_path):
    store = Store(tmp_path)
    synthetic.add(store, "a", 0, evaluations=3)
    synthetic.add(store, "b", 1, evaluations=5)
    values = [store.read(name).arrays["history/accuracy"] for name in "ab"]
    band = data_of(made(tmp_path))["history"]["accuracy"][0]
    np.testing.assert_allclose(band["m"][:3], (values[0] + values[1][:3]) / 2, rtol=1e-4)
    np.testing.assert_allclose(band["m"][3:], values[1][3:], rtol=1e-4)
    assert band["s"][3:] == [None, None]


def test_a_run_that_was_stopped_keeps_its_last_value_and_the_page_says_where(tmp_path):
    store, stop = Store(tmp_path), {"train.stop": {"patience": 2}, "train.rounds": 5}
    for seed, evaluations in enumerate(
        (3, 5, 6)
    ):  # after rounds 2 and 4; the third has made all five
        synthetic.add(store, f"r{seed}", seed, evaluations=evaluations, varies=stop)
    each = [store.read(f"r{seed}").arrays for seed in range(3)]
    text = made(tmp_path)
    data = data_of(text)
    for name in ("accuracy", "loss"):
        full = np.array(
            [
                np.pad(a[f"history/{name}"], (0, 6 - len(a[f"history/{name}"])), mode="edge")
                for a in each
            ]
        )
        band = data["history"][name][0]
        np.testing.assert_allclose(band["m"], full.mean(axis=0), rtol=1e-4)
        np.testing.assert_allclose(band["s"], full.std(axis=0, ddof=1), rtol=1e-3)
    np.testing.assert_allclose(
        data["history"]["bytes"][0]["m"], [0, 3000, 6000, 8000, 10000, 11000], rtol=1e-4
    )
    assert data["configs"][0]["stopped"] == [2, 4] and "(2 of 3 runs)" in text
    assert data["seconds"][0] == pytest.approx(3 * 2.25 / (2 + 4 + 5) * 5, rel=1e-4)


def test_names_are_harmless(tmp_path):
    store = Store(tmp_path)
    label = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;{{data}}"
    synthetic.add(store, "a", 0, label=label, varies={"train.lr": "<b>"})
    synthetic.add(
        store, "b", 0, label=label, status="failed", method='"><b>', varies={"train.lr": 1}
    )
    store.write_spec("name = '</pre><script>alert(3)</script>'")
    store.write_plan({"name": label, "units": ["a", "b"]})
    text = made(tmp_path)
    assert data_of(text)["configs"][0]["name"] == label + " lr=<b>"
    assert (
        text.count("<script") == 6
        and "<img" not in text
        and "<b>" not in text
        and "</pre><script" not in text
    )
    policy = re.search(r"script-src ([^\"]*)\"", text)[1].split()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert policy == [
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'"
        for s in scripts
    ]


def test_nothing_is_loaded_from_anywhere(tmp_path):
    synthetic.everything(tmp_path)
    text = made(tmp_path)
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(
        r"<(link|iframe|object|embed)\b|@import|url\(|\bsrc=|fetch\(|XMLHttpRequest|import\(", text
    )


def test_rendered_twice_and_from_a_shuffled_listing_it_is_the_same(tmp_path, monkeypatch):
    store = synthetic.everything(tmp_path / "a")
    (store.folder / "plan.json").unlink()
    first = made(tmp_path / "a")
    listing = os.scandir
    shuffled = random.Random(1)

    class Shuffled(list):
        __enter__, __exit__ = (lambda self: self), (lambda self, *_: None)

    monkeypatch.setattr(
        os,
        "scandir",
        lambda path=".": Shuffled(shuffled.sample(found := list(listing(path)), len(found))),
    )
    assert made(tmp_path / "a") == first


def test_nothing_finished_is_said_in_words(tmp_path):
    Store(tmp_path)
    text = made(tmp_path)
    assert (
        "No finished runs yet." in text
        and "There are no finished runs to draw." in text
        and data_of(text)["configs"] == []
    )


def test_only_failed_runs_are_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "MOST_TROUBLES", 10)
    store = Store(tmp_path)
    for seed in range(15):
        synthetic.add(store, f"x-{seed:03}", seed, status="failed")
    text = made(tmp_path)
    assert (
        text.count("it went wrong") == 10
        and "and 5 more" in text
        and data_of(text)["configs"] == []
    )


ODD = (
    {"evaluations": 1}, {"evaluations": 2}, {"clients": 1, "groups": 1}, {"nan": True}, {"known_groups": False},
    {"clients": 900, "evaluations": 250},
)  # fmt: skip


@pytest.mark.parametrize("shape", ODD, ids=str)
@pytest.mark.parametrize("seeds", [1, 3])
def test_odd_runs_make_a_page(tmp_path, shape, seeds):
    synthetic.sweep(tmp_path, seeds=seeds, **shape)
    text = made(tmp_path)
    data = data_of(text)
    assert len(data["configs"]) == 3 and "NaN" not in json.dumps(data) and len(text) < 400_000
    for key in ("known_groups", "nan"):
        if key in shape:
            assert (
                not data["confusions"]
                if key == "known_groups"
                else data["history"].keys() <= {"clusters"}
            )


def test_units_without_labels_or_curves(tmp_path):
    store = Store(tmp_path)
    record = synthetic.record_of("a", 0, {}, timings={"train": 1.0})
    store.write(
        "a", record, {"history/round": np.arange(2), "diag/ifca/x": np.zeros((0, 3), np.float32)}
    )
    data = data_of(made(tmp_path))
    assert data["trivial"] == ["IFCA (labels were not kept)"] and data["history"] == {}


def test_damaged_arrays_are_named_and_the_rest_is_shown(tmp_path):
    store = synthetic.sweep(tmp_path)
    path = store.units / "ifca-1.npz"
    raw = bytearray(path.read_bytes())
    raw[200] ^= 1
    path.write_bytes(raw)
    content = read([tmp_path])
    assert len(content.problems) == 1 and "ifca-1" in content.problems[0]
    assert "ifca-1" in page(content) and path.exists()  # a report only looks
    assert np.isfinite(content.curves[1].history["accuracy"].mean).all()


def test_of_many_configurations_the_best_are_drawn_and_the_page_says_so(tmp_path):
    store = Store(tmp_path)
    for i in range(60):
        synthetic.add(
            store,
            f"a-{i:02}",
            0,
            0.5 + i / 200,
            label="IFCA" if i else "worst",
            varies={"train.lr": i},
        )
    content = read([tmp_path])
    assert (
        len(content.drawn) == MOST_CURVES
        and content.drawn[-1].label == "worst"
        and len(content.table) == 60
    )
    best_first = range(59, 60 - MOST_CURVES, -1)
    assert [c.options[0][1] for c in content.drawn[:-1]] == [str(i) for i in best_first]
    assert f"The figures show {MOST_CURVES} of 60 configurations" in page(content)


def test_a_target_is_counted_anew(tmp_path):
    store = synthetic.sweep(tmp_path, methods=(("ifca", 0.8),), seeds=1)
    accuracy = store.read("ifca-0").arrays["history/accuracy"]
    cell = read([tmp_path], target=0.5).table[0].cells["round_to_target"]
    assert cell.mean == np.flatnonzero(accuracy >= np.float32(0.5))[0]


def test_clusters_have_the_colour_of_their_group(tmp_path):
    labels = np.array([[7, 7, 7, 2, 2, 2, 2, -1]])
    group = np.array([1, 1, 0, 0, 0, 0, 1, 1])
    colour = run_pictures._choose_colours(labels, group)
    assert colour == {2: 0, 7: 1}
    table, clusters, groups = run_pictures.contingency(labels[0], group)
    assert (
        table.tolist() == [[3, 1], [1, 2]]
        and clusters.tolist() == [2, 7]
        and groups.tolist() == [0, 1]
    )


def test_pictures_know_the_order_of_the_clients(tmp_path):
    store = synthetic.sweep(tmp_path, methods=(("ifca", 0.8),), seeds=1)
    data = data_of(made(tmp_path))["pictures"][0]
    cells = np.frombuffer(base64.b64decode(data["cells"]), np.uint8).reshape(12, 6)
    groups = np.frombuffer(base64.b64decode(data["groups"]), np.uint8)
    labels, group = (store.read("ifca-0").arrays[name] for name in ("labels", "group"))
    order = np.argsort(group, kind="stable")
    assert groups.tolist() == group[order].tolist()
    assert cells.tolist() == np.where(labels[:, order] < 0, 255, labels[:, order]).T.tolist()


def test_the_files_of_a_report(tmp_path):
    synthetic.sweep(tmp_path)
    path = write.report(tmp_path)
    assert path == tmp_path / "report" / "index.html"
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "index.html",
        "table.csv",
        "table.md",
        "table.tex",
        "tests.tex",
    ]


def drifting(folder):
    """Two seeds of a method with changes at rounds 2 and 4, and a method without."""
    store = Store(folder)
    for seed in range(2):
        arrays = synthetic.arrays_of(seed, 0.8)
        arrays["history/groups_changed"] = np.float32([0, 0, 4, 0, 2, 0])
        record = synthetic.record_of(f"a{seed}", seed, arrays)
        record["summary"] |= {
            "recovery_rounds": 3.0 + seed,
            "accuracy_in_drift": 0.61,
            "ari_in_drift": 0.4,
        }
        store.write(f"a{seed}", record, arrays)
    synthetic.add(store, "b", 0, method="fedavg")


def test_the_rounds_in_which_clients_change_are_marked_and_the_table_says_how_runs_recover(
    tmp_path,
):
    drifting(tmp_path)
    text = made(tmp_path)
    names = [config["name"].split()[0] for config in data_of(text)["configs"]]
    assert dict(zip(names, data_of(text)["changes"], strict=True)) == {"IFCA": [2, 4], "FedAvg": []}
    for heading in ("in drift", "ARI in drift", "rounds to recover"):
        assert heading in text
    plain = tmp_path / "plain"
    synthetic.sweep(plain)
    assert "rounds to recover" not in made(plain) and data_of(made(plain))["changes"] == [
        [],
        [],
        [],
    ]
