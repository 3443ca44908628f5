"""ε: of the participants that are drawn, and no less than what an attack measures on the sums that
are released."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest

from cfljax import keys
from cfljax.config import read_spec
from cfljax.experiment import assemble, privacy
from cfljax.experiment.privacy import Draw, compute_epsilon
from cfljax.federation import cohort
from cfljax.kernels.mix import mix_updates, weights_by
from cfljax.local.aggregation import server_rule
from cfljax.methods import METHODS
from tests import play, toy
from tests.kernels.compiled import mix_models
from tests.methods import golden
from tests.often import rarely

CLIENTS, DRAWN, NOISE, DELTA = 20, 2, 2.0, 1e-3
TRIALS = 200_000
ROTATED = {"name": "digits", "partition": "rotated", "groups": 2, "clients": 20}


def run_of(method, rounds=1, drawn=DRAWN, data=ROTATED, model="mclr", **train):
    train |= {
        "rounds": rounds,
        "participation": drawn,
        "privacy": {"clip": 1.0, "noise": NOISE, "delta": DELTA},
    }
    (run,) = read_spec({"data": data, "model": model, "method": [method], "train": train}).runs()
    return run


def crowd(clients=CLIENTS, alike=True):
    return privacy.Crowd(clients, ((0, clients),), alike)


@pytest.fixture(autouse=True)
def _accountant():
    pytest.importorskip("dp_accounting")


@pytest.mark.parametrize(("sums", "everybody"), [(1, 0), (2, 0), (1, 3)])
def test_a_hidden_draw_of_everybody_costs_what_a_known_one_does(sums, everybody):
    """To the tenth by which the bound of the accountant is above the exact ε of Gaussian
    mechanisms."""
    for noise in (2.0, 8.0):
        draws = (Draw(10, 10, 5),)
        known, hidden = (
            f(noise, 1e-5, draws, sums, everybody)
            for f in (privacy._compute_known, privacy._compute_hidden)
        )
        assert known <= hidden < 1.1 * known


@pytest.mark.parametrize(("data", "train"), [
    (ROTATED | {"test_clients": 10}, {"drawn": 0.2}), (ROTATED | {"arrive": {"clients": 15, "round": 3}}, {"drawn": 0.2}),
    (ROTATED | {"arrive": {"rate": 0.5, "from": 1, "until": 4}}, {"drawn": 0.6}),
    (ROTATED | {"arrive": {"rate": 1.0, "from": 2, "until": 4}, "test_clients": 4}, {"drawn": 3}),
])  # fmt: skip
def test_draws_are_those_of_the_rounds(data, train):
    run = run_of("fedavg", rounds=6, data=data, **train)
    federation = assemble.host_federation(run)
    places = run.train.slots(int(federation.trains.sum()), federation.clients)
    draws = privacy.list_draws(run, privacy.find_crowd(federation), 6)
    told = [(d.clients, d.participants) for d in draws for _ in range(d.rounds)]
    true = []
    for t in range(6):
        took_part = play.drawn(keys.root(t), federation, places, t, {}).mask
        true.append(
            (int(np.sum(federation.trains & (federation.arrive <= t))), int(took_part.sum()))
        )
    assert told == [each for each in true if each[0]]


BEYOND = {
    "updates": ["ocfl", "sr_fca", "cfl_gp", "ocfl_zuziak", "fedgroup", "fesem", "fesem_flexcfl", "cfl_sattler", "fl_hc", "one_shot", "fedclust", "stocfl"],
    "class counts": ["ccs_rfedavg"], "by loss": ["ifca", "joint", "cfl_mgd", "feddrift"], "losses": ["fedgwc"], "features": ["flux"],
    "singular vectors": ["pacfl"], "shares": ["fedsoft"], "sum of q": ["fedrc"],
}  # fmt: skip
"""What ε does not include, and of which methods: those that follow clients' data in another way than by noised sums."""


def warnings_of(name, **privacy):
    more = {"start": "centres"} if name == "fedsoft" else {}
    train = {"rounds": 11, "privacy": {"clip": 1.0} | privacy}
    table = {"data": ROTATED, "model": "mlp", "method": {"name": name} | more, "train": train}
    return read_spec(table).warnings


