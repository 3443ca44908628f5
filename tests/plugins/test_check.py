"""`cfljax check`: each fault of a method or model is found by the check of its name, in a line."""

import dataclasses
import json
import subprocess
import sys
import types

import numpy as np
import pytest

import cfljax
from cfljax.contract import battery, outputs
from cfljax.engine.outputs import Output, Seconds
from cfljax.engine.resume import Checkpoint, Spent
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from tests import play

ROUNDS, CLIENTS = battery.ROUNDS, battery.CLIENTS
LABELS = np.tile(np.arange(CLIENTS, dtype=np.int32) % 2, (ROUNDS + 1, 1))


def output(**changed):
    """What a run of two models returns in which nothing is wrong."""
    rounds = np.arange(ROUNDS + 1)
    names = [*outputs.FINITE, *outputs.FINITE_LATER]
    history = {"round": rounds, **dict.fromkeys(names, 1.0 + rounds)}
    history |= {"loss": 2.0 - 0.5 * rounds, "nonfinite": np.ones(ROUNDS + 1)}
    models = np.arange(6, dtype=np.float32).reshape(2, 3)
    accuracy = np.ones(CLIENTS, np.float32)
    last = Checkpoint(ROUNDS, {"models": models}, {"round": rounds[None]}, Spent(0, 0, 0, 0))
    made = Output(history, LABELS, accuracy, models, {}, {}, {}, -1, Seconds(0, 0, 0, 0), last)
    curves = {name: changed.pop(name) for name in names + ["round"] if name in changed}
    return made._replace(history=history | curves, **changed)


def test_what_a_run_has_cost_is_no_difference_but_its_last_state_is():
    one = output()
    slower = one.last._replace(spent=Spent(9, 9, 9, 9))
    assert outputs.list_unlike(one, output(last=slower, seconds=Seconds(9, 9, 9, 9))) == []
    other = one.last._replace(carry={"models": one.models + 1})
    assert outputs.list_unlike(one, output(last=other)) == ["['last']['carry']['models']"]


class Stage:
    """In place of three runs: `changed` says what they return when something is changed."""

    rounds = ROUNDS
    run = types.SimpleNamespace(method="ifca", options=METHODS.entry("ifca").options())

    def __init__(self, plain, **changed):
        self.plain = [plain] * battery.RUNS
        self.changed = changed
        self.federation = play.nine_clients()
        self.parts = types.SimpleNamespace(federation=self.federation)

    def play(self, federation=None, rates=None, runs=slice(None), chunk_rounds=None):
        kinds = {"rates": rates, "chunk_rounds": chunk_rounds, "runs": runs != slice(None)}
        kind = next((kind for kind, given in kinds.items() if given), "again")
        usual = self.plain[0]
        if federation is not None:
            if federation.clients > CLIENTS:
                kind = "padded"
                labels = np.pad(LABELS, ((0, 0), (0, battery.DUMMIES)), constant_values=-1)
                usual = usual._replace(labels=labels)
            elif np.isnan(np.asarray(federation.pool.x)).any():
                kind = "broken"
            else:
                kind, usual = "moved", usual._replace(labels=LABELS[:, battery.ORDER])
        return [self.changed.get(kind, usual)] * len(self.plain[runs])


def failed(stage):
    """Return {property: message} of what fails."""
    checks = [battery._look("it", *each) for each in battery._list_properties(stage)]
    assert {each.status for each in checks} <= {"passed", "failed"}
    return {each.property: each.message for each in checks if each.status == "failed"}


def test_nothing_fails_where_nothing_is_wrong():
    assert failed(Stage(output())) == {}


@pytest.mark.parametrize(
    ("words", "plain"),
    [
        ("evaluated in rounds", {"round": np.array([0, 1, 3])}),
        ("accuracy is not finite in round 1", {"accuracy": np.array([1, np.nan, 1])}),
        ("train_loss is not finite in round 2", {"train_loss": np.array([np.nan, 1, np.inf])}),
        ("diverged in round 1", {"diverged_at": 1}),
        ("models of the end", {"models": np.full((2, 3), np.nan)}),
        ("shape", {"labels": LABELS[1:]}),
        ("from 0 to 2", {"labels": LABELS * 2}),
        ("the loss is 1", {"loss": np.array([1.0, 0.5, 1.0])}),
        ("not declared: oddity", {"diag": {"oddity": np.zeros(3)}}),
    ],
)
def test_what_a_run_returns_is_looked_at(words, plain):
    stage = Stage(output(), padded=output(), moved=output())
    stage.plain = [output(**plain)] * battery.RUNS
    assert any(words in message for message in failed(stage).values())


