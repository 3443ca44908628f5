"""`train.asynchronous` against a queue of events in plain Python, against rounds in which all wait,
and with what else there is."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.contract.outputs import list_arrays, list_unlike
from cfljax.contract.padding import pad
from cfljax.engine.settings import Asynchronous
from cfljax.errors import SpecError
from cfljax.federation.traces import make_devices
from cfljax.local.attacks import Attack
from cfljax.local.compressors.topk import TopK
from cfljax.local.send import Sending
from cfljax.methods import METHODS
from cfljax.round.common import first_models
from tests import play, toy
from tests.often import rarely
from tests.reference import asynchronous as reference
from tests.reference import clock, plain

NUMBERS = {"spread": 1.0, "step_ms": 50.0, "down_mbps": 0.01, "up_mbps": 0.004}
EXPONENT = 0.7
"""Numbers of all kinds of staleness."""
IDLE = {"dropout": 0.0, "lr_decay": 1.0}
"""Nobody drops out and the rate stays, by the program of runs in which that is not so."""
STEPS, PLACES, BUFFER, SEED = 12, 5, 2, 3
NET = plain.Net(6, 4)
SOME = ("ifca", "fedper")


@functools.cache
def federation(spread=True):
    """Eight clients of unequal sizes, with devices."""
    return dataclasses.replace(
        toy.federation("quantity", clients=8), devices=make_devices(8, 3, not spread, None)
    )


@functools.cache
def nine():
    return dataclasses.replace(play.nine_clients(), devices=make_devices(9, 0, False, None))


def vector(model=None):
    return (4 * (model or toy.model()).size,) * 2


def numbers(**more):
    return (
        {f"clock.{k}": v for k, v in NUMBERS.items()}
        | {"asynchronous.exponent": EXPONENT}
        | IDLE
        | more
    )


def served(
    name="fedavg", buffer=BUFFER, on=None, rounds=STEPS, places=PLACES,
    seeds=(SEED,), hyper=None, settings=None, **more,
):  # fmt: skip
    """The outputs of runs in which the server waits for `buffer` of the clients under way; None:
    for all who take part."""
    home = sum(
        {"head": 32, "body": 49, "norm": 28}[part]
        for part, kind in METHODS.entry(name).options.parts
        if kind == "client"
    )
    given = {"clock": vector(more.get("model"))} | (settings or {})
    given |= {} if buffer is None else {"asynchronous": Asynchronous(buffer, home)}
    hypers = [numbers(**(hyper or {}))] * len(seeds)
    return play.batch(
        name, on or federation(), rounds, places, list(seeds), hypers, settings=given, **more
    )


def one(*args, **more):
    (out,) = served(*args, **more)
    return out


def seconds(made, c, down=1):
    size = toy.model().size
    steps = clock.steps_of(int(made.train.count[c]))
    return clock.seconds_of(
        steps, float(np.exp(float(made.devices.pace[c]))), 4 * size * down, 4 * size, NUMBERS
    )


def expected(
    start, choose=None, down=1, buffer=BUFFER, exponent=EXPONENT, average="samples", places=PLACES,
    on=None, lr_decay=1.0,
):  # fmt: skip
    on = on or federation()
    clients = plain.Clients(on)
    return reference.run(
        NET, clients, start, STEPS, places, buffer, lambda c: seconds(on, c, down), 0.1,
        choose or (lambda *_: 0), lambda c: clients.size[c] if average == "samples" else 1.0,
        lambda tau: reference.discount(tau, exponent), SEED, batch=5, epochs=1, lr_decay=lr_decay,
    )  # fmt: skip


def agree(out, wanted, down=1):
    np.testing.assert_allclose(out.models, wanted[-1].models, atol=5e-6)
    np.testing.assert_array_equal(
        out.labels[-1], np.where(wanted[-1].labels < 0, out.labels[-1], wanted[-1].labels)
    )
    np.testing.assert_allclose(out.history["clock_s"][1:], [step.now for step in wanted], rtol=1e-5)
    np.testing.assert_allclose(
        out.history["device_s"][1:], [step.busy for step in wanted], rtol=1e-5
    )
    np.testing.assert_allclose(
        out.history["staleness"][1:], [step.staleness for step in wanted], rtol=1e-6
    )
    np.testing.assert_array_equal(out.diag["applied"][1:], [step.applied for step in wanted])
    np.testing.assert_array_equal(
        out.history["bytes_down"][1:], [step.begun * down * vector()[0] for step in wanted]
    )
    np.testing.assert_array_equal(
        out.history["bytes_up"][1:], [step.arrived * vector()[1] for step in wanted]
    )


@pytest.mark.parametrize("exponent", [EXPONENT, rarely(2.0), rarely(0.0)])
def test_fedavg_is_the_queue_of_events(exponent):
    """With a rate that falls: a client's is that of the step in which it gets its model."""
    wanted = expected([toy.start(SEED)], exponent=exponent, lr_decay=0.8)
    agree(one(hyper={"asynchronous.exponent": exponent, "lr_decay": 0.8}), wanted)
    assert wanted[-1].staleness > 1.2  # or the factors would hardly matter


