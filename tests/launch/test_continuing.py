"""Runs that go on: longer ones from the last states of shorter ones, and those that a callback has
stopped."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.devices.machine import TYPICAL
from cfljax.engine.resume import CheckpointMismatch, End
from cfljax.engine.simulate import Simulation
from cfljax.errors import SpecError, SpecWarning
from cfljax.experiment.batching import make_batches
from cfljax.extend import Clustered, InitialClusters, option
from cfljax.launch import batch as batch_module
from cfljax.launch import continuing, plan_file
from cfljax.launch.sweep import SweepOptions, carry_out
from cfljax.store import Store
from tests.packaging.own import forgotten

DATA = {
    "name": "blobs",
    "samples": 200,
    "partition": "label_permutation",
    "groups": 2,
    "clients": 6,
}


@dataclasses.dataclass(frozen=True)
class Turning(Clustered):
    """Two clusters that exchange a client after each round but the last one."""

    clusters: int = option(2, "number of clusters")

    def begin(self, ask):
        models = np.zeros((2, ask.model.size), np.float32)
        return InitialClusters(models, np.arange(ask.federation.clients, dtype=np.int32) % 2)

    def regroup(self, ask, state, round):
        labels = np.array(state.labels)
        labels[round % len(labels)] ^= 1
        return state._replace(labels=labels)


TURNING = {"name": "turning"}
# Without it a short run is many small programs
PLAN = {"quick": False}


@pytest.fixture(scope="module", autouse=True)
def turning():
    """Fixtures of the module sweep this method. It is gone after the last test here."""
    with forgotten():
        cfljax.register_method("turning")(Turning)
        yield


@pytest.fixture(scope="module", autouse=True)
def unmeasured():
    """No plan here depends on the speed of the machine, which takes programs to measure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_file, "read_or_measure", lambda _: TYPICAL)
        yield


def table(rounds, method=TURNING, **train):
    return {
        "name": "test",
        "data": DATA,
        "model": {"name": "mclr"},
        "method": [method],
        "train": {"rounds": rounds, "eval_every": 2, "lr": 0.1, "plan": PLAN} | train,
        "seeds": [0],
    }


def sweep(spec, folder, keep="state", **more):
    return cfljax.sweep(spec, folder, quiet=True, keep=keep, **more)


