"""The loop of rounds: what is evaluated when, and what a batch of runs has in common."""

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import data, keys
from cfljax.devices import compiled
from cfljax.engine import program
from cfljax.engine.evaluation import _let_test_clients_choose, list_evaluated
from cfljax.engine.history import find_divergence
from cfljax.engine.program import Settings
from cfljax.engine.resume import CheckpointMismatch, Spent
from cfljax.engine.scoring import score
from cfljax.engine.settings import Assembled, Stop
from cfljax.engine.simulate import simulate
from cfljax.launch import checkpoints
from cfljax.methods import METHODS
from cfljax.types import Jobs, Traffic
from tests import play, toy
from tests.reference import plain

CHOOSES, KNOWS = True, False
HALF = Settings(1, 1, test_choice="holdout")
chosen_by_loss = jax.jit(_let_test_clients_choose, static_argnums=(0, 1, 2))


@pytest.fixture(scope="module")
def parts():
    federation, model = toy.federation("label_permutation", clients=6, groups=2), toy.model()
    entry = METHODS.entry("fedavg")
    return entry.make(entry.options(), model, toy.solver(model)), model, federation


def everyone(clients, model):
    each, start = np.arange(clients, dtype=np.int32), np.zeros((1, model.size), np.float32)
    return Jobs(each, each >= 0, np.ones(clients, np.float32), start, 0 * each)


def run(parts, settings, hypers=({"lr": 0.1},), program_key=None, **more):
    """Runs of one method and of one model share their programs."""
    method, model, _ = parts
    assembled = Assembled(
        *parts,
        settings,
        program_key=program_key or method,
        model_key=None if program_key else model,
    )
    return simulate(assembled, list(range(len(hypers))), list(hypers), **more)


@pytest.mark.parametrize(
    "rounds, every, rows", [(5, 1, [0, 1, 2, 3, 4, 5]), (7, 3, [0, 3, 6, 7]), (2, 5, [0, 2])]
)
@pytest.mark.parametrize("evaluations", [1, 10])
def test_rows_of_the_history(parts, rounds, every, rows, evaluations):
    (output,) = run(parts, Settings(rounds, 3, eval_every=every, evaluations=evaluations))
    assert output.history["round"].tolist() == rows
    assert output.labels.tolist() == [[0] * 6] * len(rows)  # everybody's, the first client's, too
    assert (
        np.isnan(output.history["train_loss"][0])
        and np.isfinite(output.history["train_loss"][1:]).all()
    )


def test_a_round_without_participants_has_no_losses_and_no_distances(parts):
    (output,) = run(parts, Settings(12, 2), [{"lr": 0.1, "dropout": 0.6}])
    sent = np.diff(output.history["bytes_up"], prepend=0)
    nobody = sent == 0
    assert nobody.sum() > 1 and len(set(sent.tolist())) == 3  # in other rounds one of two, or both
    for name in ("train_loss", "discrepancy"):
        assert np.array_equal(np.isnan(output.history[name]), nobody)


def test_evaluating_less_often_changes_nothing_else(parts):
    (often,), (seldom,) = run(parts, Settings(6, 3)), run(parts, Settings(6, 3, eval_every=4))
    assert np.array_equal(often.models, seldom.models)
    assert np.array_equal(often.history["accuracy"][[0, 4, 6]], seldom.history["accuracy"])
    assert np.array_equal(often.history["bytes_up"][[0, 4, 6]], seldom.history["bytes_up"])


def test_traffic_is_counted_beyond_two_thousand_million(parts):
    method, model, federation = parts

    def much(*args):
        state, info = method.round(*args)
        return state, info._replace(
            traffic=Traffic(*(jnp.int32(n) for n in (2**31 - 1, 7, 0, 2**20)))
        )

    (output,) = run((method._replace(round=much), model, federation), Settings(5, 3))
    times = np.arange(6.0)
    assert (
        output.history["bytes_down"].tolist() == (4 * model.size * (2.0**31 - 1) * times).tolist()
    )
    assert (
        output.history["bytes_up"].tolist() == ((4 * model.size * 7 + 4 * 2.0**20) * times).tolist()
    )


