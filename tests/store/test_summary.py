import math
import subprocess

import numpy as np
import pytest

from cfljax.store import QUANTITIES, provenance, summarise
from cfljax.store.provenance import _run_git, git
from cfljax.store.summary import worst_tenth


def curves(**changes):
    rounds = np.arange(0, 26, 2)
    base = {
        "round": rounds, "accuracy": np.linspace(0.1, 0.7, 13), "loss": np.linspace(2, 1, 13), "ari": np.linspace(0, 1, 13),
        "clusters": np.full(13, 4.0), "bytes_up": np.arange(13) * 1000.0, "bytes_down": np.arange(13) * 2000.0,
    }  # fmt: skip
    return base | changes


def test_the_numbers_are_those_computed_by_hand():
    clients = np.linspace(0, 1, 25)
    found = summarise(curves(), clients, target=0.45)
    always = [name for name, each in QUANTITIES.items() if each.compute and each.frame == "always"]
    assert [name for name in found if name != "bytes_to_target"] == always
    assert found["accuracy_max"] == found["accuracy_last"] == pytest.approx(0.7)
    assert found["accuracy_last10"] == pytest.approx(np.linspace(0.1, 0.7, 13)[-10:].mean())
    assert found["accuracy_worst10"] == pytest.approx(np.sort(clients)[:3].mean())
    assert found["accuracy_client_std"] == pytest.approx(clients.std())
    assert (found["loss_last"], found["ari_last"], found["clusters_last"], found["rounds"]) == (
        1.0,
        1.0,
        4,
        24,
    )
    assert (found["round_to_target"], found["bytes_up"], found["bytes_down"]) == (
        14,
        12_000,
        24_000,
    )
    assert found["bytes_to_target"] == 7 * 3000
    assert math.isnan(found["nmi_last"]) and math.isnan(found["purity_last"])


def test_the_start_counts_for_neither_maximum_nor_target_nor_mean():
    found = summarise({"round": np.arange(3), "accuracy": np.array([0.9, 0.2, 0.4])}, target=0.8)
    assert (
        found["accuracy_max"] == 0.4
        and found["round_to_target"] is None
        and found["accuracy_last10"] == pytest.approx(0.3)
    )


def test_numbers_that_are_not_finite_are_left_out_of_means_and_shown_as_the_last():
    accuracy = np.linspace(0.1, 0.7, 13)
    accuracy[5] = np.nan
    accuracy[-1] = np.nan
    found = summarise(curves(accuracy=accuracy), np.array([np.nan, 0.5, 1.0, np.nan]), target=0.3)
    assert found["accuracy_max"] == pytest.approx(0.65) and math.isnan(found["accuracy_last"])
    assert found["accuracy_last10"] == pytest.approx(np.nanmean(accuracy[-10:]))
    assert (found["accuracy_worst10"], found["accuracy_client_std"], found["round_to_target"]) == (
        0.5,
        0.25,
        8,
    )


def test_a_target_met_exactly_is_reached():
    assert (
        summarise({"round": np.arange(2), "accuracy": np.float32([0, 0.7])}, target=0.7)[
            "round_to_target"
        ]
        == 1
    )


def test_a_run_without_curves_has_a_summary():
    found = summarise({})
    assert (
        found["rounds"] == 0
        and found["round_to_target"] is None
        and math.isnan(found["accuracy_max"])
    )


def test_without_client_numbers_the_curves_tell():
    found = summarise(
        curves(accuracy_worst10=np.linspace(0, 0.2, 13), accuracy_client_std=np.full(13, 0.1))
    )
    assert found["accuracy_worst10"] == 0.2 and found["accuracy_client_std"] == pytest.approx(0.1)


@pytest.mark.parametrize(("clients", "lowest"), [(1, 1), (10, 1), (11, 2), (100, 10)])
def test_the_worst_tenth_is_rounded_up(clients, lowest):
    values = np.random.default_rng(0).random(clients)
    assert worst_tenth(values) == pytest.approx(np.sort(values)[:lowest].mean())
    assert math.isnan(worst_tenth(np.full(3, np.nan)))


def test_provenance_names_versions_device_and_git(tmp_path, monkeypatch):
    found = provenance()
    assert set(found) == {"versions", "device", "git", "errata"}
    assert {"jax", "numpy", "python", "cfljax", "cfljax sources"} <= set(found["versions"])
    assert found["versions"]["numpy"] == np.__version__
    git.cache_clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git() is None
    monkeypatch.setenv("PATH", "")
    assert _run_git("rev-parse", "HEAD") is None
    git.cache_clear()


