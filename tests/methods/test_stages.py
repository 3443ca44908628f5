"""A stage around rounds is one file: the one in CONTRIBUTING.md, beside its option."""

import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.registry.options import list_traced
from cfljax.round import stages
from tests import play, toy
from tests.often import rarely

CAPPED = SimpleNamespace(cap=0.5, server_table=None)
BEGINS = [name for name in METHODS if getattr(METHODS.entry(name).options, "begins", False)]
"""Methods that make clusters before the first round, for which programs are compiled."""


@pytest.fixture
def cap(tmp_path, monkeypatch):
    """The guide's file, among the stages."""
    guide = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    text = guide.split('cap.py"\n')[1].split("```")[0]
    (tmp_path / "cap.py").write_text(textwrap.dedent(text))
    monkeypatch.setattr(stages, "__path__", [*stages.__path__, str(tmp_path)])
    yield
    sys.modules.pop("cfljax.round.stages.cap", None)


@pytest.mark.usefixtures("cap")
def test_the_cap_of_the_guide_is_found_and_bounds_what_participants_receive():
    config, solver, fed = (
        METHODS.check("fedavg", {}, "m"),
        toy.solver(toy.model()),
        play.seven_clients(),
    )
    plain = METHODS.entry("fedavg").make(config, toy.model(), solver)
    capped = stages.add_stages(plain, stages.make_stages("fedavg", CAPPED, config, solver))
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


@pytest.mark.usefixtures("cap")
@pytest.mark.parametrize("name", [rarely(n) if n in BEGINS else n for n in METHODS])
def test_each_method_takes_the_cap_or_refuses_it_in_a_line(name):
    """Rounds are traced, not computed."""
    given = play.options(name)
    model = given.pop("model", toy.model())
    config, solver = METHODS.check(name, given, f"method.{name}"), toy.solver(model)
    if not config.moved_by_server:
        with pytest.raises(SpecError, match=rf"^train.cap with method.{name}: .+; leave it out.*$"):
            stages.make_stages(name, CAPPED, config, solver)
        return
    made = stages.make_stages(name, CAPPED, config, solver)
    method = stages.add_stages(METHODS.entry(name).make(config, model, solver), made)
    fed, key = play.nine_clients(), keys.root(0)
    hyper = {"lr": 0.1, "cap": 0.5} | list_traced(config)
    setup = {} if method.setup is None else method.setup(key, fed, hyper | {"participants": 5})
    state = jax.eval_shape(method.init, key, fed, hyper, setup)
    cohort = play.drawn(key, fed, 5, 0, hyper)
    after, _ = jax.eval_shape(method.round, key, state, fed, cohort, hyper)
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (state.method, after.method))
    assert shapes[0] == shapes[1]
