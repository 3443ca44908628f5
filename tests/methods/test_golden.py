"""The record of all methods' numbers: what is a difference, and that ids of runs follow it."""

import json

import numpy as np
import pytest

from tests.methods import golden

RELEASED = json.loads(golden.RELEASED.read_text())


def test_runs_whose_numbers_move_get_other_ids():
    """By `RESULTS_VERSION`, or by a revision of these runs."""
    assert RELEASED["release"] == golden.version(), "run python -m tests.methods.golden --release"
    found = golden.unannounced(RELEASED, golden.read_record(), golden.ids())
    assert not found, (
        f"the numbers of {found} are not those of {RELEASED['release']}: their runs must have other "
        "ids (`cfljax/config/revisions.py`)"
    )


def test_a_number_that_moves_asks_for_another_id():
    record, ids = golden.read_record(), golden.ids()
    run, numbers = record["ifca"]
    other = record | {"ifca": (run, numbers | {"models": numbers["models"] * np.float32(1.001)})}
    kept = {
        "methods": {
            name: {"id": ids[name], "numbers": digest}
            for name, digest in golden.digests(record).items()
        }
    }
    assert golden.unannounced(kept, record, ids) == []
    assert golden.unannounced(kept, other, ids) == ["ifca"]
    assert golden.unannounced(kept, other, ids | {"ifca": "another"}) == []
    assert golden.unannounced(kept, record | {"new": record["ifca"]}, ids) == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("models", lambda a: a * 1.001),
        ("history", lambda a: a + 1e-3),
        ("labels", lambda a: 1 - a),
        ("bytes", lambda a: a + 1),
        ("models", lambda a: a[:-1]),
        ("models", lambda a: a * np.nan),
    ],
)
def test_what_is_a_difference(name, change):
    _, numbers = golden.read_record()["ifca"]
    assert golden.unlike(numbers, numbers | {"models": numbers["models"] * (1 + 1e-6)}) == []
    (line,) = golden.unlike(numbers, numbers | {name: change(numbers[name])})
    assert line.startswith(f"{name}: ")
