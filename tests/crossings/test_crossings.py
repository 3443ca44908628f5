"""Features that change a run, crossed: each method with each feature that it takes, in few runs.

`FEATURES` is the table of the rule that a new option names the crossing test that it joins: it joins
by a line, with what a run with it must keep to (`holds`), the numbers with which it would do nothing
(`off`), or what it carries from round to round (`forget`). The features that a method takes are
dealt to ROWS runs, in another order for each method, so that most pairs of features meet somewhere.
A line that joins has the next number (`joined`): the runs that others were dealt to stay.
Whatever features a run has, its result may not depend on the order of clients, on dummies, on what
is computed side by side, on other runs of its batch, or on where its rounds are cut.
"""

import dataclasses
import functools
import itertools
import random
from typing import NamedTuple

import numpy as np
import pytest

from cfljax.contract.outputs import list_unlike
from cfljax.engine.groups import make_inputs
from cfljax.engine.outputs import Output
from cfljax.engine.settings import Assembled
from cfljax.engine.simulate import Simulation
from cfljax.local.parts import divide_model
from cfljax.methods import METHODS
from cfljax.types.federation import NEVER
from tests import play
from tests.crossings import runs
from tests.crossings.runs import CLIENTS, ROUNDS, Feature

ROWS, TRIES = 3, 5
NOTHING_TRAVELS = ("local",)
"""Methods whose clients send no update that could be clipped, noised or compressed."""
SELDOM = {"an asynchronous server", "a deadline"}
"""With these a client may not train again before the run is over."""
KEPT = ".stages"
"""Names of arrays that stages of a round carry from round to round."""
CUT = 2
"""The round after which runs are cut in two."""
BUFFER = 4
"""Of the eight that begin in the first round all have come after the second: later ones, which count
in the rounds that remain, have begun with the rate of a later round."""
STEPS = {"batch": 5}
"""More than one step in a round."""
CLOCK = {"clock": {"step_ms": 50.0, "down_mbps": 0.01, "up_mbps": 0.004}}


class Row(NamedTuple):
    """A method with some features, and what became of it."""

    name: str
    parts: Assembled
    """What it was simulated with."""
    numbers: dict
    output: Output
    off: dict
    """Feature → the output of the run with the numbers with which it does nothing."""

    def start(self):
        """f32[K, d]: the models before the first round."""
        whole, federation = make_inputs(self.parts, [0], [self.numbers])
        carry = Simulation(self.parts, whole, federation, None).carry()
        return np.asarray(self.parts.method.models(runs.first_run(carry.state))[0])

    def of(self, part):
        """i32[n]: the positions of the numbers of a part of the model."""
        return divide_model(self.parts.model, ((part, "client"),)).home

    def clients(self):
        """bool[C]: clients that are no newcomers."""
        return np.asarray(self.parts.federation.arrive) < NEVER


def is_frozen(part):
    def holds(row):
        start = row.start()
        assert np.array_equal(row.output.models[:, row.of(part)], start[:, row.of(part)])
        assert not np.allclose(row.output.models, start, atol=1e-5)

    return holds


def bodies_are_equal(row):
    bodies = row.output.models[row.clients()] if own(row.output) else row.output.models
    bodies = bodies[:, row.of("body")]
    np.testing.assert_allclose(bodies, bodies[:1] + 0 * bodies, atol=1e-6)


def heads_are_own(row):
    heads = row.output.models[:, row.of("head")]
    assert own(row.output) and len(np.unique(heads, axis=0)) > CLIENTS // 2


def some_are_validated(row):
    assert np.isfinite(row.output.history["val_loss"]).all()


def errors_are_squared(row):
    history = row.output.history
    assert row.output.score == "r2" and "accuracy" not in history
    np.testing.assert_allclose(history["rmse"] ** 2, history["loss"], rtol=1e-5)
    assert (history["r2"] < 1).all()


def newcomers_are_scored(row):
    newcomers, labels = row.output.newcomers, row.output.labels
    assert {"accuracy_new_0", "accuracy_new_1", "ari_new"} == newcomers.keys()
    assert all(0 <= newcomers[f"accuracy_new_{steps}"] <= 1 for steps in (0, 1))
    assert (labels[:, ~row.clients()] == -1).all()


def half_have_moved(row):
    changed = row.output.history["groups_changed"]
    assert changed[2] > 0 and changed.sum() == changed[2]


def six_are_scored(row):
    assert row.output.history["scored"].max() <= 6


def attackers_are_not_scored(feature):
    def holds(row):
        scored, honest = (out.history["scored"][-1] for out in (row.output, row.off[feature]))
        assert scored <= honest and (scored < honest or honest == 6)

    return holds


def some_are_late(row):
    late = row.output.history["late"]
    assert 0 < late[-1] < ROUNDS * CLIENTS


