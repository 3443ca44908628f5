"""Runs that end early: when, what they leave behind, and what becomes of the others in their
batch."""

import dataclasses

import numpy as np
import pytest

import cfljax
from cfljax.engine.history import Watch
from cfljax.engine.settings import Assembled, Settings, Stop
from cfljax.engine.simulate import simulate
from cfljax.federation.validation import hold_out
from cfljax.launch import checkpoints
from cfljax.methods import METHODS
from cfljax.types import Split, on_host
from tests import toy
from tests.often import rarely
from tests.reference import plain

FAST, SLOW, STILL = {"lr": 0.5}, {"lr": 0.002}, {"lr": 0.0}
STOP = Stop(4, "val_loss")


def with_validation(federation, share=0.3):
    """The federation with a share of each client's training rows set aside."""
    split = federation.train
    ends = np.asarray(split.start) + np.asarray(split.count)
    rows = [np.asarray(split.rows)[a:b] for a, b in zip(np.asarray(split.start), ends, strict=True)]
    return dataclasses.replace(
        federation,
        **{n: _split(r) for n, r in zip(("train", "valid"), hold_out(rows, share, 0), strict=True)},
    )


def _split(rows):
    count = np.array([len(each) for each in rows], np.int32)
    start = (np.cumsum(count) - count).astype(np.int32)
    return Split(on_host(np.concatenate(rows)), on_host(start), on_host(count), int(count.max()))


@pytest.fixture(scope="module", params=[rarely("fedavg"), "ifca"])
def parts(request):
    federation, model = with_validation(toy.federation(clients=6)), toy.model()
    entry = METHODS.entry(request.param)
    return entry.make(entry.options(), model, toy.solver(model)), model, federation


def run(parts, hypers, stop=STOP, rounds=20, sequential=True, first=0, **more):
    """`first`: the seed of the first run."""
    method, model, _ = parts
    assembled = Assembled(
        *parts,
        Settings(rounds, 3, sequential=sequential, stop=stop),
        program_key=method,
        model_key=model,
    )
    return simulate(assembled, list(range(first, first + len(hypers))), list(hypers), **more)


def same(a, b, exact=True):
    close = (
        (lambda x, y: x.tobytes() == y.tobytes())
        if exact
        else (lambda x, y: np.allclose(x, y, atol=2e-5, equal_nan=True))
    )
    assert a.history.keys() == b.history.keys() and a.models.shape == b.models.shape
    assert all(
        len(a.history[q]) == len(b.history[q]) and close(a.history[q], b.history[q])
        for q in a.history
    )
    assert (
        close(a.models, b.models)
        and close(a.client_accuracy, b.client_accuracy)
        and (a.labels == b.labels).all()
    )


def first_end(values, rounds, patience):
    """The rule in plain words: no better value for `patience` rounds."""
    best, since = np.inf, 0
    for value, now in zip(values, rounds, strict=True):
        if value < best:
            best, since = value, now
        if now - since >= patience:
            return int(now)
    return None


def test_a_run_ends_where_the_rule_says_and_is_until_then_that_of_a_run_without(parts):
    hypers = [FAST, SLOW, STILL]
    stopped, whole = run(parts, hypers), run(parts, hypers, stop=None)
    ends = [first_end(each.history["val_loss"], each.history["round"], 4) for each in whole]
    assert ends[2] == 4 and None in ends
    for early, late, end in zip(stopped, whole, ends, strict=True):
        assert early.history["round"][-1] == (20 if end is None else end)
        for name, values in early.history.items():
            assert values.tobytes() == late.history[name][: len(values)].tobytes()


def test_a_stopped_run_leaves_the_models_and_scores_of_its_last_round(parts):
    (stopped,) = run(parts, [STILL])
    (short,) = run(parts, [STILL], stop=None, rounds=4)
    same(stopped, short)


@pytest.mark.parametrize("sequential", [True, rarely(False)])
def test_the_runs_of_a_batch_end_each_by_itself(parts, sequential):
    hypers = [STILL, SLOW, STILL, STILL]
    together = run(parts, hypers, sequential=sequential)
    for at in range(4):
        (alone,) = run(parts, [hypers[at]], sequential=sequential, first=at)
        same(together[at], alone, exact=sequential)