def test_numbers_and_seeds_share_one_program_whatever_the_rounds(parts):
    run(parts, Settings(3, 3), [{"lr": 0.2, "lr_decay": 0.8}], program_key="shared")
    before = compiled.compilations
    grid = [{"lr": lr, "lr_decay": decay} for lr in (0.01, 0.1) for decay in (1.0, 0.9)]
    settings = [
        Settings(3, 3),
        Settings(3, 3, stop=Stop(9, "loss")),
        Settings(5, 3, eval_every=2),
        Settings(5, 3, evaluations=1),
    ]
    outputs = [
        run(parts, each, [h], program_key="shared")[0]
        for each, h in zip(settings, grid, strict=True)
    ]
    assert compiled.compilations == before
    assert len({o.models.tobytes() for o in outputs}) == 4
    assert [o.history["round"].tolist() for o in outputs] == [[0, 1, 2, 3]] * 2 + [
        [0, 2, 4, 5],
        [0, 1, 2, 3, 4, 5],
    ]


def test_a_learning_rate_that_blows_up_is_seen(parts):
    fine, nan, huge = run(parts, Settings(4, 3), [{"lr": 0.1}, {"lr": float("nan")}, {"lr": 1e30}])
    assert fine.diverged_at == -1 and nan.diverged_at == 1 and 1 <= huge.diverged_at <= 2
    assert nan.history["nonfinite"].tolist() == [0, 3, 6, 9, 12]
    assert np.isfinite(nan.models).all()


@pytest.mark.parametrize(
    ("losses", "lost_at", "told"),
    [
        ([2, 9e5, 3], -1, -1),
        ([2, 2e6, 3], -1, 3),
        ([2, 3, np.nan], -1, 6),
        ([2, 2e6, 3], 2, 2),
        ([2, 3, 3], 4, 4),
    ],
)
def test_a_run_has_diverged_with_a_mean_loss_above_a_million_or_none(losses, lost_at, told):
    history = {
        "loss": np.array(losses),
        "scored": np.array([4, 4, 4]),
        "round": np.array([0, 3, 6]),
    }
    assert find_divergence(lost_at, history) == told


def test_a_batch_resumes_from_a_checkpoint_with_the_same_bits(parts):
    settings, hypers, saved = Settings(6, 3, eval_every=2), [{"lr": 0.1}, {"lr": 0.2}], []
    whole = run(
        parts, settings, hypers, chunk_rounds=2, checkpoint=lambda make: saved.append(make())
    )
    assert [c.done for c in saved] == [2, 4]
    for point in saved:
        again = checkpoints.from_arrays(*checkpoints.to_arrays(point))
        for a, b in zip(whole, run(parts, settings, hypers, resume=again), strict=True):
            assert (
                a.models.tobytes() == b.models.tobytes()
                and a.labels.tobytes() == b.labels.tobytes()
            )
            assert all(a.history[q].tobytes() == b.history[q].tobytes() for q in a.history)


def test_a_checkpoint_of_something_else_is_refused(parts):
    saved = []
    run(parts, Settings(2, 3), chunk_rounds=1, checkpoint=lambda make: saved.append(make()))
    (point,) = saved
    missing, *names = point.carry
    renamed = {name: point.carry[name] for name in names} | {
        missing + "_of_old": point.carry[missing]
    }
    for carry in ({name: point.carry[name] for name in names}, renamed):
        with pytest.raises(
            CheckpointMismatch, match=f"does not fit.*{re.escape(missing)} is missing"
        ):
            run(parts, Settings(2, 3), resume=point._replace(carry=carry))
    array = point.carry[missing]
    for other in (array[None], array.astype(np.float64)):
        with pytest.raises(
            CheckpointMismatch, match=f"does not fit.*{re.escape(missing)} is .* but"
        ):
            run(parts, Settings(2, 3), resume=point._replace(carry=point.carry | {missing: other}))
    with pytest.raises(CheckpointMismatch, match="other quantities"):
        run(
            parts,
            Settings(2, 3),
            resume=point._replace(rows=point.rows | {"of_old": point.rows["loss"]}),
        )


