"""`train.privacy`, `attack` and `robust` mean the same for every method: they go through what all
of them have in common."""

import ast
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax import keys
from cfljax.local.attacks import Attack, attackers, exact_share
from cfljax.local.compressors.int8 import Int8
from cfljax.local.parts import divide_model
from cfljax.local.send import Sending
from cfljax.methods import METHODS
from cfljax.types import Jobs
from tests import play, toy
from tests.often import KINDS, every
from tests.reference import plain

METHOD_FILES = sorted(Path(cfljax.__file__).parent.joinpath("methods").glob("*.py"))
SUMS = {"mix_updates": 4, "sum_by": 3, "add_noise": 3}
NOTHING = {"attack.share": 0.0, "attack.factor": 5.0, "privacy.clip": 1e9, "privacy.noise": 0.0}
LIES = Sending(attack=Attack("sign_flip", 0.0))
GUARDED = Sending(attack=Attack("sign_flip", 0.0), robust="trimmed_mean")
NEVER_SENDS = {"local", "fedproto"}
IN_TURNS = {"fedrep", "fedpac"}
"""Methods whose work is given in epochs."""
MOVES_ALONE = {
    "fedgroup",
    "ditto",
    "fesem",
    "fesem_flexcfl",
    "joint",
    "fedsoft",
    "apfl",
    "pfedme",
    "fedrod",
    "fedala",
}
"""Methods whose models change without what clients send."""
QUICK = {"fedbcd"}
"""The one that adds up by itself; the others are `long`."""
MORE = {
    "cfl_sattler": {"min_rounds": 9},
    "fl_hc": {"warmup_rounds": 9},
    "fesem": {"clusters": 1},
    "fesem_flexcfl": {"clusters": 1},
}
"""Do not regroup, and keep in one cluster what attackers could scatter."""


@pytest.mark.parametrize("path", METHOD_FILES, ids=lambda p: p.stem)
def test_methods_add_up_by_the_run_s_rule(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("weighted_sum", "robust_sum"), path.name
            if node.func.id in SUMS:
                assert len(node.args) == SUMS[node.func.id], (
                    f"{path.name}:{node.lineno}: {node.func.id} without a rule"
                )


@functools.cache
def federation():
    return toy.federation("label_permutation", clients=10, groups=2)


def played(name, sending=Sending(), rounds=3, **changed):  # noqa: B008
    """f32[K, n]: what travels of the models, after some rounds."""
    numbers = (NOTHING if sending.attack else {}) | {
        key.replace("_", ".", 1): value for key, value in changed.items()
    }
    work = {"epochs" if name in IN_TURNS else "steps": 1, "batch": "full", "sending": sending}
    options = play.options(name) | MORE.get(name, {})
    models = play.rounds(
        name, federation(), rounds, None, lr=0.5, work=work, hyper=numbers, **options
    ).models()
    parts = METHODS.entry(name).options.parts
    return models[:, divide_model(options["model"], parts).away] if parts else models


def apart(one, other):
    """The largest difference, and where numbers are larger than 1, that by the largest of them."""
    return float(np.abs(one - other).max() / max(1.0, np.abs(one).max()))


@pytest.mark.parametrize("name", every((*KINDS, *NEVER_SENDS, *QUICK), often=QUICK))
def test_each_option_does_what_it_should(name):
    honest, lied_to = played(name, LIES), played(name, LIES, attack_share=0.3)
    assert np.isfinite(honest).all() and np.isfinite(lied_to).all()
    others = [lied_to, played(name, LIES, privacy_clip=1e-3)]
    if "privacy.noise" not in METHODS.check(name, {}, "m").without:
        others.append(played(name, LIES, privacy_noise=1.0, privacy_clip=1.0))
    if name in NEVER_SENDS:
        assert all(apart(honest, other) == 0 for other in others)
        return
    assert all(apart(honest, other) > 1e-3 for other in others)
    assert np.isfinite(played(name, LIES, privacy_noise=1.0, privacy_clip=1.0)).all()
    start = played(name, LIES, rounds=0)
    if start.shape == honest.shape and name not in MOVES_ALONE:
        assert (
            apart(played(name, LIES, privacy_clip=1e-9), start) < 1e-5
        )  # nobody can move anything


@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_trimmed_mean_that_trims_nothing_is_the_mean(name):
    same = np.unique(np.asarray(federation().train.count)).size == 1
    assert same  # else the weights of the mean would count
    assert apart(played(name, LIES), played(name, GUARDED, robust_trim=0.0)) < 1e-4


def test_attackers_are_not_scored():
    whole, numbers = play.nine_clients(), {"attack.share": 0.3, "attack.factor": 2.0}
    (output,) = play.on_nine("fedavg", [numbers], work={"sending": LIES})
    lie = np.asarray(attackers(LIES.attack, exact_share(LIES.attack, numbers, whole), whole))
    assert lie.sum() == 3 and (output.history["scored"] == 6).all()
    assert np.array_equal(np.isnan(output.client_accuracy), lie)
    net, clients = plain.Net(6, 4), plain.Clients(whole)
    clients.test = [each for each, lies in zip(clients.test, lie, strict=True) if not lies]
    wanted = plain.accuracy(net, clients, output.models.astype(np.float64), np.zeros(6, int))
    assert output.history["accuracy"][-1] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("name", ["fedavg", pytest.param("oracle", marks=pytest.mark.long)])
def test_three_attackers_of_ten_move_a_mean_far_and_a_trimmed_mean_little(name):
    honest = played(name, LIES)
    far = apart(honest, played(name, LIES, attack_share=0.3))
    near = apart(
        played(name, GUARDED, robust_trim=0.0),
        played(name, GUARDED, robust_trim=0.4, attack_share=0.3),
    )
    assert near < far / 3


def test_what_arrives_depends_on_identity_alone():
    sending = Sending(Int8(), attack=Attack("noise", 0.0))
    hyper = {"lr": 0.5, "attack.share": 0.5, "attack.factor": 1.0, "privacy.clip": 1.0}
    solver = toy.solver(toy.model(), steps=1, batch="full", sending=sending)
    ids = jnp.array([7, 2, 5, 0])
    start = toy.model().init(keys.root(1))[None]
    jobs = lambda ids, mask: Jobs(ids, mask, jnp.ones(4), start, ids * 0)  # noqa: E731
    fit = jax.jit(
        lambda ids, mask: solver.fit(keys.root(0), federation(), jobs(ids, mask), hyper).delta
    )
    whole, turned = (
        fit(ids, jnp.ones(4, bool)),
        fit(ids[::-1], jnp.array([True, True, False, True])),
    )
    np.testing.assert_array_equal(whole[jnp.array([3, 2, 0])], turned[jnp.array([0, 1, 3])])
    assert not turned[2].any()
    assert (np.linalg.norm(whole, axis=1) < 1.0001).all()