def updates_are_stale(row):
    assert (
        row.output.history["staleness"][-1] > 0
        and row.output.diag["applied"][-1].sum() <= BUFFER * ROUNDS
    )


FEATURES = {
    # the data
    "unequal clients": Feature(
        {"data": {"partition": "quantity", "groups": None, "copies": None}},
        not_for=("oracle",),  # whose clusters are the true groups: this partition has none
    ),
    "validation": Feature({"data": {"validation": 0.25}}, holds=some_are_validated),
    "new clients": Feature(
        {"data": {"new_clients": {"share": 0.25, "shots": 8, "steps": [0, 1]}}},
        holds=newcomers_are_scored,
    ),
    "late clients": Feature({"data": {"arrive": {"clients": 2, "round": 2}}}),
    "drift": Feature({"data": {"drift": {"at": [2], "share": 0.5}}}, holds=half_have_moved),
    "a view of some labels": Feature(
        {
            "data": {
                "partition": "iid",
                "groups": None,
                "copies": None,
                "views": [
                    {"name": "label_permutation", "groups": 2},
                    {"name": "feature_shift", "kind": "gain", "groups": 2, "labels": [0, 1]},
                ],
                "views_draw": "random",
            }
        },
        joined=1,
    ),
    # what is minimised: the labels are numbers then
    "squared errors": Feature(
        {"model": {"loss": "mse"}, "train": {"lr": 0.02}}, holds=errors_are_squared, joined=2
    ),
    # who takes part, and how much each does
    "dropout": Feature({"train": {"dropout": 0.3}}, off={"dropout": 0.0}),
    "stragglers": Feature(
        {"train": {"stragglers": 0.5, "straggler_work": 0.3} | STEPS},
        off={"straggler_work": 1.0},
        idle_for=("ccs_rfedavg",),
    ),
    "a deadline": Feature(
        {"train": {"clock": {"step_ms": 200.0, "deadline_s": 1.5}, "epochs": 1} | STEPS},
        idle_for=("ccs_rfedavg",),
        not_for=("fedrep",),  # whose heads train first: then nobody is in time
        holds=some_are_late,
    ),
    "an asynchronous server": Feature(
        {"train": CLOCK | {"asynchronous": {"buffer": BUFFER}}},
        forget=".flight.delta",
        holds=updates_are_stale,
    ),
    "six are scored": Feature({"train": {"eval_clients": 6}}, holds=six_are_scored),
    # how a client trains
    "momentum": Feature(
        {"train": {"momentum": 0.5} | STEPS}, off={"momentum": 0.0}, idle_for=("fedbcd",)
    ),
    "states are kept": Feature(
        {"train": {"momentum": 0.5, "optimizer_state": "client"} | STEPS}, forget=KEPT
    ),
    "weight decay": Feature(
        {"train": {"weight_decay": 0.1}}, off={"weight_decay": 0.0}, idle_for=("fedbcd",)
    ),
    "a rate that falls": Feature({"train": {"lr_decay": 0.5}}, off={"lr_decay": 1.0}),
    "a schedule": Feature(
        {"train": {"lr_schedule": {"name": "step", "at": (1,), "factor": 0.5}}},
        off={"lr_factors": (1.0, 1.0)},
        joined=1,
    ),
    "Adam": Feature({"train": {"optimizer": {"name": "adam", "eps": 1e-3}, "lr": 0.02}}),
    "whole batches": Feature({"train": {"batch": "full"}}),
    "two epochs": Feature({"train": {"epochs": 2}}),
    # what is shared
    "a body for all": Feature({"train": {"parts": {"body": "all"}}}, holds=bodies_are_equal),
    "own heads": Feature({"train": {"parts": {"head": "client"}}}, holds=heads_are_own),
    "a frozen head": Feature({"train": {"freeze": "head"}}, holds=is_frozen("head")),
    "a frozen body": Feature({"train": {"freeze": "body"}}, holds=is_frozen("body")),
    # what is sent, and what becomes of it
    "feedback": Feature(
        {"train": {"compress": {"name": "topk", "keep": 0.4, "feedback": True}}},
        idle_for=NOTHING_TRAVELS,
        forget=KEPT,
    ),
    "int8": Feature({"train": {"compress": "int8"}}),
    "sign": Feature({"train": {"compress": "sign"}}),
    "clipping": Feature(
        {"train": {"privacy": {"clip": 0.05}}},
        off={"privacy.clip": 1e9},
        idle_for=NOTHING_TRAVELS,
    ),
    "noise": Feature(
        {"train": {"privacy": {"clip": 1.0, "noise": 0.05}}},
        off={"privacy.noise": 0.0},
        idle_for=NOTHING_TRAVELS,
    ),
    "a private choice": Feature({"train": {"privacy": {"choice": {"epsilon": 1.0}, "clip": 5.0}}}),
    "liars": Feature(
        {"train": {"attack": {"name": "sign_flip", "share": 0.3}}},
        off={"attack.share": 0.0},
        holds=attackers_are_not_scored("liars"),
    ),
    "false labels": Feature(
        {"train": {"attack": {"name": "label_flip", "share": 0.3}}},
        off={"attack.share": 0.0},
        holds=attackers_are_not_scored("false labels"),
    ),
    "a median": Feature({"train": {"robust": "median"}}),
    "a trimmed mean": Feature({"train": {"robust": {"name": "trimmed_mean", "trim": 0.4}}}),
    "a server's Adam": Feature(
        {"train": {"server": {"name": "adam", "lr": 0.05, "eps": 1e-3}}},
        off={"server.lr": 0.0},
        forget=KEPT,
    ),
    # options that several methods have
    "FedNova": Feature(
        {"method": {"average": "nova"}, "train": {"optimizer": "sgd", "robust": "mean"}}
    ),
    "a mere sketch": Feature({"method": {"similarity": "sketch"}}),
}
WAYS = {
    "dummies and garbage": Feature(change=runs.change_federation(runs.padded)),
    "side by side": Feature({"train": {"plan": {"lanes": 0}}}, runs.side_by_side),
    "in blocks": Feature({"train": {"plan": {"stream": 2}}}),
}
"""Other ways to compute the same."""
FEWEST = 14
"""Each method takes so many features, or more."""


