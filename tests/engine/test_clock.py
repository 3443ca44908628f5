"""The simulated clock against a plain program: how long rounds last, who is late, and what neither
changes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.contract.outputs import list_unlike
from cfljax.engine import wall
from cfljax.errors import SpecError
from cfljax.federation import cohort
from cfljax.federation.traces import make_devices
from cfljax.kernels.mix import Aggregate
from cfljax.local.reports import report
from cfljax.round.common import traffic
from cfljax.types import ClientState, Info
from tests import play, toy
from tests.often import rarely
from tests.reference import clock as reference

NUMBERS = {"spread": 1.0, "step_ms": 50.0, "down_mbps": 0.01, "up_mbps": 0.004}
ROUNDS = 3
SOME = ("ifca", "local")


@functools.cache
def federation(same=False):
    """Eight clients of unequal sizes, with devices."""
    unequal = toy.federation("quantity", clients=8)
    return dataclasses.replace(unequal, devices=make_devices(8, 3, same, None))


def with_trace(tmp_path, text):
    file = tmp_path / "trace.csv"
    file.write_text(text)
    return dataclasses.replace(federation(), devices=make_devices(8, 3, False, str(file)))


def hyper(**more):
    return {f"clock.{name}": value for name, value in (NUMBERS | more).items()}


def vector(model=None):
    return (4 * (model or toy.model()).size,) * 2


def clocked(
    name="fedavg", on=None, participants=None, settings=None, numbers=None, more=None, **options
):
    """A run with a clock; everybody takes part in each round."""
    given = {"clock": vector(options.get("model"))} | (settings or {})
    hypers = [hyper(**(numbers or {})) | (more or {})]
    (out,) = play.batch(
        name, on or federation(), ROUNDS, participants, hypers=hypers, settings=given, **options
    )
    return out


def sizes(on=None):
    return np.asarray((on or federation()).train.count).tolist()


def speeds():
    return np.exp(np.asarray(federation().devices.pace, float)).tolist()


def expected(down=1, up=1, often=1, clients=range(8), size=None, **work):
    """Client → seconds in a round, of a method that sends these numbers of vectors and trains this
    number of times."""
    size = size or toy.model().size
    took = lambda c: reference.seconds_of(  # noqa: E731
        often * reference.steps_of(sizes()[c], **work),
        speeds()[c],
        4 * size * down,
        4 * size * up,
        NUMBERS,
    )
    return {c: took(c) for c in clients}


draw = jax.jit(cohort.draw, static_argnums=2)


def drawn(t, number, seed=0):
    """Who takes part in round t."""
    found = draw(keys.fold(keys.root(seed), "round", t), federation(), number, jnp.int32(t), {})
    return np.asarray(found.ids)[np.asarray(found.mask)].tolist()


def the_same_but_for_the_clock(a, b):
    return [
        name
        for name in play.unlike(a, b)
        if "clock" not in name and not any(w in name for w in ("_s'", "'late'"))
    ]


def test_three_clients_computed_by_hand():
    """The calculation that stands in the documentation."""
    three = toy.federation("iid", clients=3)
    train = dataclasses.replace(three.train, count=jnp.array([20, 50, 100], jnp.int32))
    pace = jnp.log(jnp.array([1.0, 0.5, 2.0]))
    three = dataclasses.replace(
        three, train=train, devices=dataclasses.replace(make_devices(3, 0, False, None), pace=pace)
    )
    numbers = {"spread": 1.0, "step_ms": 100.0, "down_mbps": 8.0, "up_mbps": 2.0}
    out = clocked(
        on=three, numbers=numbers, work={"batch": 10}, settings={"clock": (100_000.0, 100_000.0)}
    )
    np.testing.assert_allclose(out.history["clock_s"], [0, 1.5, 3.0, 4.5], rtol=1e-5)
    np.testing.assert_allclose(out.history["device_s"], [0, 3.2, 6.4, 9.6], rtol=1e-5)


@pytest.mark.parametrize(
    "work", [*map(rarely, ({"epochs": 1}, {"epochs": 3}, {"steps": 7})), {"epochs": 2, "batch": 4}]
)
def test_the_clock_is_that_of_a_plain_program(work):
    out = clocked(work=work)
    clock, devices, _ = reference.walk([expected(**work)] * ROUNDS)
    np.testing.assert_allclose(out.history["clock_s"], clock, rtol=1e-5)
    np.testing.assert_allclose(out.history["device_s"], devices, rtol=1e-5)
    assert len(set(sizes())) > 3 and len(set(speeds())) == 8  # or the test could not tell much


def test_a_round_waits_for_those_who_take_part_in_it():
    out = clocked(participants=4)
    rounds = [expected(clients=drawn(t, 4)) for t in range(ROUNDS)]
    np.testing.assert_allclose(out.history["clock_s"], reference.walk(rounds)[0], rtol=1e-5)


def test_stragglers_do_fewer_steps_and_nobody_waits_for_who_drops_out():
    out = clocked(more={"stragglers": 1.0, "straggler_work": 0.3})
    np.testing.assert_allclose(
        out.history["clock_s"], reference.walk([expected(work=0.3)] * ROUNDS)[0], rtol=1e-5
    )
    assert clocked(more={"dropout": 1.0}).history["clock_s"].tolist() == [0.0] * (ROUNDS + 1)


@pytest.mark.parametrize(("name", "sent", "options"), [
    rarely("ifca", {"down": 2}, {"clusters": 2}), rarely("local", {"down": 0, "up": 0}, {}), rarely("ditto", {"often": 2}, {}),
    ("fedem", {"down": 2, "up": 2, "often": 2}, {"clusters": 2}), rarely("scaffold", {"down": 2, "up": 2}, {}),
])  # fmt: skip
def test_what_a_method_sends_and_trains_takes_its_time(name, sent, options):
    out = clocked(name, **options)
    np.testing.assert_allclose(
        out.history["clock_s"], reference.walk([expected(**sent)] * ROUNDS)[0], rtol=1e-5
    )


def test_compressed_updates_arrive_sooner():
    out = clocked(settings={"clock": (vector()[0], 10.0)})
    each = {
        c: reference.seconds_of(reference.steps_of(n), speeds()[c], vector()[0], 10.0, NUMBERS)
        for c, n in enumerate(sizes())
    }
    np.testing.assert_allclose(
        out.history["clock_s"], reference.walk([each] * ROUNDS)[0], rtol=1e-5
    )


def test_what_is_sent_to_be_clustered_comes_before_the_first_round():
    out = clocked("one_shot", clusters=2, participants=3)
    rounds = [expected(clients=drawn(t, 3)) for t in range(ROUNDS)]
    first = reference.seconds_of(0, 1.0, *vector(), NUMBERS)
    np.testing.assert_allclose(
        out.history["clock_s"], reference.walk(rounds, before=[first, 0, 0])[0], rtol=1e-5
    )


def test_all_plans_show_the_same_time():
    work = {"epochs": 2, "batch": 4}
    one, blocks = clocked(work=work), clocked(work=work | {"stream": 3})
    assert one.history["clock_s"].tolist() == blocks.history["clock_s"].tolist()


def test_a_batch_of_runs_side_by_side_has_a_clock_each():
    each = [hyper(), hyper(step_ms=500.0), hyper(up_mbps=1.0)]
    alone = [
        play.batch("fedavg", federation(), ROUNDS, 4, [7], [h], settings={"clock": vector()})[0]
        for h in each
    ]
    settings = {"clock": vector(), "sequential": False}
    together = play.batch(
        "fedavg",
        federation(),
        ROUNDS,
        4,
        [7] * 3,
        each,
        work={"sequential": False},
        settings=settings,
    )
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_allclose(a.history["clock_s"], b.history["clock_s"], rtol=1e-6)
    assert len({float(out.history["clock_s"][-1]) for out in alone}) == 3


@pytest.mark.parametrize("name", ["ifca"])
def test_the_clock_changes_no_bit(name):
    plain = play.on_nine(name)[0]
    nine = dataclasses.replace(play.nine_clients(), devices=make_devices(9, 0, False, None))
    model = play.options(name).get("model")
    timed = play.on_nine(name, [hyper()], federation=nine, settings={"clock": vector(model)})[0]
    assert not the_same_but_for_the_clock(plain, timed)
    passed = timed.history["clock_s"]
    assert (
        passed[0] == 0
        and (np.diff(passed) > 0).all()
        and passed[-1] <= timed.history["device_s"][-1] * 1.00001
    )


def by_hand(late, rounds=ROUNDS, participants=8):
    """Models after rounds of FedAvg from which these clients (a set for each round) are left out,
    with their reports."""
    prepared = play.prepared("fedavg")
    numbers = {"lr": jnp.float32(0.1)}
    state, infos = prepared.init(keys.root(0), federation(), numbers, {}), []
    for t in range(rounds):
        key = keys.fold(keys.root(0), "round", t)
        there = draw(key, federation(), participants, jnp.int32(t), {})
        out = np.isin(np.asarray(there.ids), list(late[t]))
        state, info = prepared.round(
            key, state, federation(), there._replace(mask=there.mask & ~out), numbers
        )
        infos.append(info)
    return np.asarray(state.models), infos


@pytest.mark.parametrize(
    ("participants", "share"),
    [(4, 0.5), rarely(8, 0.2), rarely(4, 0.2), rarely(4, 0.9), rarely(8, 0.5), rarely(8, 0.9)],
)
def test_a_deadline_leaves_out_exactly_those_who_need_longer(share, participants):
    rounds = [expected(clients=drawn(t, participants)) for t in range(ROUNDS)]
    deadline = float(np.quantile(list(expected().values()), share))
    clock, devices, late = reference.walk(rounds, deadline)
    out = clocked(participants=participants, numbers={"deadline_s": deadline})
    np.testing.assert_allclose(out.history["clock_s"], clock, rtol=1e-5)
    np.testing.assert_allclose(out.history["device_s"], devices, rtol=1e-5)
    assert out.history["late"].tolist() == np.cumsum([0, *map(len, late)]).tolist() and any(late)
    np.testing.assert_allclose(out.models, by_hand(late, participants=participants)[0], atol=1e-6)
    on_time = [len(each) - len(slow) for each, slow in zip(rounds, late, strict=True)]
    assert out.history["bytes_up"].tolist() == np.cumsum([0, *on_time]).dot(vector()[1]).tolist()


def test_a_round_in_which_all_are_late_is_like_one_in_which_all_drop_out():
    out, dropped = clocked(numbers={"deadline_s": 0.01}), clocked(more={"dropout": 1.0})
    assert (
        out.models.tobytes() == dropped.models.tobytes()
        and np.isnan(out.history["train_loss"]).all()
    )
    np.testing.assert_allclose(out.history["clock_s"], [0, 0.01, 0.02, 0.03], rtol=1e-5)
    assert out.history["bytes_up"][-1] == 0 and out.history["late"].tolist() == [0, 8, 16, 24]
    different = the_same_but_for_the_clock(out, dropped)
    assert not different


def test_a_late_deadline_changes_nothing():
    assert not the_same_but_for_the_clock(clocked(), clocked(numbers={"deadline_s": 1e6}))


@pytest.mark.parametrize("name", [rarely("ifca"), "ocfl", rarely("fl_hc"), rarely("fedgroup")])
def test_all_kinds_of_draws_know_the_deadline(name):
    nine = dataclasses.replace(play.nine_clients(), devices=make_devices(9, 0, False, None))
    (out,) = play.on_nine(
        name, [hyper(deadline_s=0.01)], federation=nine, settings={"clock": vector()}
    )
    assert out.history["late"][-1] > 0 and np.isnan(out.history["train_loss"]).all()


def test_clusters_are_told_how_long_their_members_waited():
    out = clocked("ifca", clusters=2)
    waited = out.diag["waited_s"]
    everybody = expected(down=2)
    whole = [max(everybody.values()) * 8 - sum(everybody.values())] * ROUNDS
    np.testing.assert_allclose(waited.sum(axis=1), np.cumsum([0, *whole]), rtol=1e-4)
    slowest = max(everybody, key=everybody.get)
    mine = [c for c in range(8) if out.labels[-1][c] != out.labels[-1][slowest]]
    apart = waited[-1] - waited[-2]
    other = sum(max(everybody.values()) - everybody[c] for c in mine)
    np.testing.assert_allclose(apart[1 - out.labels[-1][slowest]], other, rtol=1e-4)


def test_a_run_goes_on_from_a_checkpoint_with_its_clock():
    kept = []
    on, numbers = federation(), [hyper(deadline_s=2.0)]
    again = functools.partial(
        play.batch, "fedavg", on, 5, 4, hypers=numbers, settings={"clock": vector()}, chunk_rounds=2
    )
    (whole,) = again(checkpoint=lambda make: kept.append(make()))
    (resumed,) = again(resume=kept[0])
    assert not list_unlike(whole, resumed) and kept[0].done == 2


def test_the_clock_keeps_its_precision():
    total = wall.Sum(jnp.float32(0), jnp.float32(0))
    more = jax.jit(
        lambda total: jax.lax.fori_loop(
            0, 100_000, lambda _, t: wall.add(t, jnp.float32(0.1)), total
        )
    )(total)
    exact = 100_000 * float(np.float32(0.1))
    assert (
        abs(float(more.high) + float(more.low) - exact) < 1e-3
    )  # float32 alone is off by about one


ROUND_TRACE = "client,round,available,speed\n0,0,0,1\n1,1,0,1\n1,2,1,0.5\n2,0,1,0.25\n"


def test_a_trace_by_rounds_says_who_is_there_and_how_fast(tmp_path):
    out = clocked(on=with_trace(tmp_path, ROUND_TRACE))
    rounds = []
    for t in range(ROUNDS):
        known = {c: reference.trace_at(ROUND_TRACE, c, t) for c in range(8)}
        each = {}
        for c in range(8):
            there, factor = known[c]
            if there:
                steps = reference.steps_of(sizes()[c])
                each[c] = reference.seconds_of(steps, speeds()[c] * factor, *vector(), NUMBERS)
        rounds.append(each)
    assert [len(each) for each in rounds] == [7, 6, 7]
    np.testing.assert_allclose(out.history["clock_s"], reference.walk(rounds)[0], rtol=1e-5)
    np.testing.assert_allclose(out.models, by_hand([{0}, {0, 1}, {0}])[0], atol=1e-6)


def test_nobody_is_drawn_who_is_away(tmp_path):
    gone = "client,round,available\n" + "".join(f"{c},0,0\n" for c in range(5))
    out = clocked(on=with_trace(tmp_path, gone), participants=3)
    assert (
        out.history["bytes_up"][-1] == 3 * ROUNDS * vector()[1]
    )  # the other three are there in each round


def test_a_trace_by_seconds_is_read_when_a_round_begins(tmp_path):
    first = max(expected().values())
    text = f"client,second,available\n0,{0.9 * first:.6f},0\n1,{1.1 * first:.6f},0\n"
    out = clocked(on=with_trace(tmp_path, text))
    rounds, now = [], 0.0
    for _ in range(ROUNDS):
        rounds.append({c: s for c, s in expected().items() if reference.trace_at(text, c, now)[0]})
        now = reference.walk(rounds)[0][-1]
    assert [set(range(8)) - set(each) for each in rounds] == [set(), {0}, {0, 1}]
    np.testing.assert_allclose(out.history["clock_s"], reference.walk(rounds)[0], rtol=1e-5)


def test_where_nobody_is_there_the_clock_goes_on_to_the_next_line(tmp_path):
    text = "client,second,available\n" + "".join(f"{c},0,0\n{c},40,1\n" for c in range(8))
    out = clocked(on=with_trace(tmp_path, text))
    assert out.history["clock_s"][1] == 40 and out.history["bytes_up"][1] == 0
    assert out.history["clock_s"][2] > 40 and out.history["bytes_up"][2] > 0


def test_where_all_who_are_there_drop_out_the_clock_waits_for_no_line(tmp_path):
    on = with_trace(tmp_path, "client,second,available\n0,0,0\n0,40,1\n")
    assert clocked(on=on, more={"dropout": 1.0}).history["clock_s"].tolist() == [0.0] * (ROUNDS + 1)


def timed(go):
    """The seconds of each client in a first round that `go` computes, f32[C]."""
    numbers = {name: jnp.float32(value) for name, value in hyper().items()}
    on = federation()
    devices = wall.devices_in_round(on.devices, numbers, jnp.float32(0), jnp.int32(0))
    kept = ClientState(devices=devices)
    return jax.jit(lambda kept: wall.run_metered(go, vector(), kept, numbers)[1].each)(kept)


def test_steps_in_a_loop_and_a_branch_of_the_methods_own_are_counted_by_its_report():
    solver, model = toy.solver(toy.model()), toy.model()
    start = jnp.zeros((1, model.size))

    def train(there, key):
        return solver.fit(key, federation(), toy_jobs(there, start), {"lr": jnp.float32(0.1)})

    def go(kept, times):
        there = cohort.draw(keys.root(0), federation(), 8, jnp.int32(0), {}, kept)
        each = jax.lax.map(
            lambda key: jax.lax.cond(
                kept.devices.speed[0] > 0,
                lambda: train(there, key),
                lambda: jax.tree.map(jnp.zeros_like, train(there, key)),
            ),
            keys.fold_each(keys.root(0), "x", jnp.arange(times)),
        )
        updates = jax.tree.map(lambda a: a[0], each)._replace(steps=each.steps.sum(axis=0))
        mixed = Aggregate(start, jnp.int32(0), ~there.mask)
        own = start[jnp.zeros_like(there.ids)]
        return start, report(federation(), there, updates, own, own, mixed, traffic(there))

    for times in (1, 2):
        each = timed(functools.partial(go, times=times))
        wanted = [expected(often=times)[c] for c in range(8)]
        np.testing.assert_allclose(each, wanted, rtol=1e-5)


def test_a_report_without_steps_is_refused():
    there = cohort.draw(keys.root(0), federation(), 8, jnp.int32(0), {})
    zero = jnp.float32(0)
    info = Info(traffic(there), zero, zero, zero, jnp.int32(0), jnp.array(False), {})
    with pytest.raises(SpecError, match="train.clock: the method does not report"):
        timed(lambda kept: (None, info))


def toy_jobs(there, start):
    from cfljax.local.rounds import jobs_from

    return jobs_from(there, start, jnp.zeros_like(there.ids))


def test_steps_are_counted_only_for_a_clock():
    assert play.rounds("fedavg", federation(), 1).infos[0].steps is None


def test_what_all_clients_send_before_the_first_round_is_not_its_participants_():
    _, _, method, init, _ = play.prepared("one_shot", clusters=2)
    on, numbers = federation(), {"lr": jnp.float32(0.1)}
    setup = method.setup(keys.root(0), on, numbers | {"participants": 3})
    state = init(keys.root(0), on, numbers, setup)

    @jax.jit
    def metered(key, state, on):
        there = cohort.draw(key, on, 3, jnp.int32(0), numbers)
        _, info = method.round(key, state, on, there, numbers)
        return info.traffic, *info.before

    sent, beside, senders = metered(keys.root(1), state, on)
    assert list(map(int, sent[:2])) == [8 + 3] * 2
    assert list(map(int, beside[:2])) == [8] * 2 and int(senders) == 8


def test_a_line_of_a_trace_begins_with_the_round_whose_sum_is_its_second(tmp_path):
    devices = with_trace(tmp_path, "client,second,available\n0,0.09,0\n1,0.0901,0\n").devices
    clock = wall.start_clock(1, hyper()).elapsed
    for _ in range(3):
        clock = wall.add(clock, jnp.float32(0.03))
    assert clock.high < np.float32(0.09)
    there = wall.devices_in_round(devices, hyper(), clock.high, jnp.int32(3)).there
    assert not there[0] and there[1]
