"""Sweeps in this process: what is computed, kept, skipped, split and reported."""

import json
import weakref

import jax
import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.devices import compiled, cores
from cfljax.devices.machine import describe_machine
from cfljax.errors import DataError, SpecError, SpecWarning
from cfljax.launch import batch as batch_module
from cfljax.launch import plan_file
from cfljax.launch import sweep as launcher
from cfljax.launch.checkpoints import Checkpoints
from cfljax.launch.progress import Progress
from cfljax.launch.sweep import SweepOptions, carry_out
from cfljax.store import DamagedWarning, Store

QUIET = SweepOptions(quiet=True)
DATA = {
    "name": "blobs",
    "samples": 200,
    "partition": "label_permutation",
    "groups": 2,
    "clients": 6,
}
TRAIN = {"rounds": 3, "participation": 4, "lr": 0.1}


def spec(*sets, **tables):
    return read_spec({
        "name": "test", "data": DATA, "model": {"name": "mclr"}, "train": TRAIN,
        "method": [{"name": "fedavg"}, {"name": "fedprox", "mu": [0.1, 1.0]}], "seeds": [0, 1],
    } | tables, sets)  # fmt: skip


def units(folder):
    store = Store(folder, read_only=True)
    return {name: store.read(name) for name in store.ids()}


