"""When a batch's state is kept, and what the folder's log says about it."""

import json

import numpy as np
import pytest

from cfljax.errors import SpecError
from cfljax.launch.checkpoint import EVERY, Keeper, seconds_between
from cfljax.simulate import Checkpoint
from cfljax.store import Store


def test_the_environment_says_how_often_a_checkpoint_is_written(monkeypatch):
    monkeypatch.delenv("CFLJAX_CHECKPOINT", raising=False)
    assert seconds_between() == EVERY
    monkeypatch.setenv("CFLJAX_CHECKPOINT", "0.5")
    assert seconds_between() == 0.5
    for wrong in ("often", "-1", "nan"):
        monkeypatch.setenv("CFLJAX_CHECKPOINT", wrong)
        with pytest.raises(SpecError, match=f'CFLJAX_CHECKPOINT = "{wrong}"'):
            seconds_between()


def test_the_log_says_who_began_a_batch_and_from_which_round(tmp_path):
    store = Store(tmp_path)
    keeper = Keeper(store, "batch", every=0)
    assert keeper.load() is None
    keeper.save(lambda: Checkpoint(3, [np.zeros(2, np.float32)], {"round": np.zeros((1, 3)), "diag": {}}))
    assert Keeper(store, "batch").load().done == 3
    keeper.remove()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["event"], line.get("from")) for line in lines] == [("begin", 0), ("begin", 3), ("done", None)]
    assert all(line["batch"] == "batch" and line["pid"] for line in lines)
