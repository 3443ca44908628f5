"""FedEM, FedRC and FedSoft against plain numpy programs, their identities and limits."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax.config import Train
from cfljax.errors import SpecError
from cfljax.kernels.choose import select_by_weight
from cfljax.methods import METHODS
from cfljax.methods.fedrc import label_weights
from cfljax.round.soft import NEWCOMER_STEPS, Mixed, Soft, method_of
from tests import play, toy
from tests.often import rarely
from tests.reference import fedem, fedrc, fedsoft, plain

SEED, ROUNDS, PARTICIPANTS = 2, 4, 5
WORK = {"epochs": 2, "batch": 5}


@functools.cache
def federation():
    return toy.federation("label_permutation", clients=8, groups=2)


def run(name, federation_=None, rounds=ROUNDS, work=None, model=None, **options):
    return play.rounds(
        name,
        federation_ or federation(),
        rounds,
        PARTICIPANTS,
        SEED,
        work=WORK | (work or {}),
        model=model,
        **options,
    )


@pytest.mark.parametrize(
    ("average", "hidden"),
    [("samples", 7), *map(rarely, ("uniform", "samples", "uniform"), (None, None, 7))],
)
def test_fedem_follows_the_plain_program(hidden, average):
    made = toy.federation(clients=8)
    out = run("fedem", made, model=toy.model(hidden), clusters=3, average=average)
    clients = plain.Clients(made)
    if average == "uniform":
        clients.size = np.ones(8)
    net = plain.Net(6, 4, hidden)
    models, mixture = fedem.fedem(
        net, clients, out.states[0].models, SEED, ROUNDS, PARTICIPANTS, 0.1, **WORK
    )
    assert np.abs(out.models() - models).max() < 1e-5
    assert np.abs(out.states[-1].mixture - mixture).max() < 1e-5
    assert np.ptp(mixture, axis=0).max() > 0.05


def test_who_was_not_drawn_has_the_mixture_of_its_own_samples():
    out = run("fedem", rounds=1, clusters=3)
    state, clients, net = out.states[-1], plain.Clients(federation()), plain.Net(6, 4)
    found = np.asarray(out.method.mixture(state, federation(), {}))
    drawn = np.isin(np.arange(8), plain.cohort(SEED, 0, clients.uid, PARTICIPANTS))
    assert np.array_equal(found[drawn], np.asarray(state.mixture)[drawn])
    for c in np.flatnonzero(~drawn):
        pi = np.full(3, 1 / 3)
        for _ in range(NEWCOMER_STEPS):
            losses = np.array(
                [net.losses(w, *clients.train[c]) for w in out.models().astype(np.float64)]
            )
            pi = fedem.softmax(np.log(pi)[:, None] - losses).mean(axis=1)
        assert np.abs(found[c] - pi).max() < 1e-5 and np.ptp(pi) > 0.01
    assert np.array_equal(
        out.labels(), np.where(drawn, np.asarray(state.mixture).argmax(axis=1), -1)
    )
    assert np.array_equal(out.method.score(state, federation(), {}), found.argmax(axis=1))


@dataclasses.dataclass(frozen=True)
class OnceNotANumber(Soft):
    """Shares of which those of the first model are no numbers."""

    def share(self, log_mixture, losses, axis):
        return jnp.ones_like(losses).at[0].set(jnp.nan)


def test_a_mixture_with_a_share_that_is_no_number_is_not_taken():
    solver = toy.solver(toy.model(), **WORK)
    method = method_of("own", OnceNotANumber(), solver.model, solver)
    models = jnp.zeros((3, solver.model.size))
    state = Mixed(models, jnp.full((8, 3), 1 / 3), jnp.zeros(8, bool))
    assert np.array_equal(method.mixture(state, federation(), {}), state.mixture)


@pytest.mark.parametrize("made", ["label_permutation", rarely("dirichlet")])
def test_fedrc_follows_the_plain_program(made):
    made = toy.federation(
        made, clients=8, **({"groups": 2} if made == "label_permutation" else {"alpha": 0.5})
    )
    out, net = run("fedrc", made, clusters=3), plain.Net(6, 4)
    start, clients = out.states[0].models, plain.Clients(made)
    models, mixture, sums = fedrc.fedrc(
        net, clients, start, 4, SEED, ROUNDS, PARTICIPANTS, 0.1, **WORK
    )
    state = out.states[-1]
    assert np.abs(out.models() - models).max() < 1e-5
    assert np.abs(state.mixture - mixture).max() < 1e-5
    assert np.abs(state.memory - sums).max() < 1e-4
    em = fedem.fedem(net, clients, start, SEED, ROUNDS, PARTICIPANTS, 0.1, **WORK)
    assert np.abs(mixture - em[1]).max() > 0.01  # the division matters
    weights = fedrc.weights_of_labels(sums)
    found = np.asarray(out.method.mixture(state, made, {}))
    for c in np.flatnonzero(~np.asarray(state.drawn)):
        pi = np.full(3, 1 / 3)
        for _ in range(10):
            pi = fedrc.shares(net, models, pi, weights, *clients.train[c]).mean(axis=1)
        assert np.abs(found[c] - pi).max() < 1e-5


def test_the_first_round_of_fedrc_is_that_of_fedem():
    """All labels weigh the same at first."""
    rc, em = (run(name, clusters=3, rounds=1) for name in ("fedrc", "fedem"))
    assert np.allclose(rc.models(), em.models(), atol=1e-6)
    assert [int(n) for n in rc.infos[0].traffic] == [15, 15, 5 * 12, 5 * 12]


def test_labels_that_nobody_has_had_weigh_the_same_everywhere():
    weights = jax.jit(label_weights)(np.array([[3, 1, 0], [0, 2, 0]], np.float32))
    assert np.allclose(weights, [[0.75, 0.25, 1 / 3], [1e-6, 1.0, 1 / 3]])


SOFT = {"tau": 2, "start": "own", "lam": 0.5, "selected": 0.4, "floor": 1e-3}
SOFT_CASES = {
    "defaults": {}, "most participants": {"selected": 0.8, "tau": 3}, "from the middle": {"start": "centres", "tau": 1, "lam": 0.1},
    "few, from the middle": {"start": "centres", "selected": 0.4, "floor": 0.2, "lam": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("case", [next(iter(SOFT_CASES)), *map(rarely, list(SOFT_CASES)[1:])])
def test_fedsoft_follows_the_plain_program(case):
    options, net, clients = SOFT | SOFT_CASES[case], plain.Net(6, 4), plain.Clients(federation())
    out = run("fedsoft", clusters=3, **options)
    first, last = out.states[0], out.states[-1]
    wanted = fedsoft.fedsoft(
        net,
        clients,
        first.centres,
        first.personal,
        SEED,
        ROUNDS,
        PARTICIPANTS,
        0.1,
        WORK["batch"],
        WORK["epochs"],
        **options,
    )
    centres, personal, u, trained = wanted
    assert np.abs(last.centres - centres).max() < 1e-5 and np.abs(last.shares - u).max() < 1e-5
    assert np.abs(last.personal - personal).max() < 1e-5
    assert set(np.flatnonzero(last.trained).tolist()) == trained
    own = np.array([personal[c] if c in trained else centres[u[c].argmax()] for c in range(8)])
    assert np.abs(out.models() - own).max() < 1e-5 and out.labels().tolist() == list(range(8))
    models, of = out.method.also(last)["cluster"]
    assert np.array_equal(models, last.centres) and np.array_equal(of, u.argmax(axis=1))
    assert np.ptp(u, axis=0).max() > 0.2


def test_fedsoft_counts_estimates_and_drawn_participants():
    made = toy.replace(federation(), arrive=jnp.array([0, 0, 0, 0, 0, 0, 1, 9], jnp.int32))
    out = run("fedsoft", made, rounds=4, clusters=3, **SOFT | {"selected": 1.0, "tau": 3})
    sent = [
        [3 * 5 + 3 * asked, 5, 0, 3 * asked] for asked in (6, 1, 0, 7)
    ]  # estimates are made in every third round
    assert [[int(n) for n in info.traffic] for info in out.infos] == sent
    fewer = run("fedsoft", rounds=1, clusters=3, **SOFT | {"selected": 0.2})
    assert int(fewer.infos[0].traffic.vectors_up) in (1, 2, 3)  # one of five for each cluster
    mine = np.asarray(out.method.models(out.states[-1])[0])[7]
    assert np.array_equal(mine, out.states[-1].centres[int(out.states[-1].shares[7].argmax())])


@pytest.mark.parametrize("start", ["own", rarely("centres")])
def test_a_client_of_fedsoft_whose_update_is_broken_has_not_trained(start):
    """It goes on being scored with the cluster model of its largest share, not with w_0."""
    made, options = toy.broken(federation(), 3), SOFT | {"selected": 1.0, "start": start}
    broken = [not np.isfinite(x).all() for x, _ in plain.Clients(made).train]
    out = run("fedsoft", made, clusters=3, **options)
    last, models = out.states[-1], out.models()
    drawn = [plain.cohort(SEED, t, np.arange(8), PARTICIPANTS) for t in range(ROUNDS)]
    assert len(np.unique(drawn)) == 8 and 0 < sum(broken) < 8
    assert np.asarray(last.trained).tolist() == [not each for each in broken]
    for client in np.flatnonzero(broken):
        assert np.array_equal(models[client], last.centres[int(last.largest[client])])


def test_clusters_draw_by_their_odds_and_by_identity():
    odds = np.array([[4, 2, 1, 1, 0], [1, 1, 1, 1, 9]], np.float32)
    mask, uid = np.array([True, True, True, True, False]), np.array([5, 3, 8, 1, 2], np.int32)
    draw = jax.jit(jax.vmap(select_by_weight, in_axes=(0, None, None, None, None)))
    found = np.asarray(draw(jax.random.split(jax.random.key(0), 4000), odds, mask, uid, 0.25))
    assert (found.sum(axis=2) == 1).all()
    assert np.abs(found[:, 0].mean(axis=0) - np.array([4, 2, 1, 1, 0]) / 8).max() < 0.03
    assert np.abs(found[:, 1].mean(axis=0) - np.array([1, 1, 1, 1, 0]) / 4).max() < 0.03
    key = jax.random.split(jax.random.key(3), 4000)
    turned, again = (
        draw(key, odds[:, ::-1], mask[::-1], uid[::-1], 0.5),
        draw(key, odds, mask, uid, 0.5),
    )
    assert np.array_equal(np.asarray(turned)[..., ::-1], again)


def test_fedsoft_refuses_privacy_of_whole_personal_models():
    train = Train(privacy={"clip": 1.0, "noise": 1.0})
    with pytest.raises(SpecError, match="method.fedsoft: .*start"):
        METHODS.check("fedsoft", {}, "method.fedsoft").check_train("method.fedsoft", train)
    METHODS.check("fedsoft", {"start": "centres"}, "method.fedsoft").check_train(
        "method.fedsoft", train
    )


@pytest.mark.parametrize("name", ["fedem", "fedrc", "fedsoft"])
def test_clients_that_have_not_arrived_change_nothing_but_what_they_are_scored_by(name):
    late = toy.replace(federation(), arrive=jnp.array([0] * 6 + [2, 99], jnp.int32))
    train = late.train
    few = toy.replace(
        train, start=train.start.at[6:].set(train.start[0]), count=train.count.at[6:].set(3)
    )
    other = toy.replace(late, train=few)
    one, two = (run(name, each, rounds=2, clusters=3) for each in (late, other))
    for a, b in zip(one.infos, two.infos, strict=True):
        assert all(
            np.array_equal(x, y)
            for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        )
    first = late.arrive == 0
    rows = first if name == "fedsoft" else slice(None)  # models of clients, or of clusters
    assert np.array_equal(one.models()[rows], two.models()[rows])
    if name != "fedsoft":
        found = [
            np.asarray(each.method.mixture(each.states[-1], fed, {}))
            for each, fed in ((one, late), (two, other))
        ]
        assert (
            np.array_equal(found[0][first], found[1][first])
            and np.abs(found[0][7] - found[1][7]).max() > 1e-3
        )
        assert np.abs(found[0].sum(axis=1) - 1).max() < 1e-5
    later = [run(name, each, rounds=5, clusters=3).models()[rows] for each in (late, other)]
    assert not np.array_equal(*later)


@pytest.mark.parametrize("name", ["fedem", rarely("fedrc"), rarely("fedsoft")])
def test_the_record_has_the_mixtures_by_which_groups_can_be_told(name):
    data = {
        "name": "blobs",
        "samples": 800,
        "partition": "label_permutation",
        "groups": 2,
        "clients": 10,
        "samples_per_client": 50,
    }
    made = cfljax.run(
        name,
        clusters=2,
        data=data,
        model="mclr",
        rounds=20,
        lr=0.3,
        epochs=3,
        seed=1,
        participation=4,
    )
    mixture = made.diag[f"{name}/mixture"]
    assert made.summary["accuracy_last"] > 0.9
    assert mixture.shape == (10, 2) and np.abs(mixture.sum(axis=1) - 1).max() < 1e-5
    most = mixture.argmax(axis=1)
    assert (most[:5] == most[0]).all() and (most[5:] == 1 - most[0]).all()


def test_a_round_of_fedem_publishes_a_sum_for_each_model():
    assert METHODS.check("fedem", {"clusters": 4}, "m").releases(5) == (20, 0)


def test_fedrc_does_not_part_clients_by_which_labels_they_have():
    data = {"name": "blobs", "samples": 800, "clients": 10, "partition": "dirichlet", "alpha": 0.3}
    options = {
        "clusters": 2,
        "data": data,
        "model": "mclr",
        "rounds": 30,
        "lr": 0.3,
        "epochs": 2,
        "seed": 1,
    }
    em, rc = (cfljax.run(name, **options).diag[f"{name}/mixture"] for name in ("fedem", "fedrc"))
    assert em[:, 0].std() > 0.15 and rc[:, 0].std() < em[:, 0].std() / 3