def test_a_resumed_batch_has_the_seconds_of_all_starts(parts):
    saved = []
    run(
        parts,
        Settings(6, 3),
        program_key="of its own",
        chunk_rounds=2,
        checkpoint=lambda make: saved.append(make()),
    )
    assert (
        all(seconds > 0 for seconds in saved[0].spent)
        and saved[1].spent.rounds > saved[0].spent.rounds
    )
    before = Spent(1000.0, 2000.0, 4000.0, 1.0)
    (output,) = run(
        parts, Settings(6, 3), program_key="another", resume=saved[1]._replace(spent=before)
    )
    assert 1000 < output.seconds.setup < 1900 and 2000 < output.seconds.compile < 2900
    assert output.seconds.eval == 7.0  # seven evaluations, priced at the first start
    assert output.seconds.train + output.seconds.eval > 4000


def test_scoring_only_some_clients_and_those_who_have_arrived(parts):
    method, model, federation = parts
    late = toy.replace(federation, arrive=jnp.array([0, 0, 1, 0, 0, 0]))
    (output,) = run((method, model, jax.device_put(late)), Settings(3, 6))
    assert output.history["scored"].tolist() == [5, 6, 6, 6]
    newcomers = output.history["accuracy_newcomers"]
    assert np.isnan(newcomers[0]) and np.isclose(newcomers[3], output.client_accuracy[2])
    (some,) = run(parts, Settings(1, 3, eval_clients=2))
    assert (
        some.history["scored"].tolist() == [2, 2] and np.isfinite(some.client_accuracy).sum() == 2
    )


def test_clients_with_a_single_test_sample_count(parts):
    method, model, federation = parts
    single = toy.replace(
        federation, test=toy.replace(federation.test, count=jnp.ones(6, jnp.int32))
    )
    (output,) = run((method, model, jax.device_put(single)), Settings(1, 3))
    assert np.isfinite(output.history["loss"]).all() and output.history["scored"].tolist() == [6, 6]


def test_a_federation_without_test_samples_has_not_diverged(parts):
    method, model, federation = parts
    blind = toy.replace(
        federation, test=toy.replace(federation.test, count=jnp.zeros(6, jnp.int32))
    )
    (output,) = run((method, model, jax.device_put(blind)), Settings(2, 3))
    assert (
        output.diverged_at == -1
        and np.isnan(output.history["loss"]).all()
        and np.isfinite(output.models).all()
    )


def test_scoring_only_clients_that_have_a_cluster(parts):
    _, model, federation = parts
    entry = METHODS.entry("ifca")
    method = entry.make(entry.options(clusters=1), model, toy.solver(model))
    settings = Settings(3, 2, score="assigned", label_history=True)
    (output,) = simulate(Assembled(method, model, federation, settings), [0], [{"lr": 0.1}])
    assert (
        output.history["scored"].tolist() == (output.labels == 0).sum(axis=1).tolist()
        and output.history["scored"][1] == 2
    )
    assigned = output.labels[-1] == 0
    assert np.isfinite(output.client_accuracy).tolist() == assigned.tolist()
    scores = score(
        model,
        federation,
        federation.test,
        output.models,
        jnp.zeros(6, jnp.int32),
        jnp.asarray(assigned),
    )
    assert not assigned.all() and np.isclose(
        output.history["loss"][-1], scores.loss.sum() / scores.samples.sum()
    )


