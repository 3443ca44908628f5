"""When a batch's state is kept, and what the folder's log says about it."""

import json

import numpy as np
import pytest

from cfljax.engine.resume import Checkpoint, Spent
from cfljax.errors import SpecError
from cfljax.launch.checkpoints import CHECKPOINT_SECONDS, Checkpoints, log_batch, read_interval
from cfljax.software import software
from cfljax.store import DamagedWarning, Store


def test_the_environment_says_how_often_a_checkpoint_is_written(monkeypatch):
    monkeypatch.delenv("CFLJAX_CHECKPOINT", raising=False)
    assert read_interval() == CHECKPOINT_SECONDS
    monkeypatch.setenv("CFLJAX_CHECKPOINT", "0.5")
    assert read_interval() == 0.5
    for wrong in ("often", "-1", "nan"):
        monkeypatch.setenv("CFLJAX_CHECKPOINT", wrong)
        with pytest.raises(SpecError, match=f'CFLJAX_CHECKPOINT = "{wrong}"'):
            read_interval()


def checkpoint():
    rows = {"round": np.zeros((1, 3)), "diag/size": np.ones((1, 3))}
    return Checkpoint(
        3, {".state.models": np.zeros(2, np.float32)}, rows, Spent(1.0, 2.0, 3.0, 0.5)
    )


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    checkpoints = Checkpoints(Store(tmp_path), "batch", every=0)
    checkpoints.save(checkpoint)
    found, wanted = checkpoints.load(), checkpoint()
    assert (found.done, found.spent, list(found.carry)) == (3, wanted.spent, [".state.models"])
    assert found.carry[".state.models"].tobytes() == wanted.carry[".state.models"].tobytes()


def test_a_checkpoint_of_other_versions_is_set_aside_with_one_line(tmp_path, monkeypatch):
    store = Store(tmp_path)
    checkpoints = Checkpoints(store, "batch", every=0)
    checkpoints.save(checkpoint)
    written = (store.checkpoints / "batch.npz").read_bytes()
    monkeypatch.setattr("cfljax.launch.checkpoints.software", lambda: software() | {"jax": "99.1"})
    with pytest.warns(
        DamagedWarning,
        match=r"checkpoint batch cannot be used: it was made by jax \S+ \(now 99.1\)",
    ) as said:
        assert checkpoints.load() is None
    assert len(said) == 1 and (tmp_path / "set_aside" / "batch.npz").read_bytes() == written
    assert checkpoints.load() is None  # and no more warnings


def test_the_log_says_who_began_a_batch_and_from_which_round(tmp_path):
    store = Store(tmp_path)
    checkpoints = Checkpoints(store, "batch", every=0)
    assert checkpoints.load() is None
    checkpoints.save(checkpoint)
    assert Checkpoints(store, "batch").load().done == 3
    log_batch(store, "done", "batch")
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["event"], line.get("from")) for line in lines] == [
        ("begin", 0),
        ("begin", 3),
        ("done", None),
    ]
    assert all(line["batch"] == "batch" and line["pid"] for line in lines)