@pytest.mark.parametrize("what", list(BEYOND))
def test_a_line_says_what_epsilon_does_not_include(what):
    for name in BEYOND[what]:
        (line,) = warnings_of(name, noise=NOISE)
        assert line.startswith(f"train.privacy.noise with method.{name}: ") and what in line
        assert warnings_of(name) == ()  # no ε
        choice = METHODS.check(name, {}, name).chooses_by_loss
        assert choice == ("train.privacy.choice" in line)
        assert not choice or warnings_of(name, noise=NOISE, choice={"epsilon": 1.0}) == ()


def test_no_line_is_said_of_methods_that_publish_noised_sums_alone():
    others = set(METHODS) - set(sum(BEYOND.values(), []))
    taken = [
        name
        for name in sorted(others)
        if not {"privacy", "privacy.noise"} & METHODS.check(name, {}, name).without.keys()
    ]
    assert len(taken) > 20 and [name for name in taken if warnings_of(name, noise=NOISE)] == []


def test_epsilon_counts_the_clients_that_have_arrived():
    late = privacy.Crowd(100, ((0, 20), (50, 100)), True)
    run = run_of("fedavg", rounds=10, drawn=0.2)
    everybody = compute_epsilon(NOISE, DELTA, (Draw(20, 20, 10),))
    assert privacy.epsilon(run, late) == everybody > 1.5 * privacy.epsilon(run, crowd(100))
    assert privacy.epsilon(run_of("fedavg", rounds=60, drawn=0.2), late) == compute_epsilon(
        NOISE, DELTA, (Draw(20, 20, 50), Draw(100, 20, 10)), hidden=True
    )
    # The sums over participants are those of the last rounds
    warm = run_of({"name": "fl_hc", "warmup_rounds": 6}, rounds=10, drawn=0.2)
    nobody_yet = privacy.Crowd(20, ((5, 20),), True)
    assert privacy.epsilon(warm, nobody_yet) == compute_epsilon(
        NOISE, DELTA, (Draw(20, 4, 4),), everybody=6
    )
    nobody = privacy.Crowd(0, (), True)
    assert privacy.epsilon(run, nobody) == 0.0 and privacy.list_draws(run, nobody, 10) == ()


def test_the_sums_of_a_round_are_over_the_same_draw_after_a_warm_up(monkeypatch):
    warm = run_of({"name": "fl_hc", "warmup_rounds": 6}, rounds=10)
    monkeypatch.setattr(type(warm.options.local), "sums", 2)
    assert warm.options.releases(10) == (8, 12)
    assert privacy.epsilon(warm, crowd()) == compute_epsilon(
        NOISE, DELTA, (Draw(CLIENTS, DRAWN, 4),), sums=2, everybody=12
    )


@functools.cache
def released(sign, clusters, average, big):
    """f32[TRIALS]: the model of client 0's cluster after a round, if its update is so often the
    clip and all others' are 0. `big`: it has most of the samples."""
    federation = toy.federation("iid", clients=CLIENTS)
    count = jnp.where((jnp.arange(CLIENTS) == 0) & big, 1000, 1).astype(jnp.int32)
    federation = toy.replace(federation, train=toy.replace(federation.train, count=count))
    member = jnp.where(jnp.arange(CLIENTS) == 0, 0, clusters - 1)
    hyper = {"privacy.clip": 1.0, "privacy.noise": NOISE}

    def once(key, sign):
        drawn = cohort.draw(key, federation, DRAWN, jnp.int32(0), {})
        mix = weights_by(member[drawn.ids], drawn.mask, count[drawn.ids], clusters, average)
        rows = jnp.where(drawn.ids == 0, sign, 0.0)[:, None]
        return mix_updates(mix, rows, jnp.zeros((clusters, 1)), server_rule("", key, hyper)).new[
            0, 0
        ]

    each = keys.fold_each(keys.root(7 + int(sign)), "trial", jnp.arange(TRIALS))
    return np.asarray(jax.jit(jax.vmap(once, in_axes=(0, None)))(each, sign))