@pytest.mark.parametrize("choice", ["test_loss", "holdout"])
def test_clients_that_never_train_choose_by_loss(choice):
    source = data.load(
        "blobs", {"samples": 400, "features": 6, "classes": 4, "spread": 1.0}, seed=0
    )  # some samples are wrong
    federation, model = (
        toy.federation("label_permutation", source=source, clients=6, groups=2),
        toy.model(),
    )
    alone, group = [2, 3], np.array(federation.group)
    truth = group[alone]
    group[alone] = 1 - truth  # what the oracle would say of them
    federation = toy.replace(toy.without_samples(federation, alone), group=jnp.asarray(group))
    entry = METHODS.entry("oracle")
    method = entry.make(entry.options(), model, toy.solver(model, epochs=3))._replace(chooses=True)
    (output,) = simulate(
        Assembled(method, model, federation, Settings(8, 4, test_choice=choice)), [0], [{"lr": 0.2}]
    )
    assert output.history["scored"][-1] == 6
    for c, group in zip((2, 3), truth, strict=True):
        x, y = plain.Clients(federation).test[c]
        right = (
            plain.Net(6, 4).logits(np.asarray(output.models[group], np.float64), x).argmax(axis=1)
            == y
        )
        right = right[(len(right) + 1) // 2 :] if choice == "holdout" else right
        assert output.client_accuracy[c] == pytest.approx(right.mean()) and 0.5 < right.mean() < 1


@pytest.mark.parametrize("alone", [0, 1])
def test_clients_that_never_train_choose_among_the_models_in_use_and_not_where_there_is_one(alone):
    model, made = toy.model(), toy.federation("iid", clients=4)
    federation, fit = toy.without_samples(made, alone), toy.fit_of(toy.solver(model, epochs=5))
    good = fit(keys.root(0), made, everyone(4, model), {"lr": np.float32(0.2)}).delta[0]
    models, scoring = np.stack([-good, good]), np.zeros(4, np.int32)
    for in_use, chosen in (([True, True], 1), ([True, False], 0), ([False, False], 1)):
        labels, _ = chosen_by_loss(
            model, Settings(1, 1), CHOOSES, federation, models, np.array(in_use), scoring
        )
        known, _ = chosen_by_loss(
            model, Settings(1, 1), KNOWS, federation, models, np.array(in_use), scoring
        )
        assert not known.any()
        assert labels.tolist() == [chosen if c == alone else 0 for c in range(4)]
    for chooses, number in (
        (CHOOSES, 2),
        (CHOOSES, 1),
        (KNOWS, 2),
    ):  # all are scored on the same samples
        _, half = chosen_by_loss(
            model, HALF, chooses, federation, models[:number], np.full(number, True), scoring
        )
        count, start = np.asarray(federation.test.count), np.asarray(federation.test.start)
        left = np.where(np.arange(4) == alone, count // 2, count)
        assert np.array_equal(half.count, left)
        assert np.array_equal(np.asarray(half.start) - start, count - left)


@pytest.mark.parametrize("used", [[70], [3, 70], range(71), range(33, 75)])
def test_clients_that_never_train_choose_among_any_number_of_models(used):
    model, made = toy.model(), toy.federation("iid", clients=4)
    federation = toy.without_samples(made, 2)
    models = np.random.default_rng(3).normal(size=(75, model.size)).astype(np.float32)
    models[50] = np.nan
    in_use = np.isin(np.arange(75), used)
    labels, _ = chosen_by_loss(
        model, HALF, CHOOSES, federation, models, in_use, np.zeros(4, np.int32)
    )
    x, y = (each[: -(-len(each) // 2)] for each in plain.Clients(federation).test[2])
    losses = {
        k: plain.Net(6, 4).loss(np.asarray(models[k], np.float64), x, y) for k in used if k != 50
    }
    assert labels.tolist() == [0, 0, min(losses, key=losses.get), 0]


def test_clients_that_never_train_do_not_choose_where_models_are_personal_or_groups_known():
    model = toy.model(4)
    made = {
        name: play.prepared(name, model=play.OPTIONS.get(name, {}).get("model", model)).method
        for name in METHODS
    }
    personal = {
        "apfl",
        "ditto",
        "fedala",
        "fedamp",
        "fedbn",
        "fedccfa",
        "fedpac",
        "fedper",
        "fedproto",
        "fedrep",
        "fedrod",
        "fedsoft",
        "gossip",
        "lg_fedavg",
        "local",
        "per_fedavg",
        "pfedgraph",
        "pfedme",
    }
    assert {name for name in made if not made[name].chooses} == personal | {"oracle"}


def test_a_model_that_nobody_has_is_not_to_be_chosen():
    """Nothing moves (lr 0): the trainers all have one of two random models, and the other would
    suit who never trains."""
    federation, model = toy.federation("label_permutation", clients=6, groups=2), toy.model()
    alone = np.flatnonzero(np.asarray(federation.group) == 1)
    federation = toy.without_samples(federation, alone)
    entry = METHODS.entry("ifca")
    method = entry.make(entry.options(clusters=2), model, toy.solver(model))
    x, y = plain.Clients(federation).test[alone[0]]
    settings = Settings(1, 6, test_choice="test_loss")
    for seed in range(20):
        (output,) = simulate(
            Assembled(method, model, federation, settings, program_key="nobody has it"),
            [seed],
            [{"lr": 0.0}],
        )
        taken = {int(label) for label in output.labels[-1] if label >= 0}
        best = np.argmin(
            [plain.Net(6, 4).loss(np.asarray(w, np.float64), x, y) for w in output.models]
        )
        if len(taken) == 1 and best not in taken:
            break
    else:
        raise AssertionError("no such start was found")
    right = (
        plain.Net(6, 4).logits(np.asarray(output.models[taken.pop()], np.float64), x).argmax(axis=1)
        == y
    )
    assert output.client_accuracy[alone[0]] == pytest.approx(right.mean())


def test_clients_that_never_train_choose_on_a_test_set_that_all_share():
    made = toy.federation("iid", clients=4, test="global")
    federation = toy.without_samples(made, 1)
    model = toy.model()
    entry = METHODS.entry("ifca")
    method = entry.make(entry.options(clusters=2), model, toy.solver(model))
    settings = Settings(2, 4, test_choice="test_loss")
    run(
        (method, model, made), settings, [{"lr": 0.2}]
    )  # whose programs have the same shapes, and let nobody choose
    (output,) = run((method, model, federation), settings, [{"lr": 0.2}])
    x, y = (np.asarray(part) for part in plain.Clients(federation).test[1])
    for c in range(4):
        net = plain.Net(6, 4)
        least = np.argmin([net.loss(np.asarray(w, np.float64), x, y) for w in output.models])
        own = np.asarray(output.models[least if c == 1 else output.labels[-1][c]], np.float64)
        assert output.client_accuracy[c] == pytest.approx(
            (net.logits(own, x).argmax(axis=1) == y).mean()
        )


def test_the_clients_that_stand_for_all_are_drawn_from_all_and_never_dummies():
    uid = jnp.arange(12)
    luck = np.asarray(keys.scores(keys.root(0), "eval_clients", uid) >> 1)
    order = np.argsort(-luck.astype(np.int64))
    number = int(np.flatnonzero(order == 0)[0]) + 1  # the fewest that the first client is among
    federation = toy.replace(toy.federation("iid", clients=12), uid=uid)
    settings = SimpleNamespace(eval_clients=number)
    assert set(np.asarray(list_evaluated(settings, federation)).tolist()) == set(
        order[:number].tolist()
    )
    dummies = toy.replace(federation, uid=uid.at[order[0]].set(-1))
    assert order[0] not in np.asarray(list_evaluated(settings, dummies)).tolist()


def test_an_evaluation_costs_the_least_of_a_few_looks_and_a_dear_one_is_looked_at_once(monkeypatch):
    from cfljax.engine import resume as clock

    seconds, at, calls = [], [0.0], []

    def f(scores):
        calls.append(scores)
        at[0] += seconds[len(calls) - 1]
        return scores

    monkeypatch.setattr(clock.time, "perf_counter", lambda: at[0])
    cheap, mixed, dear = [9.0, 0.04, 0.01, 0.03, 0.04, 0.02], [9.0, 0.04, 0.2, 0.01], [9.0, 3.0]
    for costs, price, looks in ((cheap, 0.01, 6), (mixed, 0.04, 3), (dear, 3.0, 2)):
        seconds[:], calls[:] = costs, []
        mine = clock.ChunkTimer()
        assert mine.price(f, "scores") == "scores"
        assert mine.evaluation == pytest.approx(price) and len(calls) == looks
        assert mine.split(1) == (0.0, pytest.approx(price))


def test_a_view_that_only_picks_arrays_is_not_compiled():
    structure = jax.tree.structure((0, 0))
    assert program._pick(structure, [1, 0], {"a": 1, "b": 2}, 3) == (2, 1)
