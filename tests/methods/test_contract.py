"""What every method of the registry must keep to; a method added later is under it without a line here."""

import dataclasses

import jax
import numpy as np
import pytest

from cfljax import keys
from cfljax.engine import compiled
from cfljax.engine.assembled import Assembled
from cfljax.engine.program import Settings, make_program
from cfljax.engine.simulate import _setups
from cfljax.methods import METHODS
from cfljax.registry.options import static, traced
from tests import toy
from tests.methods import contract
from tests.methods.contract import ROUNDS, model, run, same_bits
from tests.padding import pad

NAMES = list(METHODS)
NOT_FIXED_WITHOUT_STEPS = {
    "joint": "in each round with an empty cluster random devices are put elsewhere",
}
every_method = pytest.mark.parametrize("name", NAMES)


@every_method
def test_summary_and_docs_exist(name):
    entry = METHODS.entry(name)
    assert entry.summary and entry.summary.endswith(".")
    for field in dataclasses.fields(entry.options):
        assert field.metadata.get("help"), f"{name}.{field.name} has no help"


@every_method
def test_history_is_complete_and_finite(name):
    (output,) = run(name)
    assert output.history["round"].tolist() == list(range(ROUNDS + 1))
    for quantity in ("accuracy", "loss", "accuracy_worst10", "bytes_up", "bytes_down", "clusters"):
        assert np.isfinite(output.history[quantity]).all(), quantity
    assert np.isfinite(output.models).all() and output.diverged_at == -1
    assert np.isfinite(output.history["train_loss"][1:]).all() and np.isfinite(output.history["discrepancy"][1:]).all()
    assert output.labels.shape == (ROUNDS + 1, 9) and output.labels.min() >= -1
    assert output.labels.max() < len(output.models)


@every_method
def test_it_learns(name):
    (output,) = run(name)
    assert output.history["loss"][-1] < output.history["loss"][0]


@every_method
def test_state_types_are_constant_and_nothing_calls_the_host(name):
    config = contract.options(name)
    method = METHODS.entry(name).make(static(config), model(), toy.solver(model()))
    federation = jax.device_put(contract.host_federation())
    hyper = {k: np.float32(v) for k, v in ({"lr": 0.1} | traced(config)).items()}
    key, settings = keys.root(0), Settings(3, 5, evaluations=4)
    setup = _setups(Assembled(method, model(), federation, settings), key[None], [hyper])
    program = make_program(method, model(), settings)
    stacked = jax.tree.map(lambda a: np.asarray(a)[None], hyper)
    carry = jax.eval_shape(program.start, key[None], stacked, setup, federation)
    bounds = np.array([0, 3, True], np.int32)
    after, _ = jax.eval_shape(program.chunk, carry, key[None], stacked, federation, bounds)
    assert jax.tree.structure(after) == jax.tree.structure(carry)
    assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(*map(jax.tree.leaves, (carry, after)), strict=True))
    text = str(jax.make_jaxpr(program.chunk)(carry, key[None], stacked, federation, bounds))
    assert "callback" not in text and "infeed" not in text and "outfeed" not in text


@every_method
def test_chunks_of_any_size_give_the_same_bits_and_compile_once(name):
    (whole,) = run(name)
    before = compiled.compilations
    for rounds in (1, 3):
        assert same_bits(whole, run(name, chunk_rounds=rounds)[0])
    assert same_bits(whole, run(name)[0])
    assert compiled.compilations == before


@every_method
def test_one_diverging_run_leaves_the_others_alone(name):
    good = run(name, [{}, {}, {}])
    mixed = run(name, [{}, {"lr": float("nan")}, {}])
    assert same_bits(good[0], mixed[0]) and same_bits(good[2], mixed[2])
    assert good[1].diverged_at == -1 and mixed[1].diverged_at >= 0
    huge = run(name, [{}, {"lr": 1e30}, {}])
    assert same_bits(good[0], huge[0]) and same_bits(good[2], huge[2])
    assert huge[1].diverged_at >= 0


@every_method
def test_a_run_alone_is_the_run_in_a_batch(name):
    batch = run(name, [{}, {}, {}])
    (alone,) = run(name, seeds=[1])
    assert np.array_equal(alone.labels, batch[1].labels)
    assert np.allclose(alone.models, batch[1].models, atol=1e-5)


@every_method
def test_nothing_moves_without_a_learning_rate(name):
    if name in NOT_FIXED_WITHOUT_STEPS:
        pytest.skip(NOT_FIXED_WITHOUT_STEPS[name])
    (still,) = run(name, [{"lr": 0.0}])
    assert np.allclose(still.history["loss"], still.history["loss"][0], atol=1e-6)


@every_method
def test_side_by_side_is_in_sequence(name):
    for a, b in zip(run(name, [{}, {}, {}]), run(name, [{}, {}, {}], sequential=False), strict=True):
        assert np.array_equal(a.labels, b.labels)
        assert np.allclose(a.models, b.models, atol=1e-5)


@every_method
def test_padding_is_invisible(name):
    federation = contract.host_federation()
    padded = pad(federation, clients=3, samples=4, rng=np.random.default_rng(1))
    (a,), (b,) = run(name), run(name, federation=padded)
    assert np.array_equal(a.labels, b.labels[:, :9]) and (b.labels[:, 9:] == -1).all()
    assert np.allclose(a.history["accuracy"], b.history["accuracy"])
    per_client = len(a.models) == 9
    assert np.allclose(a.models, b.models[:9] if per_client else b.models, atol=1e-5)
    assert np.array_equal(a.history["bytes_up"], b.history["bytes_up"])


@every_method
def test_the_order_of_clients_does_not_matter(name):
    order = np.array([4, 2, 8, 0, 7, 1, 3, 6, 5])
    (a,), (b,) = run(name), run(name, federation=contract.host_federation().take(order))
    assert np.allclose(a.history["accuracy"], b.history["accuracy"], atol=1e-6)
    personal = np.array_equal(a.labels[-1], np.arange(9))
    moved = a.labels[:, order]
    for row_a, row_b in zip(moved, b.labels, strict=True):  # the same groups; personal models are numbered by position
        assert personal or np.array_equal(row_a, row_b)
    assert np.allclose(a.models[order] if personal else a.models, b.models, atol=1e-5)


@every_method
def test_a_client_with_broken_data_is_counted_and_kept_out(name):
    federation = contract.host_federation()
    x = np.array(federation.pool.x)
    start, count = int(federation.train.start[3]), int(federation.train.count[3])
    x[np.asarray(federation.train.rows)[start : start + count]] = np.nan
    broken = toy.replace(federation, pool=federation.pool._replace(x=x))
    (output,) = run(name, federation=broken)
    healthy = np.arange(9) != 3
    assert output.diverged_at == -1
    assert output.history["nonfinite"][-1] > 0
    assert np.isfinite(output.history["accuracy"]).all()
    used = np.unique(output.labels[-1][healthy & (output.labels[-1] >= 0)])
    assert np.isfinite(output.models[used]).all()
