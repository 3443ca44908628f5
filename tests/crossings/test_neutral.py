"""All that must change nothing, at once: each method with a stack of neutral features is the method
without them.

`NEUTRAL` is a table. An option that changes nothing with some value joins the test by a line there.
Where a run differs, the stack is halved until the features are named that make the difference.
"""

import dataclasses
import functools

import numpy as np
import pytest

from cfljax.engine import simulate as engine
from cfljax.methods import METHODS
from tests.crossings import runs
from tests.crossings.runs import CLIENTS, Feature

CLOCK = {"clock": {"step_ms": 50.0, "down_mbps": 0.01, "up_mbps": 0.004}}
NEW = {"share": 0.25, "shots": 8, "steps": [0, 1]}
BASE = Feature(
    {"data": {"validation": 0.25, "new_clients": NEW}},
    runs.change_federation(runs.equal_groups),
)
"""In all these runs samples are set aside, some clients never train, and both true groups see the
same. Without features nobody is scored on the samples, and the clients are dummies."""


def not_validated(federation):
    return dataclasses.replace(federation, valid=None)


def nobody_new(parts):
    return runs.change_federation(runs.absent)(parts)._replace(newcomers=None)


NEUTRAL = {
    "new clients": Feature(lacking=nobody_new),
    "validation": Feature(lacking=runs.change_federation(not_validated)),
    "drift between equal groups": Feature(
        {"data": {"drift": {"at": [1, 3], "share": 0.5}}}, not_for=("oracle",)
    ),
    "dummies and garbage": Feature(change=runs.change_federation(runs.padded)),
    "room for more data": Feature(
        {
            "train": {
                "plan": {
                    "clients": CLIENTS + 1,
                    "samples": 90,
                    "pool_samples": 500,
                    "groups": 3,
                    "phases": 5,
                }
            }
        }
    ),
    "side by side": Feature({"train": {"plan": {"lanes": 0}}}, runs.side_by_side),
    "one program": Feature({"train": {"plan": {"quick": False}}}),
    "metrics": Feature({"train": {"metrics": ["macro_f1"]}}),
    "fine-tuning": Feature({"train": {"finetune_steps": 2}}),
    "early stopping": Feature({"train": {"stop": {"patience": 99, "metric": "train_loss"}}}),
    "stragglers": Feature({"train": {"stragglers": 1.0, "straggler_work": 1.0}}),
    "a clock": Feature({"train": CLOCK}),
    "an asynchronous server": Feature({"train": CLOCK | {"asynchronous": {"buffer": 5}}}),
    "a server's optimiser": Feature({"train": {"server": {"name": "sgd", "lr": 1.0}}}),
    "no attackers": Feature(
        {"train": {"attack": {"name": "sign_flip", "share": 0.0, "factor": 5.0}}}
    ),
    "clipping": Feature({"train": {"privacy": {"clip": 1e9}}}),
    "compression": Feature({"train": {"compress": {"name": "topk", "keep": 1.0}}}),
    "feedback": Feature({"train": {"compress": {"name": "topk", "keep": 1.0, "feedback": True}}}),
    "FedNova": Feature({"method": {"average": "nova"}}),
    "the body's rate for the head": Feature(
        {"method": {"head_lr": runs.TRAIN["lr"]}}, not_for=("fedccfa",)
    ),
    "a trimmed mean": Feature(
        {"train": {"robust": {"name": "trimmed_mean", "trim": 0.0}}}, not_for=("ccs_rfedavg",)
    ),
}
FEWEST = 11
"""Each method takes so many of them, or more."""
SAMPLES = Feature({"method": {"average": "samples"}})
"""Clients have equally many samples, so this is what FedNova and a trimmed mean do, too."""


def base_of(name):
    return [BASE] if runs.refusal(name, [SAMPLES]) else [BASE, SAMPLES]


@functools.lru_cache(maxsize=1)
def plainly(name):
    """A run without any of the features."""
    return played(name, [])[0]


def played(name, features):
    """(The output of a run with these features, the text of its program of rounds; "" where that is
    many programs)."""
    parts, batch = runs.assembled(name, [*base_of(name), *(NEUTRAL[each] for each in features)])
    for feature, line in NEUTRAL.items():
        if feature not in features and line.lacking is not None:
            parts = line.lacking(parts)
    # compression to all numbers still sends each with its index
    parts = parts._replace(settings=parts.settings._replace(vector_up=None))
    made, compile_programs = [], engine.compile_programs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            engine,
            "compile_programs",
            lambda *args: made.append(compile_programs(*args)) or made[-1],
        )
        (output,) = runs.outputs(parts, batch)
    return output, made[0][0].rounds.as_text() if "one program" in features else ""


def differences(one, other, features):
    """What two runs, without and with the features, do not have in common."""
    found = [] if np.array_equal(one.labels, other.labels[:, :CLIENTS]) else ["labels"]
    own = len(one.models) == CLIENTS
    rows = np.flatnonzero(one.labels[-1] >= 0) if own else slice(None)
    # a room of more groups gives the oracle models that nobody uses
    if not np.allclose(one.models[rows], other.models[: len(one.models)][rows], atol=1e-5):
        found.append("models")
    for quantity in ("accuracy", "accuracy_worst10", "loss", "train_loss", "discrepancy"):
        a, b = one.history[quantity], other.history[quantity]
        found += [] if np.allclose(a, b, atol=2e-5, equal_nan=True) else [quantity]
    for quantity in ("scored", "clusters", "bytes_down", "nonfinite"):
        same = np.array_equal(one.history[quantity], other.history[quantity])
        found += [] if same else [quantity]
    lengths = other.history["bytes_up"] - one.history["bytes_up"]
    if "FedNova" in features:  # a participant sends the length of its way, too
        told = np.diff(lengths) / 4
        found += [] if ((told > 0) & (told < CLIENTS) & (told % 1 == 0)).all() else ["bytes_up"]
    else:
        found += [] if not lengths.any() else ["bytes_up"]
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(METHODS))
def test_neutral_features_change_nothing(name):
    stacks = runs.packed(name, NEUTRAL, base_of(name))
    assert sum(map(len, stacks)) >= FEWEST, stacks
    for stack in stacks:
        other, text = played(name, stack)
        found = differences(plainly(name), other, stack)
        if found:
            fails = lambda some: differences(plainly(name), played(name, some)[0], some)  # noqa: E731
            pytest.fail(f"{name}: {', '.join(found)} by {' + '.join(runs.guilty(stack, fails))}")
        assert not [word for word in ("callback", "infeed", "outfeed") if word in text]
        if "validation" in stack:
            assert np.isfinite(other.history["val_loss"]).all()
        if "new clients" in stack:
            accuracies = [other.newcomers[f"accuracy_new_{steps}"] for steps in NEW["steps"]]
            assert all(0 <= value <= 1 for value in accuracies)
            assert (other.labels[:, other.labels[-1] == -1] == -1).all()
        if "fine-tuning" in stack:
            assert 0 <= other.finetuned["accuracy_finetuned"] <= 1
        if "a clock" in stack:
            passed = other.history["clock_s"]
            assert passed[0] == 0 and (np.diff(passed) > 0).all()
            assert passed[-1] <= other.history["device_s"][-1] * 1.00001
