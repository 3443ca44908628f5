"""A stage around rounds is one file: the one in CONTRIBUTING.md, beside its option."""

import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import keys
from cfljax.methods import METHODS
from cfljax.round import stages
from tests import play, toy


def test_the_cap_of_the_guide_is_found_and_bounds_what_participants_receive(tmp_path, monkeypatch):
    text = (
        (Path(__file__).parents[2] / "CONTRIBUTING.md")
        .read_text()
        .split('cap.py"\n')[1]
        .split("```")[0]
    )
    (tmp_path / "cap.py").write_text(textwrap.dedent(text))
    monkeypatch.setattr(stages, "__path__", [*stages.__path__, str(tmp_path)])
    config, solver, fed = (
        METHODS.check("fedavg", {}, "m"),
        toy.solver(toy.model()),
        play.seven_clients(),
    )
    plain, train = (
        METHODS.entry("fedavg").make(config, toy.model(), solver),
        SimpleNamespace(cap=0.5, server_table=None),
    )
    capped = stages.add_stages(plain, stages.make_stages("fedavg", train, config, solver))
    del sys.modules["cfljax.round.stages.cap"]
    hyper = {"lr": jnp.float32(0.1), "cap": jnp.float32(0.5)}
    state, key = jax.jit(capped.init)(keys.root(0), fed, hyper, {}), keys.root(1)
    assert (norm := np.linalg.norm(state.method.models)) > 0.5
    cohort = play.drawn(key, fed, 5, 0, hyper)
    shorter = state.method._replace(models=state.method.models * (0.5 / norm))
    plainly = jax.jit(plain.round)
    wanted = plainly(key, shorter, fed, cohort, hyper)[0].models
    found = jax.jit(capped.round)(key, state, fed, cohort, hyper)[0].method.models
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert np.abs(found - plainly(key, state.method, fed, cohort, hyper)[0].models).max() > 1e-2