def same(a, b):
    assert a.keys() == b.keys()
    return all(
        unit.arrays.keys() == b[name].arrays.keys()
        and all(
            values.tobytes() == b[name].arrays[key].tobytes() for key, values in unit.arrays.items()
        )
        for name, unit in a.items()
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, *counted(spec(), folder)


def counted(sweep, folder):
    """(what came of a sweep in a process that has compiled nothing, how many programs it has
    compiled)."""
    compiled.forget()
    before = compiled.compilations
    return carry_out(sweep, Store(folder), QUIET), compiled.compilations - before


def test_every_run_is_done_and_numbers_and_seeds_compile_once(whole, tmp_path):
    folder, outcome, programs = whole
    assert outcome == (6, 0, 0, 6)
    one = counted(spec(seeds=[0], method=[{"name": "fedavg"}]), tmp_path / "one")[1]
    two = counted(
        spec(seeds=[0], method=[{"name": "fedavg"}, {"name": "fedprox", "mu": 0.1}]),
        tmp_path / "two",
    )[1]
    assert one < two < 2 * one  # the first model and the evaluation are one program for both
    assert programs == two  # whatever mu, whatever seed
    frame = cfljax.load(folder).to_pandas()
    assert list(frame["method"]) == ["fedavg"] * 2 + ["fedprox"] * 4
    assert list(frame["method.mu"].dropna()) == [0.1, 0.1, 1.0, 1.0]
    assert (frame["accuracy_max"] > 0.4).all() and (frame["rounds"] == 3).all()
    history = cfljax.load(folder).history()
    assert len(history) == 6 * 4 and set(history["round"]) == {0, 1, 2, 3}


def test_started_again_it_has_nothing_to_do(whole):
    folder, _, _ = whole
    files = {p: p.stat().st_mtime_ns for p in (folder / "units").iterdir()}
    assert carry_out(spec(), Store(folder), QUIET) == (6, 0, 0, 0)
    assert files == {p: p.stat().st_mtime_ns for p in (folder / "units").iterdir()}


def test_stopped_half_way_and_resumed_it_gives_the_same_bits(whole, tmp_path, monkeypatch):
    real, calls = batch_module.simulate, []

    def interrupted(*args, **more):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **more)

    monkeypatch.setattr(batch_module, "simulate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        carry_out(spec(), Store(tmp_path), QUIET)
    assert len(units(tmp_path)) == 2
    assert carry_out(spec(), Store(tmp_path), QUIET).computed == 4
    assert same(units(whole[0]), units(tmp_path))


def test_a_damaged_unit_is_computed_again(whole, tmp_path):
    carry_out(spec("seeds=[0]", "method=fedavg"), Store(tmp_path), QUIET)
    (name,) = Store(tmp_path).ids()
    file = tmp_path / "units" / f"{name}.npz"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    with pytest.warns(UserWarning, match="damaged"):
        outcome = carry_out(spec("seeds=[0]", "method=fedavg"), Store(tmp_path), QUIET)
    assert outcome.computed == 1
    assert same(units(tmp_path), {name: units(whole[0])[name]})


def test_more_seeds_leave_finished_runs_alone(whole, tmp_path):
    carry_out(spec("seeds=[0]", "method=fedavg"), Store(tmp_path), QUIET)
    assert carry_out(spec("method=fedavg"), Store(tmp_path), QUIET).computed == 1
    assert same(units(tmp_path), {k: v for k, v in units(whole[0]).items() if k in units(tmp_path)})


def test_runs_side_by_side_agree_with_runs_alone(whole, tmp_path):
    carry_out(spec(), Store(tmp_path), QUIET, limit=4)
    for name, unit in units(tmp_path).items():
        alone = units(whole[0])[name]
        assert np.allclose(
            unit.arrays["history/accuracy"], alone.arrays["history/accuracy"], atol=0.03
        )
        assert np.allclose(unit.arrays["history/loss"], alone.arrays["history/loss"], atol=1e-4)


def test_a_batch_that_does_not_fit_is_halved_and_the_plan_says_so(tmp_path, monkeypatch):
    real, widths, held = batch_module.simulate, [], []

    def small(*args, **more):
        widths.append(len(args[1]))
        assert not any(array() is not None for array in held), (
            "the halves need the memory of the batch that was too large"
        )
        if len(args[1]) > 2:
            array = np.zeros(1000)
            held.append(weakref.ref(array))
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 byte")
        return real(*args, **more)

    monkeypatch.setattr(batch_module, "simulate", small)
    one = spec("method=fedavg", "seeds=0:4")
    assert carry_out(one, Store(tmp_path), QUIET, limit=4) == (4, 0, 0, 4)
    assert widths == [4, 2, 2] and len(held) == 1
    assert [len(entry["runs"]) for entry in Store(tmp_path).read_plan()["batches"]] == [2, 2]
    assert carry_out(one, Store(tmp_path), QUIET, limit=4).computed == 0


def test_a_run_that_raises_is_no_reason_for_those_beside_it_to_fail(tmp_path, monkeypatch):
    real = batch_module.simulate

    def broken(*args, **more):
        if 3 in args[1]:
            raise ValueError("seed 3")
        return real(*args, **more)

    monkeypatch.setattr(batch_module, "simulate", broken)
    one = spec("method=fedavg", "seeds=0:4")
    assert carry_out(one, Store(tmp_path), QUIET, limit=4) == (3, 0, 1, 4)
    (failed,) = [r for r in Store(tmp_path).records().values() if r["status"] == "failed"]
    assert failed["seed"] == 3 and failed["error"] == "ValueError: seed 3"


def test_a_run_that_raises_is_recorded_and_the_others_go_on(tmp_path, capsys):
    failing = spec(
        method=[{"name": "oracle"}, {"name": "fedavg"}],
        data={"name": "blobs", "partition": "iid", "clients": 4},
    )
    assert carry_out(failing, Store(tmp_path), QUIET) == (2, 0, 2, 4)
    assert "true group" in capsys.readouterr().err
    frame = cfljax.load(tmp_path).to_pandas()
    assert list(frame["status"]) == ["failed", "failed", "done", "done"]
    assert carry_out(failing, Store(tmp_path), QUIET).computed == 0
    assert (
        carry_out(failing, Store(tmp_path), SweepOptions(quiet=True, retry_failed=True)).computed
        == 2
    )


def test_a_run_that_diverges_is_recorded_as_that(tmp_path):
    outcome = carry_out(
        spec("method=fedavg", "seeds=[0]", "train.lr=[0.1, 1e30]"), Store(tmp_path), QUIET
    )
    assert outcome == (1, 1, 0, 2)
    records = [r for r in Store(tmp_path).records().values() if r["status"] == "diverged"]
    assert records[0]["diverged_at"] == 1


def test_failed_runs_are_computed_once_per_start_whoever_works_on_them(tmp_path, monkeypatch):
    one, again = spec("method=fedavg", "seeds=0:2"), SweepOptions(quiet=True, retry_failed=True)
    real, computed = batch_module.simulate, []

    def broken(*args, **more):
        computed.extend(args[1])
        raise ValueError("not today")

    monkeypatch.setattr(batch_module, "simulate", broken)
    assert carry_out(one, Store(tmp_path), QUIET).failed == 2 and computed == [0, 1]
    todo, machine = launcher.prepare_batches(one, Store(tmp_path), again)
    for workers in (
        todo,
        todo[::-1],
    ):  # two workers of one start, of which the second comes when the first is done
        launcher.work(
            workers, launcher.Worker(Store(tmp_path), again, Progress(quiet=True), machine)
        )
    assert computed == [0, 1, 0, 1]
    monkeypatch.setattr(batch_module, "simulate", real)
    assert carry_out(one, Store(tmp_path), QUIET).computed == 0
    assert carry_out(one, Store(tmp_path), again) == (2, 0, 0, 2)


def interrupted(folder, monkeypatch, one):
    """A sweep that ends after its first checkpoint."""
    save = Checkpoints.save

    def last(self, make):
        save(self, make)
        raise KeyboardInterrupt

    monkeypatch.setenv("CFLJAX_CHECKPOINT", "0")
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", last)
        with pytest.raises(KeyboardInterrupt):
            carry_out(one, Store(folder), QUIET)


def test_an_error_of_a_resumed_run_is_its_failure_and_not_a_reason_to_start_again(
    tmp_path, monkeypatch
):
    one, real, resumed = spec("method=fedavg", "seeds=[0]"), batch_module.simulate, []
    interrupted(tmp_path, monkeypatch, one)

    def broken(*args, resume=None, **more):
        resumed.append(resume and resume.done)
        if resume is not None:
            raise ValueError("an error of its own")
        return real(*args, **more)

    monkeypatch.setattr(batch_module, "simulate", broken)
    assert carry_out(one, Store(tmp_path), QUIET).failed == 1 and resumed == [1]


def test_a_checkpoint_that_does_not_fit_is_said_and_the_run_starts_again(
    tmp_path, monkeypatch, whole
):
    one = spec("method=fedavg", "seeds=[0]")
    interrupted(tmp_path, monkeypatch, one)
    store, (file,) = Store(tmp_path), (tmp_path / "checkpoints").iterdir()
    arrays, meta = store.load_checkpoint(file.stem)
    meta["carry"][0] += "_of_old"
    store.save_checkpoint(file.stem, arrays, meta)
    with pytest.warns(
        DamagedWarning,
        match="checkpoint .* cannot be used: it does not fit this program: .*set_aside.*start "
        "again from round 0",
    ):
        assert carry_out(one, store, QUIET).done == 1
    assert same(units(tmp_path), {name: units(whole[0])[name] for name in units(tmp_path)})


def test_a_record_names_the_plan_that_its_run_was_carried_out_by(whole):
    plans = {unit.record["plan"] for unit in units(whole[0]).values()}
    (plan,) = plans
    table, how = plan.rsplit("}, ", 1)
    assert (
        how == f"1 run at a time, {cores.count_threads()} threads" and "lanes = 1, gram = " in table
    )
    forced = (
        spec(f"train.plan={table}}}", "method=fedavg", "seeds=[0]").runs()[0].train.plan_options
    )  # so it may be written in a spec
    assert (forced.lanes, forced.stream, forced.devices, forced.pool) == (
        1,
        0,
        jax.local_device_count(),
        "copied",
    )


def test_missing_data_stops_the_sweep(tmp_path):
    with pytest.raises(DataError):
        carry_out(spec(data={"name": "no_such_data", "clients": 5}), Store(tmp_path), QUIET)


def test_models_and_labels_are_kept_on_request(tmp_path):
    one = spec("method=fedavg", "seeds=[0]")
    for keep, kept in (("models", {"models", "labels"}), ("labels", {"labels"}), ("none", set())):
        carry_out(one, Store(tmp_path / keep), SweepOptions(keep=keep, quiet=True))
        (unit,) = units(tmp_path / keep).values()
        assert {"models", "labels"} & set(unit.arrays) == kept
        assert {"client_accuracy", "history/accuracy"} <= set(unit.arrays)


@pytest.mark.parametrize(
    ("first", "then", "lacks"),
    [("none", "models", "models"), ("labels", "models", "models"), ("none", "labels", "labels")],
)
def test_what_an_earlier_start_has_not_kept_is_told(tmp_path, first, then, lacks):
    one = spec("method=fedavg", "seeds=[0]")
    carry_out(one, Store(tmp_path), SweepOptions(keep=first, quiet=True))
    with pytest.warns(
        SpecWarning,
        match=f"--keep {then}: 1 run of an earlier start in .* kept no {lacks}, and is not computed",
    ):
        assert carry_out(one, Store(tmp_path), SweepOptions(keep=then, quiet=True)).computed == 0


@pytest.mark.filterwarnings("error")
def test_where_enough_is_kept_nothing_is_told(tmp_path):
    one = spec("method=fedavg", "seeds=[0]")
    for keep in ("models", "models", "labels", "none"):
        carry_out(one, Store(tmp_path), SweepOptions(keep=keep, quiet=True))


def test_run_from_python_is_the_run_of_the_sweep(whole):
    result = cfljax.run("fedavg", DATA, "mclr", **TRAIN, seed=1)
    unit = units(whole[0])[result.run]
    assert np.array_equal(result.history["accuracy"], unit.arrays["history/accuracy"])
    assert result.models.shape == (1, 36) and result.labels.tolist() == [0] * 6
    assert json.dumps(result.summary) and result.to_pandas().shape[0] == 4


def test_an_option_that_train_and_the_method_have_says_how_to_write_both():
    with pytest.raises(SpecError) as error:
        cfljax.run("joint", "blobs", "mclr", batch=4)
    ways = 'train={"batch": 4} or method={"name": "joint", "batch": 4}'
    assert str(error.value) == f"batch = 4: is an option of train and of joint; write {ways}"
    small = {"name": "blobs", "samples": 40, "clients": 4}
    assert cfljax.run("fedavg", small, "mclr", rounds=1, batch=4).config["train"]["batch"] == 4


def test_what_a_sweep_is_asked_for_from_python_is_checked(tmp_path):
    nan = float("nan")
    for more, words in [
        ({"keep": "model"}, 'mean "models"'),
        ({"target": nan}, "target = nan"),
        ({"target": 90}, "fraction"),
    ]:
        with pytest.raises(SpecError, match=words):
            cfljax.sweep({"data": "blobs", "method": "fedavg"}, tmp_path / "r", **more)
    assert not (tmp_path / "r").exists()


def test_out_of_memory_of_a_single_run_is_its_failure(tmp_path, monkeypatch):
    def never(*args, **more):
        raise MemoryError("no room")

    monkeypatch.setattr(batch_module, "simulate", never)
    assert carry_out(spec("method=fedavg", "seeds=[0]"), Store(tmp_path), QUIET).failed == 1
    assert plan_file.batch_limit(spec().runs()[0], describe_machine()) == 1


def test_looking_between_two_evaluations_is_quiet(tmp_path, recwarn):
    slow = spec("method=fedavg", "seeds=[0]", "train.rounds=7", "train.eval_every=5")
    assert carry_out(slow, Store(tmp_path), QUIET).done == 1
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


def test_one_run_warns_of_what_may_not_be_meant_and_takes_one_method():
    small = {"name": "blobs", "samples": 40, "clients": 4}
    with pytest.warns(SpecWarning, match="one client"):
        cfljax.run("local", small, "mclr", rounds=1, participation=1)
    with pytest.raises(SpecError, match=r"cfljax\.sweep"):
        cfljax.run(["fedavg", "ifca"])
