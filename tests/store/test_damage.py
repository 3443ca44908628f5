import os
import warnings

import numpy as np
import pytest

from cfljax.errors import StoreError
from cfljax.store import DamagedWarning, Store, locks
from cfljax.store import arrays as npz
from tests.store.helpers import make_arrays, make_record, same


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "out")
    for name in ("a", "b", "c"):
        store.write(name, make_record(), make_arrays())
    return store


def damages(data, rng, flips):
    """The file cut short, zeroed in part or whole, with garbage behind, and with single bits
    turned."""
    size = len(data)
    yield b""
    yield data[: size // 2]
    yield data[:-1]
    yield bytes(size)
    yield data[: size // 2] + bytes(size - size // 2)
    yield data + b"\0"
    for bit in rng.choice(size * 8, min(flips, size * 8), replace=False):
        turned = bytearray(data)
        turned[bit // 8] ^= 1 << (bit % 8)
        yield bytes(turned)


@pytest.mark.parametrize("file", ["b.npz", "b.json"])
def test_every_damage_is_found_and_hides_no_other_unit(store, file):
    path = store.units / file
    data = path.read_bytes()
    reader = Store(store.folder, read_only=True)
    for number, bad in enumerate(damages(data, np.random.default_rng(0), 400)):
        path.write_bytes(bad)
        assert reader.check("b") is not None, number
        if file.endswith("json") or len(bad) != len(data):
            with pytest.warns(DamagedWarning, match="b: damaged"):
                assert reader.done() == {"a", "c"}
    path.write_bytes(data)
    assert reader.done(verify=True) == {"a", "b", "c"}


@pytest.mark.parametrize("file", ["b.npz", "b.json"])
def test_a_damaged_unit_is_set_aside_and_can_be_computed_again(store, file):
    path = store.units / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)
    with pytest.warns(DamagedWarning, match="moved to .*damaged"):
        assert store.done(verify=True) == {"a", "c"}
    assert {p.name for p in (store.folder / "damaged").iterdir()} == {"b.npz", "b.json"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.done(verify=True) == {"a", "c"}
        with store.claim("b") as mine:
            assert mine
            store.write("b", make_record(), make_arrays())
        assert same(store.read("b").arrays, make_arrays())
    path.write_bytes(data)
    with pytest.warns(DamagedWarning):
        store.done(verify=True)
    assert (
        len(list((store.folder / "damaged").iterdir())) == 4
    )  # the first evidence was not overwritten


def test_reading_a_damaged_unit_is_one_line_and_sets_it_aside(store):
    (store.units / "b.npz").write_bytes(bytes((store.units / "b.npz").stat().st_size))
    with (
        pytest.warns(DamagedWarning),
        pytest.raises(StoreError, match="b: damaged: .*SHA-256") as caught,
    ):
        store.read("b")
    assert "\n" not in str(caught.value) and store.ids() == ["a", "c"]


def test_a_unit_that_is_being_written_is_not_set_aside(store):
    (store.units / "b.npz").write_bytes(b"new arrays, the record follows")
    with locks.claim(store.locks / "b~write.lock") as writer, warnings.catch_warnings():
        assert writer
        warnings.simplefilter("error")
        assert (
            Store(store.folder).done() == {"a", "c"} == Store(store.folder, read_only=True).done()
        )
        assert (store.units / "b.npz").exists()


def test_every_damage_to_a_checkpoint_is_found(store):
    store.save_checkpoint("u", {"state": np.arange(5, dtype=np.float32)}, {"round": 3})
    path = store.checkpoints / "u.npz"
    data = path.read_bytes()
    for number, bad in enumerate(damages(data, np.random.default_rng(1), 400)):
        with pytest.raises(npz.Damaged):
            npz.unseal(bad)
            pytest.fail(f"damage {number} was not found")
    path.write_bytes(data[:-1] + b"!")  # the arrays are good, and nothing vouches for them
    with pytest.warns(DamagedWarning, match="starts from its beginning"):
        assert store.load_checkpoint("u") is None
    assert (store.folder / "damaged" / "u.npz").exists() and store.load_checkpoint("u") is None


def test_a_damaged_plan_is_set_aside(store):
    store.write_plan({"units": ["a"]})
    path = store.folder / "plan.json"
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"b"'))
    with pytest.warns(DamagedWarning, match="plan.json"):
        assert store.read_plan() is None
    assert store.read_plan() is None and (store.folder / "damaged" / "plan.json").exists()


@pytest.mark.parametrize("plan", [
    {"units": "abc"}, {"units": ["../a"]}, {"batches": {"runs": []}}, {"batches": ["a"]}, {"batches": [{"runs": ["a"]}]},
    {"batches": [{"runs": [], "width": 1}]}, {"batches": [{"runs": ["a"], "width": 0}]}, {"threads": "two"}, {"threads": True},
])  # fmt: skip
def test_a_plan_of_another_form_is_set_aside_whatever_its_sum_says(store, plan):
    store.write_plan(plan)
    with pytest.warns(DamagedWarning, match="plan.json: damaged"):
        assert store.read_plan() is None
    store.write_plan(
        {
            "units": ["a"],
            "batches": [{"runs": ["a", "b"], "width": 2}],
            "threads": None,
            "more": [1],
        }
    )
    assert store.read_plan()["batches"][0]["width"] == 2


def test_a_record_under_another_name_is_damage(store):
    for kind in ("json", "npz"):
        (store.units / f"d.{kind}").write_bytes((store.units / f"a.{kind}").read_bytes())
    with pytest.warns(DamagedWarning, match="another unit"):
        assert store.done() == {"a", "b", "c"}


def test_a_link_in_place_of_a_file_is_not_followed(store, tmp_path):
    for kind in ("json", "npz"):
        path = store.units / f"b.{kind}"
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    with pytest.warns(DamagedWarning):
        assert store.done() == {"a", "c"}
    assert (tmp_path / "b.json").exists() and not (store.units / "b.json").is_symlink()


def test_a_pipe_in_place_of_a_file_does_not_stop_the_reader(store):
    (store.units / "b.json").unlink()
    os.mkfifo(store.units / "b.json")
    with pytest.warns(DamagedWarning, match="not a regular file"):
        assert store.done() == {"a", "c"}