def test_the_best_evaluation_is_that_of_the_validation_samples():
    """Test accuracy is highest elsewhere. Of equal ones the least validation loss decides, and then
    the first."""
    found = {
        "round": [0, 2, 4, 6],
        "accuracy": [0.1, 0.5, 0.9, 0.6],
        "val_accuracy": [0.1, 0.8, 0.7, 0.8],
    }
    for loss, best in (
        ([3, 2, 0.5, 1], (0.6, 6)),
        ([3, 1, 0.5, 2], (0.5, 2)),
        ([3, 1, 0.5, 1], (0.5, 2)),
    ):
        summary = summarise(found | {"val_loss": loss})
        assert (summary["accuracy_at_best_val"], summary["round_of_best_val"]) == best


def test_a_repository_with_changes_is_told_from_one_without(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("one")
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *words], check=True)
    assert git.__wrapped__()["dirty"] is False
    (tmp_path / "file").write_text("two")
    assert git.__wrapped__()["dirty"] is True


def drifting(accuracy, changed, ari=None):
    rounds = np.arange(len(accuracy))
    return {
        "round": rounds, "accuracy": np.float32(accuracy), "ari": np.linspace(0, 1, len(accuracy)) if ari is None else ari,
        "groups_changed": np.isin(rounds, changed) * 4.0,
    }  # fmt: skip


def test_a_run_has_recovered_when_it_is_within_a_point_of_before_the_change():
    found = summarise(
        drifting([0.2, 0.8, 0.5, 0.7, 0.79, 0.9, 0.6, 0.895, 0.9], [2, 6]),
        spans=[(2, 2), (6, 6)],
    )
    assert found["recovery_rounds"] == pytest.approx(
        (2 + 1) / 2
    )  # 0.79 after 2 rounds, 0.895 after 1
    assert found["accuracy_in_drift"] == pytest.approx(
        np.mean([0.5, 0.7, 0.79, 0.9, 0.6, 0.895, 0.9])
    )
    assert found["ari_in_drift"] == pytest.approx(np.linspace(0, 1, 9)[2:].mean())
    assert (
        summarise(drifting([0.2, 0.8, 0.795, 0.1], [2]), spans=[(2, 2)])["recovery_rounds"] == 0
    )  # it did not notice


def test_a_run_that_does_not_recover_before_the_next_change_has_no_number():
    curve = [0.2, 0.8, 0.5, 0.6, 0.5, 0.8]
    assert summarise(drifting(curve, [2, 4]), spans=[(2, 2), (4, 4)])["recovery_rounds"] is None
    assert summarise(drifting(curve, [2]), spans=[(2, 2)])["recovery_rounds"] == 3
    in_the_round_of_the_next = drifting([0.2, 0.8, 0.5, 0.6, 0.8, 0.8], [2, 4])
    assert summarise(in_the_round_of_the_next, spans=[(2, 2), (4, 4)])["recovery_rounds"] is None
    assert summarise(drifting([0.2, 0.8, 0.5], [2]), spans=[(2, 2)])["recovery_rounds"] is None
    assert (
        summarise(drifting([np.nan, np.nan, 0.5], [2]), spans=[(2, 2)])["recovery_rounds"] is None
    )


def test_a_change_client_by_client_is_one_change_that_is_over_with_its_last_client():
    curve = [0.2, 0.8, 0.795, 0.7, 0.6, 0.7, 0.79]
    assert summarise(drifting(curve, [2, 3, 4]), spans=[(2, 4)])["recovery_rounds"] == 2


def test_of_a_file_each_evaluation_that_sees_a_change_counts():
    curve = [0.2, 0.8, 0.5, 0.8, 0.5, 0.6, 0.79]
    found = summarise(drifting(curve, [2, 4]))
    assert found["recovery_rounds"] == pytest.approx((1 + 2) / 2)
    assert found["accuracy_in_drift"] == pytest.approx(np.mean(curve[2:]))
    none = summarise(drifting(curve, []))
    assert none["recovery_rounds"] is None and math.isnan(none["accuracy_in_drift"])


def test_rounds_between_evaluations_count():
    history = {
        "round": [0, 5, 10, 15],
        "accuracy": [0.1, 0.8, 0.5, 0.8],
        "ari": [0, 0, 0, 1.0],
        "groups_changed": [0, 0, 3, 0],
    }
    assert summarise(history, spans=[(7, 7)])["recovery_rounds"] == 8