def measured(*setting):
    """A lower bound of ε at DELTA: by thresholds on what is released, its probabilities within 99.9
    % intervals (Clopper and Pearson)."""
    one, other = released(1.0, *setting), released(-1.0, *setting)
    found = 0.0
    for threshold in (0.5, 1.0, 2.0, 3.0, 4.0, 4.5):
        p, q = ((values > threshold).sum() for values in (one, other))
        low = binomtest(int(p), TRIALS).proportion_ci(0.999, "exact").low
        high = binomtest(int(q), TRIALS).proportion_ci(0.999, "exact").high
        found = max(found, math.log((low - DELTA) / high) if low > DELTA else 0.0)
    return found


@pytest.mark.parametrize(
    ("method", "setting", "alike", "hides"),
    [
        ({"name": "ifca", "clusters": 2}, (2, "uniform", False), True, False),
        rarely("oracle", (2, "samples", False), True, False),
        rarely("fedavg", (1, "samples", True), False, False),
        rarely({"name": "fedavg", "average": "uniform"}, (1, "uniform", True), False, True),
        ("fedavg", (1, "samples", False), True, True),
    ],
)
def test_no_attack_measures_more_than_epsilon_says(method, setting, alike, hides):
    run, found = run_of(method), measured(*setting)
    assert privacy.hides_draw(run, alike) == hides
    assert found <= privacy.epsilon(run, crowd(alike=alike))
    credited = compute_epsilon(NOISE, DELTA, (Draw(CLIENTS, DRAWN, 1),), hidden=True)
    assert (found <= credited) == hides  # a draw that does not stay hidden must not be credited


def test_a_known_draw_is_the_mean_over_how_often_a_client_is_in_it():
    for noise, one, wanted in ((4.0, Draw(100, 1, 1), 1.352), (2.0, Draw(10_000, 100, 100), 8.615)):
        assert compute_epsilon(noise, 1e-5, (one,)) == pytest.approx(wanted, abs=1e-3)
    split = (Draw(50, 5, 30), Draw(50, 5, 70))
    assert compute_epsilon(1.0, 1e-5, split) == pytest.approx(
        compute_epsilon(1.0, 1e-5, (Draw(50, 5, 100),)), abs=1e-6
    )
    many = tuple(Draw(50 + n, 5, 1) for n in range(300))
    found = [compute_epsilon(1.0, 1e-5, draws) for draws in (many[150:], many, (Draw(50, 5, 300),))]
    assert found[0] < found[1] < found[2]
    assert compute_epsilon(1.0, 1e-5, (Draw(50, 5, 10),), sums=2) > compute_epsilon(
        1.0, 1e-5, (Draw(50, 5, 20),)
    )
    assert compute_epsilon(1e9, 1e-5, (Draw(50, 5, 10),)) == 0.0 and math.isinf(
        compute_epsilon(0.0, 1e-5, (Draw(50, 5, 1),))
    )


def test_what_is_built_on_fedavg_is_not_taken_for_it():
    for method, hides in (
        ("fedprox", True),
        ("ditto", True),
        ("cfl_sattler", False),
        ("pacfl", False),
    ):
        drawn = 1.0 if method == "cfl_sattler" else 0.5
        assert privacy.hides_draw(run_of(method, rounds=40, drawn=drawn), True) == hides


@functools.cache
def remembers(method):
    """Whether what stays with the clients changes what becomes of the global model in a round."""
    federation = play.nine_clients()
    before = play.rounds(method, federation, 1, **play.options(method)).states[-1]
    at_home = lambda leaf: leaf.dtype == jnp.float32 and leaf.shape[0] == federation.clients  # noqa: E731
    other = jax.tree.map(lambda leaf: leaf + 0.1 if at_home(leaf) else leaf, before)
    after = [
        play.rounds(method, federation, 1, state=each, **play.options(method)).states[-1]
        for each in (before, other)
    ]
    pairs = zip(*map(jax.tree.leaves, after), strict=True)
    return not all(np.array_equal(a, b) for a, b in pairs if a.shape[0] == 1)