def base_of(name):
    """What all rows have: so many take part in a round that most of them come again soon."""
    return [] if name in play.EVERYBODY else [Feature({"train": {"participation": 8}})]


def deal(name, table):
    """The features of each row of a method.

    The first features of the table are dealt in an order that the method's name decides: of some
    orders, in all of which those that go with the fewest others come first, the one with the
    fewest rows. Features that have joined the table since are dealt after them, in the order in
    which they joined.
    """
    first = {feature: line for feature, line in table.items() if not line.joined}
    contradicted = {
        feature: sum(not runs.go_together([line, other]) for other in first.values())
        for feature, line in first.items()
    }
    found = order_found = None
    for attempt in range(TRIES):
        order = sorted(first)
        random.Random(f"{name} {attempt}").shuffle(order)
        order.sort(key=contradicted.__getitem__, reverse=True)
        rows = runs.packed(name, {each: table[each] for each in order}, base_of(name), number=ROWS)
        if found is None or len(rows) < len(found):
            found, order_found = rows, order
        if len(found) == ROWS:
            break
    later = sorted(table.keys() - first.keys(), key=lambda each: table[each].joined)
    if not later:
        return found
    whole = {each: table[each] for each in [*order_found, *later]}
    return runs.packed(name, whole, base_of(name), number=ROWS)


@functools.lru_cache(maxsize=1)
def rows_of(name):
    """The features of each row of a method."""
    return deal(name, FEATURES)


def own(output):
    """Whether each client has a model of its own."""
    return len(output.models) == CLIENTS


def shuffled(parts):
    """Clients in another order; newcomers stay where they are."""
    federation = runs.on_host(parts.federation)
    order, move = np.arange(CLIENTS), np.flatnonzero(federation.arrive < NEVER)
    order[move] = np.random.default_rng(0).permutation(move)
    devices = federation.devices
    if devices is not None:
        devices = dataclasses.replace(devices, pace=devices.pace[order])
    made = dataclasses.replace(federation.take(order), devices=devices)
    return parts._replace(federation=made), order


def alike(one, other, order=slice(None)):
    """What two runs do not have in common, whose clients are in another order."""
    found = []
    labels = other.labels[:, :CLIENTS]
    moved = one.labels[:, order]
    if own(one):
        found += [] if np.array_equal(moved >= 0, labels >= 0) else ["labels"]
        a, b = one.models[order], other.models[:CLIENTS]
        a, b = a[moved[-1] >= 0], b[moved[-1] >= 0]
    else:
        found += [] if np.array_equal(moved, labels) else ["labels"]
        a, b = one.models, other.models
    found += [] if a.shape == b.shape and np.allclose(a, b, atol=2e-5) else ["models"]
    scores = (one.score, f"{one.score}_worst10")
    for quantity in (*scores, "loss", "train_loss", "discrepancy"):
        a, b = (out.history[quantity] for out in (one, other))
        same = np.allclose(a, b, atol=5e-5, rtol=1e-4, equal_nan=True)
        found += [] if same else [quantity]
    for quantity in ("bytes_up", "bytes_down", "scored", "clusters", "nonfinite"):
        same = np.array_equal(one.history[quantity], other.history[quantity])
        found += [] if same else [quantity]
    if not np.allclose(
        list(one.newcomers.values()), list(other.newcomers.values()), equal_nan=True
    ):
        found.append("newcomers")
    return found