@pytest.mark.parametrize("sequential", [True, rarely(False)])
def test_a_batch_with_runs_that_have_ended_resumes_to_the_same_bits(parts, sequential):
    hypers, saved = [STILL, SLOW, STILL, STILL], []
    whole = run(parts, hypers, sequential=sequential, checkpoint=lambda make: saved.append(make()))
    point = next(each for each in saved if each.done == 10)
    again = run(
        parts,
        hypers,
        sequential=sequential,
        resume=checkpoints.from_arrays(*checkpoints.to_arrays(point)),
    )
    for a, b in zip(whole, again, strict=True):
        same(a, b)


def test_a_run_that_a_callback_has_stopped_stays_so_in_a_checkpoint(parts):
    hypers, saved = [SLOW, FAST], []
    whole = run(
        parts,
        hypers,
        stop=None,
        callback=lambda slot, at, _: (slot, at) == (0, 5),
        checkpoint=lambda make: saved.append(make()),
    )
    assert [each.stopped_at for each in whole] == [5, -1]
    assert [each.history["round"][-1] for each in whole] == [5, 20]
    point = next(each for each in saved if each.done == 10)
    kept = checkpoints.from_arrays(*checkpoints.to_arrays(point))
    for a, b in zip(whole, run(parts, hypers, stop=None, resume=kept), strict=True):
        same(a, b)
        assert a.stopped_at == b.stopped_at


def test_a_batch_whose_runs_have_all_ended_does_no_further_round(parts):
    seen = []
    outputs = run(parts, [STILL, STILL], progress=lambda done, _: seen.append(done))
    assert seen == [0, 1, 2, 3, 4, 20]  # the last: the rounds that are saved count as done
    assert [each.history["round"][-1] for each in outputs] == [4, 4]


def test_a_run_that_stops_is_charged_for_its_own_rounds(parts):
    still, slow = run(parts, [STILL, SLOW])
    taken = [each.seconds.train + each.seconds.eval for each in (still, slow)]
    assert taken[1] / taken[0] == pytest.approx(len(slow.history["round"][1:]) / 4)


def test_the_validation_numbers_are_those_of_the_validation_samples(parts):
    (output,) = run(parts, [FAST], stop=None, rounds=3)
    federation, net = parts[2], plain.Net(6, 4)
    x, y = np.asarray(federation.pool.x), np.asarray(federation.pool.y)
    right = count = 0
    for client in range(federation.clients):
        split, (k,) = federation.valid, [output.labels[-1][client]]
        rows = np.asarray(split.rows)[int(split.start[client]) :][: int(split.count[client])]
        if len(rows):
            logits = net.logits(output.models[max(k, 0)].astype(np.float64), x[rows])
            right, count = right + (logits.argmax(-1) == y[rows]).sum(), count + len(rows)
    if (output.labels[-1] >= 0).all():
        assert output.history["val_accuracy"][-1] == pytest.approx(right / count)


def test_a_metric_that_is_not_finite_is_no_better():
    watch = Watch(Stop(3, "val_accuracy"), 2)
    rows = {
        "round": np.tile(np.arange(6), (2, 1)),
        "val_accuracy": np.array([[0.5, 0.6, np.nan, np.nan, np.nan, 0.9], [np.nan] * 6]),
    }
    assert watch.see(rows).tolist() == [0, 1]
    assert watch.ended.tolist() == [4, 3] and watch.evaluations.tolist() == [5, 4]


def served(seen):
    """The share of clients that are right about half of their samples, and which samples count."""
    scored = seen.who & (seen.samples > 0)
    good = scored & (seen.correct >= 0.5 * seen.samples)
    return good.sum() / scored.sum() + 10 * seen.samples.sum()


def test_a_metric_of_one_s_own_is_watched_on_validation_samples():
    cfljax.register_metric("served")(served)
    data = {"name": "blobs", "samples": 200, "clients": 6, "validation": 0.3}
    plain = {"lr": 0.1, "metrics": ["served"], "plan": {"quick": False}}
    ends = {}
    for better in ("higher", "lower"):
        stop = {"patience": 3, "metric": "served", "better": better}
        result = cfljax.run("fedavg", data, "mclr", rounds=12, train=plain | {"stop": stop})
        watched, tested = result.history["val_served"], result.history["served"]
        sign = -1 if better == "higher" else 1
        end = first_end(sign * watched.astype(float), result.history["round"], 3)
        ends[better] = result.summary["rounds"]
        assert ends[better] == (12 if end is None else end)
        assert (watched // 10 != tested // 10).all()
    assert ends["lower"] != ends["higher"]