@pytest.mark.parametrize(
    "method",
    [
        "fedavg",
        "feddyn",
        *map(rarely, ("fedprox", "ditto", "apfl", "pfedme", "per_fedavg", "fedbcd")),
    ],
)
def test_no_draw_is_hidden_where_a_client_sends_what_depends_on_earlier_draws(method):
    assert privacy.hides_draw(run_of({"name": method}, rounds=40, drawn=0.5), True) == (
        not remembers(method)
    )


def test_no_draw_is_hidden_where_a_part_of_the_model_stays_with_the_client():
    model = {"name": "mlp", "hidden": [4]}

    def hides(kind):
        return privacy.hides_draw(run_of("fedavg", model=model, parts={"head": kind}), True)

    assert hides("all") and not hides("client")


@pytest.mark.parametrize("mixed", [mix_updates, mix_models])
def test_a_cluster_whose_updates_are_all_broken_gets_noise_too(mixed):
    made = server_rule("", keys.root(0), {"privacy.clip": 1.0, "privacy.noise": NOISE})
    mix, rows, old = (
        jnp.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]),
        jnp.full((3, 4), jnp.nan).at[2].set(1.0),
        jnp.ones((2, 4)),
    )
    found = mixed(mix, rows, old, made)
    assert (
        np.isfinite(found.new).all()
        and (np.asarray(found.new)[0] != 1).all()
        and found.lost.tolist() == [True, False]
    )
    assert (np.asarray(mixed(mix, rows, old).new)[0] == 1).all()


def test_fedbcd_s_noise_is_that_of_the_sum_of_all_personal_models():
    """So its mean over more clients, when some arrive, tells no more about those that were
    there."""
    federation = toy.replace(
        toy.federation("iid", clients=4), arrive=jnp.array([0, 1, 0, 1], jnp.int32)
    )
    hyper = {"privacy.clip": 1.0, "privacy.noise": NOISE}
    first, *later = play.rounds("fedbcd", federation, 2, 4, hyper=hyper, local_lr=0.0).states
    noise = 0.0
    for t, (state, clients) in enumerate(zip(later, (2, 4), strict=True)):
        added = server_rule("", keys.fold(keys.root(0), "round", t), hyper)
        noise = noise + added.noise * jax.random.normal(added.key, first.z.shape)
        np.testing.assert_allclose(state.z, first.z + noise / clients, rtol=1e-4, atol=1e-5)


def test_a_deadline_tells_who_sends():
    """With it few clients are in time, always the same, and a hidden draw from all of them must not
    be credited."""
    found = []
    for more in ({}, {"clock": {"step_ms": 1.0}}, {"clock": {"step_ms": 1.0, "deadline_s": 9.0}}):
        run = run_of("fedavg", rounds=40, **more)
        assert privacy.hides_draw(run, True) == ("deadline_s" not in more.get("clock", {}))
        found.append(privacy.epsilon(run, crowd()))
    assert found[0] == found[1] < found[2]


SENDS_MORE = {
    "cfl_gp": "clusters clients by updates after each round, of which a line says that ε does not "
    "include them",
    "fedsoft": "adds one model to the sums of all clusters that have drawn its client",
}


def test_epsilon_counts_a_noised_sum_for_each_vector_that_is_billed():
    """By the bills on record: the vectors that a participant sends in the last round. Of a model
    that travels in part a vector is shorter."""
    counted, billed = {}, {}
    for name in METHODS:
        options = {k: v for k, v in play.options(name).items() if k != "model"}
        config = METHODS.check(name, options, f"method.{name}")
        refused = {"privacy", "privacy.noise"} & set(config.without)
        if refused or config.parts or not config.sends or name in SENDS_MORE:
            continue
        numbers = golden.read_record()[name][1]
        participants = 9 if name in play.EVERYBODY else 5
        size = 4 * numbers["models"].shape[-1] * participants
        up = numbers["bytes"][0]
        over_participants, over_all = config.releases(play.ROUNDS)
        counted[name] = math.ceil(over_participants / play.ROUNDS) or over_all // play.ROUNDS
        billed[name] = int(up[-1] - up[-2]) // size
    assert len(counted) > 25 and {1, 2} == set(counted.values())
    assert counted == billed
