"""A private choice of the cluster (`train.privacy.choice`): its probabilities, what an attack
measures, the plain choice as its limit, its part of ε by hand, and who refuses it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom, binomtest

import cfljax
from cfljax import keys
from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.experiment import batching, privacy
from cfljax.experiment.privacy import Crowd, Draw
from cfljax.kernels.choose import clip_losses, private_choice
from cfljax.methods import METHODS
from cfljax.registry.options import list_traced
from cfljax.round.ask import Ask
from cfljax.types import Cohort
from tests import play, toy
from tests.often import rarely
from tests.reference import plain

BY_LOSS = ("ifca", "cfl_mgd", "joint")
DELTA, DRAWS = 1e-5, 200_000
CROWD = Crowd(20, ((0, 20),), True)
NET = plain.Net(6, 4)


def softmax(cost, epsilon, width):
    odds = np.exp(-epsilon * np.asarray(cost, np.float64) / (2 * width))
    return odds / odds.sum()


def frequencies(losses, epsilon, clip, may=None):
    """f64[K]: how often each cluster is chosen by one client with these losses."""
    may = np.ones(len(losses), bool) if may is None else np.array(may)
    found = choices(np.array(losses, np.float32), may, np.float32(epsilon), np.float32(clip))
    return np.bincount(np.asarray(found), minlength=len(losses)) / DRAWS


@jax.jit
def choices(losses, may, epsilon, clip):
    """i32[DRAWS]: what a client with these losses f32[K] chooses of the clusters that it may
    bool[K]."""
    costs = jnp.where(may, clip_losses(losses, clip), jnp.nan)[:, None]
    each = keys.fold_each(keys.root(3), "trial", jnp.arange(DRAWS))
    return jax.vmap(lambda key: private_choice(key, costs, jnp.array([7]), epsilon, clip)[0])(each)


def run_of(method, epsilon=1.0, rounds=10, drawn=20, noise=2.0, **choice):
    table = {"clip": 1.0, "noise": noise, "delta": DELTA, "choice": {"epsilon": epsilon, **choice}}
    data = {"name": "digits", "partition": "rotated", "groups": 2, "clients": 20}
    train = {"rounds": rounds, "participation": drawn, "privacy": table}
    (run,) = read_spec({"data": data, "method": [method], "train": train}).runs()
    return run


@pytest.mark.parametrize(
    ("losses", "cost"),
    [
        ([0.3, 1.0, 2.9], [0.3, 1.0, 2.9]),
        ([-1.0, 0.5, 7.0, 9.0], [0.0, 0.5, 3.0, 3.0]),
        ([np.nan, np.inf, 0.0], [3.0, 3.0, 0.0]),
    ],
)
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_clusters_are_chosen_as_often_as_the_softmax_of_clipped_losses_says(losses, cost, epsilon):
    wanted = softmax(cost, epsilon, 3.0)
    assert np.abs(frequencies(losses, epsilon, 3.0) - wanted).max() < 5 * math.sqrt(0.25 / DRAWS)
    assert np.ptp(wanted) > 0.05


def test_what_may_not_be_chosen_never_is():
    found = frequencies([0.0, 1.0, 2.0], 2.0, 3.0, [False, True, True])
    assert found[0] == 0 and np.abs(
        found[1:] - softmax([1.0, 2.0], 2.0, 3.0)
    ).max() < 5 * math.sqrt(0.25 / DRAWS)


@pytest.mark.parametrize("clusters", [rarely(2), 4, rarely(30)])
def test_no_attack_on_a_choice_measures_more_than_its_epsilon(clusters):
    epsilon, clip = 2.0, 5.0
    one, other = np.full(clusters, 100.0), np.zeros(clusters)
    one[0], other[0] = 0.0, 100.0
    exact = math.log(
        softmax(np.minimum(one, clip), epsilon, clip)[0]
        / softmax(np.minimum(other, clip), epsilon, clip)[0]
    )
    p, q = (round(frequencies(losses, epsilon, clip)[0] * DRAWS) for losses in (one, other))
    low, high = (
        binomtest(p, DRAWS).proportion_ci(0.999).low,
        binomtest(q, DRAWS).proportion_ci(0.999).high,
    )
    assert 0.9 * exact < math.log(low / high) <= exact <= epsilon and exact > epsilon / 2 - 1e-9


def test_choices_follow_identity_and_are_each_clients_and_each_rounds_own():
    federation = toy.federation("iid", clients=40)
    hyper = {"privacy.choice.epsilon": 1.0, "privacy.choice.clip": 5.0}
    ids, losses = np.arange(40, dtype=np.int32), np.zeros((4, 40), np.float32)

    @jax.jit
    def choose(key, cohort):
        ask = Ask(toy.solver(toy.model()), key, federation, cohort, hyper)
        return ask.least(losses, lambda hyper: hyper["privacy.choice.clip"])

    def of(order, seed=0):
        cohort = Cohort(ids[order], np.ones(40, bool), np.ones(40, np.float32), np.int32(0))
        return np.asarray(choose(keys.root(seed), cohort))

    turned = np.random.default_rng(0).permutation(40)
    assert (of(turned) == of(np.arange(40))[turned]).all()
    assert (
        len(set(of(np.arange(40)))) == 4
        and 5 < (of(np.arange(40)) == of(np.arange(40), 1)).sum() < 20
    )


@pytest.mark.parametrize("name", ["ifca", rarely("cfl_mgd"), rarely("joint")])
def test_clients_of_a_round_choose_by_these_probabilities(name):
    """All clients have the same samples, so that their choices are draws from one distribution."""
    made = toy.identical(toy.federation("iid", clients=80))
    epsilon, clip, lam = 30.0, 4.0, 0.3 if name == "joint" else 0.0
    hyper = {
        "privacy.clip": 1e9,
        "privacy.choice.epsilon": epsilon,
        "privacy.choice.clip": clip,
    } | ({"lam": lam} if lam else {})
    options = {"clusters": 2} | ({"batch": 1000, "reseed": "never"} if name == "joint" else {})
    config, _, method, init, step = play.prepared(name, **options)
    numbers = {k: np.float32(v) for k, v in ({"lr": 0.1} | list_traced(config) | hyper).items()}
    start, everybody = (
        init(keys.root(2), made, numbers, {}),
        play.drawn(keys.root(0), made, 80, 0, numbers),
    )
    models = np.asarray(method.models(start)[0])
    after = [step(keys.root(seed), start, made, everybody, numbers)[0] for seed in range(10)]
    labels = np.concatenate([np.asarray(method.models(state)[1]) for state in after])
    losses = np.array(
        [NET.loss(w, *plain.Clients(made).train[0]) for w in models.astype(np.float64)]
    )
    wanted = softmax((1 - lam) * np.minimum(losses, clip), epsilon, 2 * lam + (1 - lam) * clip)
    assert 0.1 < wanted[0] < 0.9 and abs(wanted[0] - 0.5) > 0.1
    assert binomtest(int((labels == 0).sum()), len(labels), wanted[0]).pvalue > 1e-3


@pytest.mark.parametrize("name", ["ifca", rarely("cfl_mgd"), rarely("joint")])
def test_a_large_epsilon_is_the_plain_choice(name):
    clip = {"privacy.clip": 1e9}
    plain, private = (
        play.rounds(name, play.nine_clients(), 3, 5, 7, hyper=clip | more, clusters=3)
        for more in ({}, {"privacy.choice.epsilon": 1e9, "privacy.choice.clip": 50.0})
    )
    assert (plain.labels() == private.labels()).all() and len(set(plain.labels()) - {-1}) > 1
    np.testing.assert_allclose(plain.models(), private.models(), atol=1e-6)
    little = clip | {"privacy.choice.epsilon": 1e-6, "privacy.choice.clip": 1.0}
    small = play.rounds(name, play.nine_clients(), 3, 5, 7, hyper=little, clusters=3)
    assert (small.labels() != plain.labels()).any()


def test_on_gram_matrices_choices_are_the_same():
    hyper = {"privacy.clip": 1e9, "privacy.choice.epsilon": 5.0, "privacy.choice.clip": 5.0}
    work = [{"gram": gram} for gram in (0, 512)]
    one, other = (
        play.rounds("ifca", play.nine_clients(), 3, 5, hyper=hyper, work=each, clusters=3)
        for each in work
    )
    assert (one.labels() == other.labels()).all()
    np.testing.assert_allclose(one.models(), other.models(), atol=1e-5)


def gaussian(apart, epsilon):
    """δ of a Gaussian mechanism, by its privacy loss, which is normal with mean apart² / 2 and
    deviation `apart`: the mean of (1 − e^(ε − loss))₊, summed up."""
    loss = apart**2 / 2 + apart * np.linspace(-12, 12, 400_001)
    density = np.exp(-(np.linspace(-12, 12, 400_001) ** 2) / 2) / math.sqrt(2 * math.pi)
    return float(np.sum(-np.expm1(np.minimum(epsilon - loss, 0.0)) * density) * 24 / 400_000)


def concentrated(rho, epsilon):
    def log_delta(log_above):
        alpha = 1 + math.exp(log_above)
        return (
            (alpha - 1) * (alpha * rho - epsilon)
            - math.log(alpha - 1)
            + alpha * math.log(1 - 1 / alpha)
        )

    return math.exp(minimize_scalar(log_delta, bounds=(-6, 12), method="bounded").fun)


def by_hand(noise, choice, rounds, clients, drawn):
    """ε of one sum and one choice a round, from what a client sees that is drawn x times: the mean
    over x of the smaller δ."""
    odds = [binom.pmf(x, rounds, drawn / clients) for x in range(rounds + 1)]

    def delta(epsilon):
        total = 0.0
        for x, chance in enumerate(odds):
            if x and chance:
                apart = 2 * math.sqrt(x) / noise
                total += chance * min(
                    gaussian(apart, epsilon - x * choice),
                    concentrated(apart**2 / 2 + x * choice**2 / 8, epsilon),
                )
        return total

    return brentq(lambda epsilon: delta(epsilon) - DELTA, 0.0, 1000.0, xtol=1e-6)


@pytest.mark.parametrize(
    ("rounds", "drawn", "choice"), [(1, 20, 1.0), (3, 5, 0.7), (4, 20, 3.0), (40, 20, 1.0)]
)
def test_the_account_is_what_a_hand_computes(rounds, drawn, choice):
    found = privacy.epsilon(run_of({"name": "ifca", "clusters": 2}, choice, rounds, drawn), CROWD)
    assert found == pytest.approx(by_hand(2.0, choice, rounds, 20, drawn), abs=1e-3)
    without = privacy.compute_epsilon(2.0, DELTA, (Draw(20, drawn, rounds),))
    assert without < found <= without + rounds * choice + 1e-9
    if rounds == 1:
        assert found == pytest.approx(without + choice, abs=1e-9)


def test_choices_alone():
    def alone(*of):
        return privacy.epsilon_of_choices(run_of({"name": "ifca", "clusters": 2}, *of), CROWD)

    assert alone(1.0, 3) == pytest.approx(3.0, abs=2e-5)  # three rounds of everybody
    assert alone(1.0, 200) == pytest.approx(
        brentq(lambda e: concentrated(200 / 8, e) - DELTA, 0, 200), abs=1e-3
    )
    assert alone(1.0, 3, 5) < alone(1.0, 3) < alone(1.0, 4)
    assert alone(1.0, 3, 20, 0.0) == alone(1.0, 3) and math.isinf(
        privacy.epsilon(run_of("ifca", 1.0, 3, 20, 0.0), CROWD)
    )


def test_two_sums_a_round_do_not_make_two_choices():
    one, two = (
        privacy.epsilon(run_of({"name": name, "clusters": 2}, 5.0, 2), CROWD)
        for name in ("ifca", "cfl_mgd")
    )
    plain = [privacy.compute_epsilon(2.0, DELTA, (Draw(20, 20, 2),), sums) for sums in (1, 2)]
    assert one == pytest.approx(plain[0] + 10, abs=1e-6) and two == pytest.approx(
        plain[1] + 10, abs=1e-6
    )


def test_with_error_feedback_no_draw_is_hidden():
    for way, hidden in (("sign", True), ({"name": "sign", "feedback": True}, False)):
        train = {
            "rounds": 5,
            "participation": 2,
            "compress": way,
            "privacy": {"clip": 1.0, "noise": 2.0},
        }
        (run,) = read_spec(
            {"data": "digits", "method": {"name": "fedavg", "average": "uniform"}, "train": train}
        ).runs()
        assert privacy.hides_draw(run, True) == hidden


@pytest.mark.parametrize("name", [name for name in METHODS if name not in BY_LOSS])
def test_methods_that_do_not_choose_by_loss_refuse_it_in_one_line(name):
    with pytest.raises(
        SpecError,
        match=f"train.privacy.choice with method.{name}: its clients do not choose a cluster by "
        "loss",
    ) as error:
        run_of(name, noise=0.0)
    # What else a method refuses of these options is told in lines of their own.
    told = [line for line in str(error.value).splitlines() if "privacy.choice" in line]
    assert len(told) == 1


@pytest.mark.parametrize(
    ("method", "choice", "words"),
    [
        (
            {"name": "joint", "similarity": "euclidean"},
            {"epsilon": 1.0},
            'joint: with similarity = "euclidean" costs',
        ),
        ("ifca", {}, "train.privacy.choice.epsilon: missing"),
        ("ifca", {"epsilon": 0.0}, "train.privacy.choice.epsilon = 0.0: must be greater than 0"),
        (
            "ifca",
            {"epsilon": 1.0, "clip": -1.0},
            "train.privacy.choice.clip = -1.0: must be greater than 0",
        ),
        (
            "ifca",
            {"epsilon": 1.0, "delta": 1.0},
            "train.privacy.choice.delta: there is no such option",
        ),
    ],
)
def test_mistakes_are_one_line(method, choice, words):
    with pytest.raises(SpecError) as error:
        read_spec(
            {
                "data": "digits",
                "method": method,
                "train": {"privacy": {"clip": 1.0, "choice": choice}},
            }
        ).runs()
    assert words in str(error.value) and "\n" not in str(error.value)


def test_ids_and_programs():
    def of(table):
        return read_spec({"data": "digits", "method": "ifca", "train": {"privacy": table}}).runs()

    (plain,), made = (
        of({"clip": 1.0}),
        of({"clip": 1.0, "choice": [{"epsilon": 1.0}, {"epsilon": 2.0, "clip": 3.0}]}),
    )
    assert len({run.id for run in (plain, *made)}) == 3
    assert (
        batching.static_key(made[0]) == batching.static_key(made[1]) != batching.static_key(plain)
    )
    assert (
        batching.list_hyper(made[1])["privacy.choice.clip"] == 3.0
        and batching.list_hyper(made[0])["privacy.choice.clip"] == 5.0
    )
    (again,) = read_spec(made[1].resolved()).runs()
    assert again == made[1] and again.id == made[1].id


def test_a_run_says_what_its_choices_cost():
    data = {"name": "digits", "partition": "rotated", "groups": 2, "clients": 8}
    train = {"rounds": 2, "lr": 0.1, "privacy": {"clip": 1.0, "choice": {"epsilon": 2.0}}}
    result = cfljax.run({"name": "ifca", "clusters": 2}, data, "mclr", train=train)
    assert (
        result.summary["epsilon_choice"] == pytest.approx(4.0, abs=1e-4)
        and "epsilon" not in result.summary
    )
