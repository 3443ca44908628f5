"""The committed records."""

from pathlib import Path

import pytest

from cfljax.store import Store

FOLDERS = sorted(Path(__file__).parents[2].joinpath("experiments", "records").iterdir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_committed_records_are_what_was_written(folder):
    store = Store(folder, read_only=True)
    assert store.read_plan() is not None or store.read_spec() is None
    assert {name: store.check(name) for name in store.ids()} == dict.fromkeys(store.ids())
