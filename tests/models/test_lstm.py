"""The LSTM."""

import jax
import jax.numpy as jnp
import numpy as np

from cfljax.models import build
from cfljax.models.layers import lstm


def test_a_layer_agrees_with_a_plain_loop():
    rng = np.random.default_rng(0)
    x, kernel, recurrent, bias = (rng.normal(size=s) for s in [(2, 5, 3), (3, 16), (4, 16), (16,)])
    sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    hidden, cell, steps = np.zeros((2, 4)), np.zeros((2, 4)), []
    for t in range(5):
        enter, forget, new, leave = np.split(
            x[:, t] @ kernel + hidden @ recurrent + bias, 4, axis=1
        )
        cell = sigmoid(forget + 1) * cell + sigmoid(enter) * np.tanh(new)
        hidden = sigmoid(leave) * np.tanh(cell)
        steps.append(hidden)
    ours = jax.jit(lstm)(*(a.astype(np.float32) for a in (x, kernel, recurrent, bias)), 1.0)
    np.testing.assert_allclose(ours, np.stack(steps, axis=1), atol=1e-5)


def test_the_last_step_is_read_whatever_it_holds():
    model = build("lstm", {"width": 4, "dense": 3}, (6, 5), 2)
    params = model.unravel(np.random.default_rng(0).normal(size=model.size).astype(np.float32))
    x = np.random.default_rng(0).normal(size=(2, 6, 5)).astype(np.float32)
    forward = jax.jit(model.forward)
    before = forward(params, x)
    other = x.copy()
    other[0, -1] += 1
    after = forward(params, other)
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_more_than_two_classes_have_a_logit_each():
    model = build("lstm", {"width": 4, "dense": 3}, (6, 5), 4)
    forward = lambda flat, x: model.forward(model.unravel(flat), x)  # noqa: E731
    assert jax.eval_shape(forward, jnp.zeros(model.size), jnp.zeros((2, 6, 5))).shape == (2, 4)


def test_recurrent_kernels_are_orthogonal_gate_by_gate():
    model = build("lstm", {"width": 4, "dense": 3}, (6, 5), 2)
    recurrent = np.asarray(
        model.unravel(jax.jit(model.init)(jax.random.key(0)))["lstm_1"]["recurrent"]
    )
    for gate in np.split(recurrent, 4, axis=1):
        np.testing.assert_allclose(gate @ gate.T, np.eye(4), atol=1e-5)


def test_as_many_layers_as_are_asked_for_with_the_forget_bias_in_each():
    model = build("lstm", {"width": 4, "dense": 3, "layers": 3, "forget_bias": 0.0}, (6, 5), 2)
    other = build("lstm", {"width": 4, "dense": 3, "layers": 3, "forget_bias": 2.0}, (6, 5), 2)
    flat = jnp.asarray(np.random.default_rng(0).normal(size=model.size), jnp.float32)
    params, x = (
        model.unravel(flat),
        np.random.default_rng(1).normal(size=(2, 6, 5)).astype(np.float32),
    )
    layers = [name for name in params if name.startswith("lstm")]
    assert len(layers) == 3 and model.size == other.size
    shifted = {name: dict(params[name]) for name in params}
    for name in layers:  # the bias has the gates in the order enter, forget, new, leave
        shifted[name]["bias"] = params[name]["bias"].at[4:8].add(2.0)
    np.testing.assert_allclose(
        jax.jit(model.forward)(shifted, x), jax.jit(other.forward)(params, x), atol=1e-5
    )
    assert not np.allclose(jax.jit(model.forward)(params, x), jax.jit(other.forward)(params, x))
