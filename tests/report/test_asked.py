"""Columns that are computed where they are asked for, against plain numpy."""

import numpy as np
import pytest

import cfljax
from cfljax.commands import process
from cfljax.commands.report import parser, run
from cfljax.config import read_spec
from cfljax.experiment.assemble import host_federation
from cfljax.report.asked import generalisation
from cfljax.report.report_data import read
from cfljax.results.predict import read_run
from tests.reference import scorer
from tests.report import synthetic

BLOBS = {
    "name": "blobs",
    "samples": 400,
    "features": 6,
    "classes": 4,
    "partition": "dirichlet",
    "alpha": 0.5,
    "clients": 12,
}
SPEC = {
    "data": BLOBS
    | {
        "views": [{"name": "label_permutation", "groups": 2}],
        "new_clients": {"share": 0.2, "shots": 5, "steps": [0]},
    },
    "model": "mclr",
    "train": {"rounds": 3, "lr": 0.2},
    "method": ["fedavg", {"name": "ifca", "clusters": 2}],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return cfljax.sweep(SPEC, tmp_path_factory.mktemp("asked") / "out", keep="models", quiet=True)


def cells(folder, column):
    return {
        row.configuration.method: row.cells[column] for row in read([folder], names=[column]).table
    }


def test_generalisation_is_on_the_other_clients_of_the_true_group(results):
    found = cells(results.store.folder, "generalisation")
    for result in results:
        federation = host_federation(read_run(result.record))
        group, trains, right, count = (
            np.asarray(federation.group),
            np.asarray(federation.trains),
            {},
            {},
        )
        networks = [result.params(k) for k in range(len(result.models))]
        for client in range(12):
            x, y = result.samples(client)
            count[client] = len(y)
            for k, params in enumerate(networks):
                right[k, client] = (scorer.forward(params, x).argmax(1) == y).sum()
        each = []
        for client in np.flatnonzero(trains):
            k = int(result.labels[client]) if len(result.models) > 1 else 0
            others = [c for c in range(12) if c != client and group[c] == group[client]]
            each.append(sum(right[k, c] for c in others) / sum(count[c] for c in others))
        assert len(each) == 10 and 0 < np.mean(each) < 1
        assert found[result.method].mean == pytest.approx(np.mean(each), abs=1e-6)


def test_a_method_that_makes_a_clients_model_when_it_scores_it_has_no_generalisation(results):
    like, (adapting,) = results[0], read_spec(SPEC | {"method": ["per_fedavg"]}).runs()
    record = like.record | {"id": adapting.id, "config": adapting.resolved()}
    assert np.isfinite(generalisation(like))
    assert np.isnan(generalisation(cfljax.Result(record, like.arrays)))


def test_was_is_a_silhouette_of_sorted_class_frequencies(results):
    found = cells(results.store.folder, "was")
    assert found["fedavg"].n == 0  # one cluster
    (ifca,) = (result for result in results if result.method == "ifca")
    federation = host_federation(read_run(ifca.record))
    frequencies, labels = [], []
    for client in np.flatnonzero(federation.trains):
        start, count = int(federation.train.start[client]), int(federation.train.count[client])
        y = np.asarray(federation.pool.y)[np.asarray(federation.train.rows)[start : start + count]]
        frequencies.append(
            sorted(np.bincount(y, minlength=4) / count)
        )  # a permutation of labels changes nothing
        labels.append(int(ifca.labels[client]))
    x, labels, each = np.array(frequencies), np.array(labels), []
    distance = np.sqrt(((x[:, None] - x) ** 2).mean(2))
    for i, mine in enumerate(labels):
        inside = [distance[i, j] for j in range(len(x)) if labels[j] == mine and j != i]
        outside = min(distance[i, labels == other].mean() for other in set(labels) - {mine})
        each.append((outside - np.mean(inside)) / max(outside, np.mean(inside)) if inside else 0.0)
    assert (
        found["ifca"].mean == pytest.approx(np.mean(each), abs=1e-5) and abs(np.mean(each)) > 0.001
    )


def test_overhead_is_over_fedavg_with_the_same_seed_data_and_training(tmp_path):
    store = synthetic.sweep(tmp_path, (("fedavg", 0.5),))
    synthetic.add(store, "longer", 0, method="oracle", varies={"train.lr": 0.5})
    for seed in range(3):
        arrays = synthetic.arrays_of(seed, 0.8)
        record = synthetic.record_of(
            f"ifca-{seed}", seed, arrays, timings={"train": 4.0, "eval": 0.5, "compile": 9.0}
        )
        record["summary"]["bytes_down"] *= seed + 1
        store.write(record["id"], record, arrays)
    store.write_plan({"name": "overhead", "units": store.ids()})
    bytes_, seconds = cells(tmp_path, "bytes_over_fedavg"), cells(tmp_path, "seconds_over_fedavg")
    assert bytes_["fedavg"].mean == 1 and bytes_["ifca"].mean == pytest.approx(
        np.mean([1, 5 / 3, 7 / 3])
    )
    assert (
        seconds["ifca"].mean == pytest.approx(2)
        and bytes_["ifca"].n == 3
        and bytes_["oracle"].n == 0
    )


def test_what_cannot_be_computed_is_said_in_one_line(tmp_path, capsys):
    synthetic.sweep(tmp_path)

    def call(*words):
        return process.main(run, parser(), [str(tmp_path), "--no-figures", "--columns", *words])

    assert (
        call("generalisation") == 2
        and "compute the runs with --keep models" in capsys.readouterr().err
    )
    assert (
        call("generalization") == 2 and 'did you mean "generalisation"' in capsys.readouterr().err
    )
    assert call("bytes,bytes_over_fedavg") == 0
    assert capsys.readouterr().out.splitlines()[0].split("  ")[-2:] == [
        "bytes",
        " bytes over FedAvg",
    ]