@pytest.mark.parametrize(("places", "buffer"), [rarely(5, 1), rarely(3, 3), (8, 2), rarely(8, 1)])
def test_any_number_of_places_and_any_buffer(places, buffer):
    """With eight places for eight clients each has its own."""
    agree(
        one(places=places, buffer=buffer), expected([toy.start(SEED)], places=places, buffer=buffer)
    )


def test_ifca_is_the_queue_of_events_in_each_cluster():
    start = np.asarray(first_models(keys.root(SEED), toy.model(), 3), np.float64)
    data = plain.Clients(nine())
    choose = lambda models, c: int(np.argmin([NET.loss(w, *data.train[c]) for w in models]))  # noqa: E731
    wanted = expected(start, choose, down=3, average="uniform", buffer=3, on=nine())
    agree(one("ifca", clusters=3, buffer=3, on=nine()), wanted, down=3)
    assert (wanted[-1].applied > 3).sum() > 1


@pytest.mark.parametrize("name", ["ifca"])
def test_to_wait_for_all_is_the_same_bits_as_a_round(name):
    options = {
        "on": nine(),
        "rounds": 4,
        "places": 5,
        "hyper": {"dropout": 0.2, "stragglers": 0.3, "straggler_work": 0.5},
    }
    waiting, buffered = (one(name, buffer, **options, **play.options(name)) for buffer in (None, 5))
    unlike = play.unlike(waiting, buffered)
    seconds = (
        "['diag']['waited_s']",
        "['history']['clock_s']",
    )  # which two programs may round otherwise
    assert [each for each in unlike if each not in seconds] == [
        "['diag']['applied']",
        "['history']['staleness']",
    ]
    theirs, ours = list_arrays(waiting), list_arrays(buffered)
    for name in seconds:
        if name in theirs:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, err_msg=name)
    assert seconds[1] in theirs
    assert not buffered.history["staleness"].any() and buffered.diag["applied"][-1].sum() > 8


@pytest.mark.parametrize("average", [rarely("samples"), "uniform", rarely("nova")])
def test_so_it_is_with_every_average_and_everybody_there(average):
    waiting, buffered = (one(buffer=b, places=8, rounds=4, average=average) for b in (None, 8))
    assert play.unlike(waiting, buffered) == ["['diag']['applied']", "['history']['staleness']"]


@pytest.mark.parametrize("name", ["fedper"])
def test_a_run_goes_on_from_a_checkpoint_with_those_under_way(name):
    kept = []
    again = functools.partial(
        served, name, on=nine(), rounds=5, chunk_rounds=2, **play.options(name)
    )
    (whole,) = again(checkpoint=lambda make: kept.append(make()))
    (resumed,) = again(resume=kept[0])
    assert (
        kept[0].done == 2
        and kept[0].carry[".flight.busy"].sum() == 3
        and np.abs(kept[0].carry[".flight.delta"]).max() > 0
    )
    assert not list_unlike(whole, resumed)
    forgetful = kept[0]._replace(
        carry=kept[0].carry | {".flight.delta": 0 * kept[0].carry[".flight.delta"]}
    )
    assert play.unlike(whole, again(resume=forgetful)[0])


def shuffled(made, order):
    """The clients in another order, with their identities."""
    at = jnp.asarray(order)
    return dataclasses.replace(
        made.take(at), devices=dataclasses.replace(made.devices, pace=made.devices.pace[at])
    )


@pytest.mark.parametrize("name", ["ifca", rarely("fedavg"), rarely("fedgroup")])
def test_neither_padding_nor_the_order_of_clients_matters(name):
    options = play.options(name)
    plainly = one(name, on=nine(), rounds=5, **options)
    padded = pad(play.nine_clients(), clients=3, samples=4, rng=np.random.default_rng(1))
    pace = jnp.concatenate([nine().devices.pace, jnp.zeros(3)])
    padded = dataclasses.replace(padded, devices=dataclasses.replace(nine().devices, pace=pace))
    order = np.random.default_rng(0).permutation(9)
    for other, labels in ((padded, np.arange(9)), (shuffled(nine(), order), np.argsort(order))):
        out = one(name, on=other, rounds=5, **options)
        np.testing.assert_allclose(out.models, plainly.models, atol=2e-6)
        np.testing.assert_array_equal(out.labels[-1][labels], plainly.labels[-1])
        for quantity in (
            "clock_s",
            "device_s",
            "staleness",
            "bytes_down",
            "bytes_up",
            "train_loss",
        ):
            np.testing.assert_allclose(out.history[quantity], plainly.history[quantity], rtol=1e-5)


def test_equally_early_updates_are_taken_by_identity():
    """Eight equal clients, all under way: the two with the lowest identities arrive first, wherever
    they stand."""
    same = toy.identical(federation(spread=False))
    same = dataclasses.replace(same, uid=jnp.asarray([5, 3, 9, 1, 7, 8, 2, 6], jnp.int32))
    kept = []
    served(on=same, places=8, rounds=2, chunk_rounds=1, checkpoint=lambda make: kept.append(make()))
    assert (np.flatnonzero(~kept[0].carry[".flight.busy"][0])).tolist() == [3, 6]