def begun(folder):
    """From which rounds the batches of a folder have begun."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["from"] for line in lines if line["event"] == "begin"]


def same(one, other):
    assert one.arrays.keys() == other.arrays.keys()
    assert [k for k, v in one.arrays.items() if v.tobytes() != other.arrays[k].tobytes()] == []
    return (one.run, one.summary) == (other.run, other.summary)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Three rounds: the last evaluation is one that a longer run does not have."""
    folder = tmp_path_factory.mktemp("short")
    return folder, sweep(table(3), folder)[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return sweep(table(6), tmp_path_factory.mktemp("whole"))[0]


def test_a_run_that_train_stop_has_ended_stays_ended(tmp_path):
    stop = {"patience": 2, "metric": "train_loss"}
    spec = [table(n, method={"name": "fedavg"}, lr=0.0, stop=stop) for n in (8, 12)]
    (early,) = sweep(spec[0], tmp_path / "a")
    assert early.summary["rounds"] == 4 and early.stopped_at is None
    with pytest.raises(SpecError, match="train.stop has ended it in round 4"):
        early.more(4)
    (longer,) = sweep(spec[1], tmp_path / "a")
    assert begun(tmp_path / "a") == [0, 4]
    assert same(longer, sweep(spec[1], tmp_path / "b")[0])


def test_a_longer_run_has_the_bits_of_one_that_was_never_shorter(short, whole, capsys):
    folder, before = short
    (longer,) = sweep(table(6), folder)
    assert begun(folder) == [0, 3] and "continued from round 3" in capsys.readouterr().err
    assert list(longer.history["round"]) == [0, 2, 4, 6] and longer.labels.max() > 0
    assert same(longer, whole)
    assert same(cfljax.load(folder)[longer.run], whole)
    assert same(sweep(table(3), folder)[0], before) and begun(folder) == [0, 3]
    assert not list((folder / "checkpoints").iterdir())


def test_a_result_goes_on_for_more_rounds(short, whole):
    _, before = short
    shown = []
    longer = before.more(3, callback=lambda at, metrics: shown.append(at))
    assert same(longer, whole) and shown == [4, 6]
    for wrong in (0, True, 1.5):
        with pytest.raises(SpecError, match=f"rounds = {wrong}"):
            before.more(wrong)


def test_what_kept_no_state_cannot_go_on(tmp_path):
    (lean,) = sweep(table(3), tmp_path, keep="models")
    with pytest.raises(SpecError, match="kept no state"):
        lean.more(3)
    with pytest.warns(SpecWarning, match="1 run starts from round 0.*--keep state"):
        sweep(table(4), tmp_path)
    assert begun(tmp_path) == [0, 0]


def test_another_plan_begins_anew_and_says_so(short, whole, monkeypatch):
    _, before = short
    monkeypatch.setattr(batch_module, "describe_plan", lambda *_: "other")
    with pytest.warns(SpecWarning, match="from round 0.*another plan.*now other"):
        anew = before.more(3)
    assert anew.models.tobytes() == whole.models.tobytes()


def test_numbers_that_follow_the_last_round_begin_anew(short, monkeypatch):
    _, before = short
    (run,) = read_spec(table(6)).runs()
    (batch,) = make_batches([run], 1)
    shorter = continuing.Shorter(continuing.shorten(run, 3), before.record)
    states = [continuing.unpack_state(before.record, before.arrays)]
    assert continuing.continue_batch(batch, [shorter], states)[0] is not None
    monkeypatch.setattr(continuing, "list_hyper", lambda run: {"lr": 0.1 / run.train.rounds})
    saved, why = continuing.continue_batch(batch, [shorter], states)
    assert saved is None and "lr depends on train.rounds" in why


def test_runs_of_one_batch_must_have_ended_alike(short):
    _, before = short
    runs = read_spec(table(6) | {"seeds": [0, 1]}).runs()
    (batch,) = make_batches(runs, 2)
    state = continuing.unpack_state(before.record, before.arrays)
    parts = [continuing.Shorter(continuing.shorten(run, 3), before.record) for run in runs]
    saved, why = continuing.continue_batch(batch, parts, [state, state])
    assert saved is not None and saved[0]["rows/loss"].shape[0] == 2
    for other in (state._replace(done=2), state._replace(end=state.end._replace(plan="other"))):
        saved, why = continuing.continue_batch(batch, parts, [state, other])
        assert saved is None and "different rounds or by different plans" in why


@pytest.mark.parametrize(
    ("wanted", "end", "calls"),
    [
        (lambda rounds: range(1, rounds), End(4, False), [4]),
        (lambda rounds: range(1, rounds), End(6, False), [4]),
        (lambda rounds: (2,), End(4, False), []),
        (lambda rounds: range(1, rounds + 1), End(4, True), []),
        (lambda rounds: (rounds // 2,), End(4, False), None),
        (lambda rounds: (rounds,), End(4, True), None),
    ],
)
def test_what_came_after_the_last_round_is_caught_up(wanted, end, calls):
    """`calls`: when the clusters are made again; None: the longer run did so in other rounds."""
    made = []
    method = SimpleNamespace(regroup_after=wanted)
    parts = SimpleNamespace(method=method, settings=SimpleNamespace(rounds=9))
    simulation = SimpleNamespace(parts=parts, regroup=made.append)
    if calls is None:
        with pytest.raises(CheckpointMismatch, match="train.rounds"):
            Simulation.catch_up(simulation, 4, end)
    else:
        Simulation.catch_up(simulation, 4, end)
        assert made == calls


def test_a_callback_sees_each_evaluation_and_stops_a_run(whole):
    shown = {}

    def watch(at, metrics):
        shown[at] = metrics
        return at == 4

    result = cfljax.run(
        TURNING, DATA, "mclr", rounds=6, eval_every=2, lr=0.1, plan=PLAN, callback=watch
    )
    assert list(shown) == [0, 2, 4] and result.stopped_at == 4 == result.summary["rounds"]
    assert result.run == whole.run and "stopped_at=4" in repr(result)
    for name, values in whole.history.items():
        if values.ndim == 1:
            seen = [shown[at][name] for at in shown] if name != "round" else list(shown)
            assert np.array_equal(np.float32(seen), np.float32(values[:3]), equal_nan=True), name
    assert all(type(value) in (int, float) for value in shown[4].values())
    assert same(result.more(2), whole)


def test_only_true_stops_and_not_after_the_last_round(short):
    _, before = short
    for answer in (1, "yes", None, np.ones(3)):
        result = before.more(1, callback=lambda *_, answer=answer: answer)
        assert result.stopped_at is None and result.summary["rounds"] == 4
    assert before.more(1, callback=lambda *_: True).stopped_at is None


def test_a_stopped_run_of_a_sweep_is_no_whole_run(tmp_path, whole):
    seen = []

    def stop(at, metrics, run):
        seen.append((at, run["method"], run["seed"], run["varies"]))
        return metrics["accuracy"] >= 0 and at == 2

    (stopped,) = sweep(table(6), tmp_path, callback=stop)
    assert stopped.stopped_at == 2 and seen == [(at, "turning", 0, {}) for at in (0, 2)]
    # A callback has decided, so a second call with one changes nothing
    assert same(sweep(table(6), tmp_path, callback=stop)[0], stopped) and len(seen) == 2
    (gone_on,) = sweep(table(6), tmp_path)
    assert gone_on.stopped_at is None and begun(tmp_path) == [0, 2]
    assert same(gone_on, whole)


def test_what_a_callback_raises_ends_the_sweep(tmp_path):
    with pytest.raises(ZeroDivisionError):
        sweep(table(6), tmp_path, callback=lambda at, *_: 1 // (at - 2))
    assert Store(tmp_path).ids() == []


def test_of_runs_side_by_side_some_are_stopped(tmp_path):
    """The third run has a batch of two slots for itself."""
    spec = read_spec(table(6, method={"name": "fedavg"}) | {"seeds": [0, 1, 2]})
    carry_out(spec, Store(tmp_path / "a"), SweepOptions("models", True), limit=2)
    shown = []

    def stop(run, at, metrics):
        shown.append((run.seed, at))
        return run.seed != 1 and at == 2

    options = SweepOptions("models", True, callback=stop)
    carry_out(spec, Store(tmp_path / "b"), options, limit=2)
    (first, second, third), (early, late, alone) = (
        cfljax.load(tmp_path / name).results() for name in "ab"
    )
    assert same(second, late) and early.stopped_at == alone.stopped_at == 2
    assert sorted(shown) == [(0, 0), (0, 2), (1, 0), (1, 2), (1, 4), (1, 6), (2, 0), (2, 2)]
    for stopped, whole in ((early, first), (alone, third)):
        assert stopped.history["loss"].tobytes() == whole.history["loss"][:2].tobytes()
    with pytest.warns(SpecWarning) as caught:
        carry_out(spec, Store(tmp_path / "b"), SweepOptions("models", True), limit=2)
    # The first run's batch has one that is done; the third has kept no state
    reasons = {str(each.message).partition("1 run starts from round 0: ")[2] for each in caught}
    assert len(reasons) == 2 and any("their batch" in why for why in reasons)
    assert all(map(same, cfljax.load(tmp_path / "b").results(), (first, second, third)))


@pytest.mark.rare
def test_runs_side_by_side_continue_together(tmp_path):
    def play(folder, rounds):
        spec = read_spec(table(rounds, method={"name": "fedavg"}) | {"seeds": [0, 1]})
        carry_out(spec, Store(folder), SweepOptions("state", True), limit=2)
        units = [Store(folder).read(run.id) for run in spec.runs()]
        return [{k: v.tobytes() for k, v in unit.arrays.items()} for unit in units]

    play(tmp_path / "longer", 3)
    assert play(tmp_path / "longer", 6) == play(tmp_path / "whole", 6)
    assert begun(tmp_path / "longer") == [0, 3]
