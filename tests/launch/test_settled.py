"""What a folder's plan has settled, and flags that want something else."""

import jax
import pytest

from cfljax.config import read_spec
from cfljax.devices import cores
from cfljax.devices.machine import describe_machine
from cfljax.devices.mesh import AUTO, Shape
from cfljax.errors import SpecError
from cfljax.launch import plan_file, workers
from cfljax.launch.sweep import SweepOptions, carry_out
from cfljax.launch.workers import carry_out_by_processes, choose_processors
from cfljax.store import Store

SMALL = {
    "data": {"name": "blobs", "samples": 60, "partition": "iid", "clients": 3}, "model": "mclr", "train": {"rounds": 1},
    "method": "fedavg",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder whose runs are all done."""
    folder = tmp_path_factory.mktemp("done")
    carry_out(read_spec(SMALL), Store(folder), SweepOptions(quiet=True))
    return folder


def test_a_new_folder_has_the_mesh_that_is_wanted_and_an_old_one_its_own(tmp_path):
    store, wanted = Store(tmp_path), Shape(2, 4)
    assert (
        plan_file.choose_mesh(store, {}, wanted) == wanted
        and plan_file.choose_mesh(store, {}, None) is None
    )
    assert (
        plan_file.choose_mesh(store, {"mesh": [2, 4]}, None)
        == plan_file.choose_mesh(store, {"mesh": [2, 4]}, wanted)
        == wanted
    )
    for before, words in [
        (
            {"mesh": None, "threads": 2},
            "was begun with no mesh, as its plan.json says; leave out --mesh, or another folder",
        ),
        (
            {"mesh": [1, 4]},
            "was begun with --mesh runs=1,clients=4, as its plan.json says; give that, or "
            "another folder",
        ),
        (
            {"mesh": AUTO},
            "was begun with --mesh auto, as its plan.json says; give that, or another folder",
        ),
    ]:
        with pytest.raises(SpecError) as error:
            plan_file.choose_mesh(store, before, wanted)
        assert str(error.value) == f"--mesh runs=2,clients=4: {tmp_path} {words}"


def test_a_sweep_refuses_another_mesh_than_its_folder_has(folder):
    before = (folder / "plan.json").read_bytes()
    with pytest.raises(SpecError, match="--mesh runs=1,clients=1: .* was begun with no mesh"):
        carry_out(read_spec(SMALL), Store(folder), SweepOptions(quiet=True, mesh=Shape(1, 1)))
    assert (folder / "plan.json").read_bytes() == before


def test_a_mesh_of_another_folder_is_forgotten(tmp_path):
    carry_out(read_spec(SMALL), Store(tmp_path / "a"), SweepOptions(quiet=True, mesh=Shape(1, 1)))
    carry_out(read_spec(SMALL), Store(tmp_path / "b"), SweepOptions(quiet=True))
    meshes = [Store(tmp_path / name).read_plan()["mesh"] for name in "ab"]
    assert meshes == [[1, 1], None]


def test_a_mesh_that_the_devices_do_not_fit_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(SpecError, match="--mesh runs=1,clients=64: needs 64 devices"):
        carry_out(read_spec(SMALL), Store(tmp_path), SweepOptions(quiet=True, mesh=Shape(1, 64)))
    assert Store(tmp_path).ids() == [] and Store(tmp_path).read_plan() is None


def test_the_plan_has_the_threads_and_devices_of_the_process_that_made_it(folder):
    plan = Store(folder).read_plan()
    assert (plan["threads"], plan["devices"], plan["mesh"]) == (
        cores.count_threads(),
        jax.local_device_count(),
        None,
    )
    assert plan_file.list_differences(Store(folder), describe_machine()) == []


def test_a_process_says_what_of_the_plan_it_cannot_keep_to(tmp_path):
    store = Store(tmp_path)
    store.write_plan({"devices": 63, "threads": 65})
    first, second = plan_file.list_differences(store, describe_machine())
    assert (
        f"{tmp_path} was begun with 63 devices" in first
        and f"{tmp_path} was begun with 65 threads" in second
    )
    assert first.endswith("agrees with the rest to rounding, not to the last bit")


def test_a_folder_that_was_begun_on_another_kind_of_machine_says_that_its_batches_stay_as_they_are(
    folder,
):
    assert Store(folder).read_plan()["backend"] == "cpu"
    (line,) = plan_file.list_differences(Store(folder), describe_machine()._replace(backend="tpu"))
    assert "was begun on a CPU, and this is a TPU: its batches stay as wide as they are" in line


@pytest.mark.parametrize("laid_down, flag, said", [
    ({"devices": 2, "threads": 4}, 4, "was begun with 2 devices in one process, and continues so"),
    ({"devices": 1, "threads": 1}, 2, "each computes with 1 threads, as"), ({"devices": 1, "threads": 1}, 4, None),
    ({"devices": 2, "threads": 4}, None, None),
])  # fmt: skip
def test_workers_that_the_folder_overrides_are_said(
    tmp_path, monkeypatch, capsys, laid_down, flag, said
):
    store = Store(tmp_path)
    store.write_plan(laid_down)
    for name, value in {
        "list_cores": lambda: [0, 1, 2, 3],
        "carry_out": lambda *_, **__: None,
        "prepare_batches": lambda *_, **__: ([], None),
    }.items():
        monkeypatch.setattr(workers, name, value)
    carry_out_by_processes(read_spec(SMALL), store, SweepOptions(quiet=True), flag, [])
    err = capsys.readouterr().err
    assert (
        err == ""
        if said is None
        else f"--workers {flag}: " in err and said in err and str(tmp_path) in err
    )


def test_every_worker_has_as_many_processors_as_threads():
    assert [choose_processors([4, 5, 6], number, 2) for number in range(3)] == [
        [4, 5],
        [6, 4],
        [5, 6],
    ]
    assert [choose_processors([4, 5], number, 1) for number in range(4)] == [[4], [5], [4], [5]]
    assert choose_processors([4, 5], 1, 8) == [4, 5]