def is_sound(output):
    """What any run keeps to."""
    assert output.diverged_at == -1 and np.isfinite(output.models).all()
    for quantity in (output.score, "loss", "bytes_up", "bytes_down", "clusters"):
        assert np.isfinite(output.history[quantity]).all(), quantity
    assert output.labels.shape == (ROUNDS + 1, CLIENTS)
    assert output.labels.min() >= -1 and output.labels.max() < len(output.models)
    for sent in (output.history["bytes_up"], output.history["bytes_down"]):
        assert sent[0] == 0 and (np.diff(sent) >= 0).all() and (sent % 1 == 0).all()


def faults(name, features, ways):
    """What a method with these features does not keep to. `ways`: whether it is computed in other
    ways, too, which compiles it again."""
    lines = {each: FEATURES[each] for each in features}
    base = base_of(name)
    parts, batch = runs.assembled(name, [*base, *lines.values()])
    (numbers,) = batch.hypers
    off = {each: numbers | line.off for each, line in lines.items() if line.off}
    output, *rest = runs.outputs(parts, batch, [numbers, *off.values()])
    row = Row(name, parts, numbers, output, dict(zip(off, rest, strict=True)))
    is_sound(output)
    found = [
        f"{each} does nothing"
        for each, without in row.off.items()
        if name not in lines[each].idle_for and not play.unlike(output, without)
    ]
    for line in lines.values():
        if line.holds is not None and name not in line.idle_for:
            line.holds(row)
    kept = []
    keep = lambda make: kept.append(make())  # noqa: E731
    (cut,) = runs.outputs(parts, batch, chunk_rounds=CUT, checkpoint=keep)
    found += [f"cut in two, {each}" for each in list_unlike(output, cut)]
    (resumed,) = runs.outputs(parts, batch, resume=kept[0])
    found += [f"resumed, {each}" for each in list_unlike(output, resumed)]
    for feature, line in lines.items():
        idle = name in line.idle_for or (line.forget == KEPT and SELDOM & lines.keys())
        if line.forget and not idle:
            carry = {
                each: np.zeros_like(array) if line.forget in each else array
                for each, array in kept[0].carry.items()
            }
            (forgetful,) = runs.outputs(parts, batch, resume=kept[0]._replace(carry=carry))
            if np.allclose(forgetful.models, output.models, atol=1e-6):
                found.append(f"{feature}: nothing is remembered")
    moved, order = shuffled(parts)
    (other,) = runs.outputs(moved, batch)
    found += [f"in another order, {each}" for each in alike(output, other, order)]
    if ways:
        (some,) = runs.packed(name, WAYS, [*base, *lines.values()])
        more = [*base, *lines.values(), *(WAYS[each] for each in some)]
        assert {"dummies and garbage", "side by side"} <= {*some}
        (other,) = runs.outputs(*runs.assembled(name, more))
        found += [f"{' + '.join(some)}, {each}" for each in alike(output, other)]
    return found


@pytest.mark.long
@pytest.mark.parametrize("row", range(ROWS))
@pytest.mark.parametrize("name", sorted(METHODS))
def test_what_holds_for_a_method_holds_with_any_features(name, row):
    rows = rows_of(name)
    assert sum(map(len, rows)) >= FEWEST, rows
    for features in rows[row::ROWS]:
        found = faults(name, features, ways=row == 0)
        if found:
            guilty = runs.guilty(features, lambda some: bool(faults(name, some, row == 0)))
            pytest.fail(f"{name}: {'; '.join(found)} by {' + '.join(guilty)}")


@pytest.mark.long
def test_most_pairs_of_features_meet_in_some_method():
    dealt = {name: rows_of(name) for name in METHODS}
    met = {
        pair
        for rows in dealt.values()
        for features in rows
        for pair in itertools.combinations(sorted(features), 2)
    }
    pairs = [
        pair
        for pair in itertools.combinations(sorted(FEATURES), 2)
        if runs.go_together([FEATURES[each] for each in pair])
    ]
    assert len(met) > 0.8 * len(pairs)
    assert {each for rows in dealt.values() for row in rows for each in row} == {*FEATURES}


@pytest.mark.long
def test_a_feature_that_joins_the_table_leaves_the_rows_that_were_dealt():
    """Wherever its line is: one that goes with all others, and one that goes with no row."""
    table = {
        "alone": Feature({"train": {"batch": 6, "momentum": 0.9}}, joined=4),
        **FEATURES,
        "anywhere": Feature({"train": {"metrics": ["macro_f1"]}}, joined=3),
    }
    before, after = deal("ifca", FEATURES), deal("ifca", table)
    assert after[-1] == ["alone"] and len(after) == len(before) + 1
    assert [each for row in after[:-1] for each in row if each == "anywhere"] == ["anywhere"]
    assert [[each for each in row if each != "anywhere"] for row in after[:-1]] == before