def test_three_clients_computed_by_hand():
    """The calculation that stands in the documentation."""
    three = toy.federation("iid", clients=3)
    train = dataclasses.replace(three.train, count=jnp.array([20, 50, 100], jnp.int32))
    pace = jnp.log(jnp.array([1.0, 0.5, 2.0]))
    three = dataclasses.replace(
        three, train=train, devices=dataclasses.replace(make_devices(3, 0, False, None), pace=pace)
    )
    hyper = {
        "clock.spread": 1.0,
        "clock.step_ms": 100.0,
        "clock.down_mbps": 8.0,
        "clock.up_mbps": 2.0,
    }
    out = one(
        on=three,
        places=3,
        buffer=1,
        rounds=4,
        hyper=hyper,
        work={"batch": 10},
        settings={"clock": (100_000.0, 100_000.0)},
    )
    np.testing.assert_allclose(out.history["clock_s"], [0, 0.7, 1.0, 1.4, 1.5], rtol=1e-5)
    np.testing.assert_allclose(out.history["device_s"], [0, 2.1, 3.0, 4.2, 4.5], rtol=1e-5)
    np.testing.assert_allclose(out.history["staleness"], [0, 0, 1 / 2, 2 / 3, 5 / 4], rtol=1e-6)


def test_who_drops_out_leaves_its_place_and_an_empty_step_changes_nothing():
    gone = one(hyper={"dropout": 1.0}, rounds=3)
    assert (
        gone.history["clock_s"].tolist() == [0.0] * 4
        and np.isnan(gone.history["train_loss"][1:]).all()
    )
    assert gone.models.tobytes() == one(hyper={"dropout": 1.0}, rounds=1).models.tobytes()
    some = one(hyper={"dropout": 0.5})
    assert 0 < some.diag["applied"][-1].sum() <= 2 * STEPS and np.isfinite(some.models).all()


def test_a_broken_update_counts_when_it_arrives_and_spreads_nowhere():
    made = toy.broken(nine(), 1, 4)
    out = one("ifca", on=made, clusters=2)
    assert np.isfinite(out.models).all() and 0 < out.history["nonfinite"][-1] < 2 * STEPS
    first = np.flatnonzero(out.history["nonfinite"])[0]
    alone = one("ifca", on=made, clusters=2, rounds=int(first) - 1)
    assert alone.history["nonfinite"][-1] == 0


@pytest.mark.long
def test_a_batch_of_runs_side_by_side_has_a_flight_each():
    seeds = (SEED, 4, 5)
    together = served(
        seeds=seeds, rounds=5, work={"sequential": False}, settings={"sequential": False}
    )
    for seed, out in zip(seeds, together, strict=True):
        alone = one(seeds=(seed,), rounds=5)
        np.testing.assert_allclose(out.models, alone.models, atol=2e-6)
        np.testing.assert_allclose(out.history["clock_s"], alone.history["clock_s"], rtol=1e-6)


def test_what_stays_at_home_changes_when_the_update_arrives():
    """FedPer's heads: those of clients that are under way are as they were."""
    name, kept = "fedper", []
    served(
        name,
        on=nine(),
        rounds=2,
        chunk_rounds=1,
        checkpoint=lambda make: kept.append(make()),
        **play.options(name),
    )
    carry = kept[0].carry
    own = next(value for key, value in carry.items() if key.endswith(".client_params"))[0]
    away = carry[".flight.ids"][0][carry[".flight.busy"][0]]
    begun = own[[c for c in range(9) if c not in carry[".flight.ids"][0]]]
    assert len(away) == 3 and (own[away] == begun[0]).all() and (begun == begun[0]).all()
    landed = carry[".flight.ids"][0][~carry[".flight.busy"][0]]
    assert len(landed) == 2 and (own[landed] != begun[0]).any(axis=1).all()


@pytest.mark.parametrize("work", [
    {"sending": Sending(TopK(keep=0.3), feedback=True)}, rarely({"sending": Sending(robust="median")}),
    rarely({"sending": Sending(attack=Attack("sign_flip", 0.0))}), rarely({"lanes": 3}),
], ids=["feedback", "robust", "attack", "lanes"])  # fmt: skip
def test_with_what_happens_to_updates_it_is_still_a_round_if_all_are_waited_for(work):
    hyper = {"attack.share": 0.25, "attack.factor": 2.0}
    waiting, buffered = (
        one(buffer=buffer, work=work, hyper=hyper, rounds=4) for buffer in (None, PLACES)
    )
    assert play.unlike(waiting, buffered) == ["['diag']['applied']", "['history']['staleness']"]
    out = one(work=work, hyper=hyper)
    assert (
        np.isfinite(out.models).all()
        and not np.allclose(out.models, one().models)
        or "lanes" in work
    )


def test_a_method_that_mixes_in_its_own_way_is_told_so():
    with pytest.raises(
        SpecError, match="train.asynchronous: the method mixes no updates by averages"
    ):
        served("ditto", rounds=1)