@pytest.mark.parametrize(
    ("kind", "change", "wanted", "words"),
    [
        ("again", {"models": np.ones((2, 3))}, "the same seed", "not the same bits: models"),
        ("chunk_rounds", {"loss": np.zeros(3)}, "the rounds of a chunk", "history/loss"),
        ("runs", {"labels": 1 - LABELS}, "a run alone", "labels"),
        ("rates", {"models": np.ones((2, 3))}, "a run that diverges", "models"),
        ("padded", {"labels": np.pad(LABELS, ((0, 0), (0, 3)))}, "padding", "dummies have labels"),
        ("moved", {"labels": LABELS}, "the order of clients", "the labels of clients differ"),
        ("broken", {"diverged_at": 1}, "a client with broken samples", "diverged"),
        ("broken", {"models": np.full((2, 3), np.nan)}, "a client with broken", "of the others"),
    ],
)
def test_each_change_that_matters_fails_the_check_of_its_name(kind, change, wanted, words):
    ((name, message),) = failed(Stage(output(), **{kind: output(**change)})).items()
    assert name.startswith(wanted) and words in message and message.count(". ") >= 1


def test_what_cannot_be_looked_at_is_skipped_with_its_reason():
    stage = Stage(output())
    stage.federation = stage.federation.take(np.arange(4))
    checks = [battery._look("it", *each) for each in battery._list_properties(stage)]
    skipped = [each for each in checks if each.status == "skipped"]
    assert len(skipped) == 3 and all("9 clients" in str(each) for each in skipped)


def test_options_and_docstrings_are_declared():
    entry = METHODS.entry("ifca")
    assert all(find() == "" for _, find, _ in battery._list_declarations("ifca"))

    @dataclasses.dataclass(frozen=True)
    class Bare(entry.options):
        crowd: float = cfljax.option(0.1)

    def make():
        """No sentence"""

    found = METHODS._lines | {"bare": entry._replace(options=Bare, make=make)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(METHODS, "_lines", found)
        wrong = [find() for _, find, _ in battery._list_declarations("bare")]
    assert "No sentence" in wrong[0] and "crowd" in wrong[1]


def test_names_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(SpecError, match='did you mean "fedavg"'):
        cfljax.check("fedavgg")
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(SpecError, match="registers nothing"):
        cfljax.check(tmp_path / "empty.py")


FILE = '''
import cfljax
import numpy as np
from cfljax.extend import ByScore, Clustered
from flax import linen


@cfljax.register_method("sound")
class Sound(Clustered):
    """Sound: FedAvg in clusters that are chosen by loss."""

    choice, clusters = ByScore(), 2


@cfljax.register_method("slip")
class Slip(Clustered):
    """Slip: a name is wrong."""

    choice = ByScore()

    def after(self, models, hyper, state):
        return models + state.nothing


@cfljax.register_method("dice")
class Dice(Clustered):
    """Dice: numpy draws once, while the round is traced."""

    def after(self, models, hyper, state):
        return models + np.float32(np.random.default_rng().random())


class Mixing(linen.Module):
    @linen.compact
    def __call__(self, x):
        self.param("unused", linen.initializers.ones, (3,))
        x = x.reshape(len(x), -1)
        return linen.Dense(10)(x - x.mean(0))


@cfljax.register_model("mixing")
def mixing(options, sample_shape, classes):
    return Mixing()


@cfljax.register_metric("half")
def half(seen):
    return 0.5
'''


def test_a_file_is_checked_as_a_user_does_it(tmp_path):
    """In a process of its own, as on a command line."""
    (tmp_path / "mine.py").write_text(FILE)
    words = [sys.executable, "-m", "cfljax.check", "mine.py", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    checks = json.loads(done.stdout)["checks"]
    status = {}
    for each in checks:
        status.setdefault(each["subject"], {})[each["property"]] = each["status"]
    assert set(status['method "sound"'].values()) == {"passed"}
    assert len(status['method "sound"']) == 13
    wrong = {(each["subject"], each["message"]) for each in checks if each["status"] == "failed"}
    assert (
        'method "slip"',
        "mine.py, line 22: AttributeError: 'State' object has no attribute 'nothing'",
    ) in wrong
    assert status['method "dice"'][battery.REPEATS] == "failed"
    mixing = {name for name, each in status['model "mixing"'].items() if each == "failed"}
    assert {
        "a sample's output does not depend on the samples beside it",
        "all its parameters are trained",
    } <= mixing
    assert status['metric "half"'] == {"all": "skipped"}
