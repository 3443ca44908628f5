"""Models that are rounded on their way down, by a compressor of the user's own in one file."""

import jax.numpy as jnp
import numpy as np
import pytest

import cfljax
from cfljax.config import plugins, read_spec
from cfljax.engine.outputs import vector_bytes
from cfljax.errors import SpecError
from cfljax.experiment import dry_run
from cfljax.experiment.batching import Size
from cfljax.local.compressors import COMPRESSORS
from cfljax.local.send import Sending
from tests import play, toy
from tests.crossings.runs import Feature, assembled, spec_of
from tests.often import rarely

FILE = '''
import dataclasses

import jax.numpy as jnp

import cfljax
from cfljax.extend import Compressor


@cfljax.register_compressor("eighths_down")
@dataclasses.dataclass(frozen=True)
class EighthsDown(Compressor):
    """Models come as multiples of 1/8 from -16 to 16; updates go up as they are."""

    def encode_down(self, key, row):
        return jnp.clip(jnp.round(row * 8), -128, 127) / 8

    def bytes_down(self, d):
        return d
'''
ROUNDED = {"train": {"compress": "eighths_down"}}
CLOCK = {"step_ms": 50.0, "down_mbps": 0.01, "up_mbps": 0.004}


@pytest.fixture(autouse=True)
def eighths(tmp_path):
    """The class, loaded as a plug-in from its file."""
    (tmp_path / "eighths.py").write_text(FILE)
    plugins.load([str(tmp_path / "eighths.py")])
    return COMPRESSORS.entry("eighths_down").options


def coarse(rows):
    return np.round(np.asarray(rows) * 8) / 8


@pytest.mark.parametrize(
    "name",
    ["ifca", *map(rarely, ("fedavg", "cfl_mgd", "fedem", "fedprox", "stocfl", "joint"))],
)
def test_participants_train_from_what_has_arrived_and_the_server_keeps_its_copy(name, eighths):
    on, options = toy.federation(clients=5), play.options(name)
    found = play.rounds(name, on, 1, work={"sending": Sending(eighths())}, **options)
    begun = found.states[0]
    fields = [f for f in ("models", "global_model") if getattr(begun, f, None) is not None]
    seen = begun._replace(**{f: jnp.asarray(coarse(getattr(begun, f))) for f in fields})
    there = play.rounds(name, on, 1, state=seen, **options)
    assert np.abs(np.asarray(begun.models) - np.asarray(seen.models)).max() > 0.02
    for f in fields:
        old, arrived, after, made = (
            np.asarray(getattr(state, f))
            for state in (begun, seen, there.states[1], found.states[1])
        )
        np.testing.assert_allclose(made, old + (after - arrived), atol=2e-6)
        assert np.abs(after - arrived).max() > 1e-3
    np.testing.assert_array_equal(found.labels(), there.labels())


def test_the_bill_the_clock_and_the_forecast_have_its_bytes():
    feature = Feature({"train": ROUNDED["train"] | {"clock": CLOCK}})
    parts, batch = assembled("fedavg", [feature])
    d = parts.model.size
    assert parts.settings.clock == (d, 4 * d)
    settings = parts.settings
    found = vector_bytes(parts.method.travels, d, settings.vector_down, settings.vector_up)
    assert found == (d, 4 * d)
    train = batch.first.train
    forecast = dry_run.communication(batch.first, Size(parameters=d, clients=12, learners=12))
    assert forecast == (train.rounds * 5 * d, train.rounds * 5 * 4 * d)


@pytest.mark.parametrize(
    "name", [rarely(name) for name in ("fedavg", "ifca", "one_shot", "fedem", "pacfl")]
)
def test_all_that_is_sent_down_costs_a_quarter(name):
    def bytes_of(*features):
        spec = spec_of(name, features)
        (method,) = spec["method"]
        history = cfljax.run(method, spec["data"], spec["model"], train=spec["train"]).history
        return history["bytes_down"][-1], history["bytes_up"][-1]

    down, up = bytes_of()
    assert bytes_of(Feature(ROUNDED)) == (down / 4, up)


@pytest.mark.parametrize(
    "name, more, said",
    [
        ("ditto", {}, "method.ditto: it changes models on their way down, and its participants"),
        ("scaffold", {}, "method.scaffold"),
        ("fedsoft", {}, "method.fedsoft"),
        ("local", {}, "method.local"),
        ("fedper", {}, "method.fedper: it changes models on their way down, and it shares parts"),
        ("fesem", {"parts": {"body": "all"}}, "with train.parts: models that change"),
        ("ifca", {"freeze": "head"}, "with train.freeze: models that change"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(name, more, said):
    with pytest.raises(SpecError) as error:
        read_spec(spec_of(name, [Feature({"train": ROUNDED["train"] | more})])).runs()
    assert 'train.compress.name = "eighths_down"' in str(error.value) and said in str(error.value)
