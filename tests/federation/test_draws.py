"""What is drawn from a seed is what earlier versions drew from it: another draw would be other
results under the same id."""

from types import SimpleNamespace

import jax
import numpy as np

from cfljax import keys
from cfljax.federation import cohort, drift
from cfljax.federation.traces import make_devices
from cfljax.kernels.choose import reseed_empty
from cfljax.local.aggregation import server_rule
from cfljax.local.attacks import _draw_scores
from cfljax.methods.fedbcd import draw_steps

CLIENTS = np.arange(6, dtype=np.int32)


def test_devices():
    assert np.allclose(make_devices(3, 7, False, None).pace, [0.3774, 1.0876, -0.4913], atol=1e-4)


def test_who_changes_the_group():
    options = SimpleNamespace(kind="sudden", at=(2, 4), share=0.4, what="group")
    found = list(drift.draw_changes(options, np.arange(6) % 3, 3, 7))
    assert [tuple(each) for each in found] == [(2, 2, 0), (2, 5, 0), (4, 2, 2), (4, 4, 0)]


def test_attackers_and_all_that_is_drawn_by_name():
    everybody = np.ones(6, bool)

    @jax.jit
    def draw():
        key = keys.fold(keys.root(7), "round", 2)
        seen = SimpleNamespace(uid=CLIENTS)
        numbers = {"dropout": 0.5, "stragglers": 0.5, "straggler_work": 0.25}
        rule = server_rule("", key, {"privacy.noise": 1.0, "privacy.clip": 1.0})
        return (
            _draw_scores(7, CLIENTS),
            cohort.gather(key, seen, CLIENTS, everybody, 0, numbers),
            reseed_empty(key, np.full(6, 3), everybody, 3, CLIENTS, "always"),
            draw_steps(key, CLIENTS, 5),
            keys.scores(rule.key, "any", CLIENTS[:1]),
        )

    scores, drawn, labels, steps, noise = jax.device_get(draw())
    assert np.argsort(scores).tolist() == [2, 0, 3, 4, 1, 5]
    assert np.flatnonzero(drawn.mask).tolist() == [2, 3]
    assert np.flatnonzero(drawn.work < 1).tolist() == [1, 2, 4, 5]
    assert labels.tolist() == [3, 3, 2, 1, 3, 0] and steps.tolist() == [2, 3, 1, 4, 5, 3]
    assert noise.tolist() == [1016779478]
