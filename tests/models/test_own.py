"""Models of the user's own."""

import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import cfljax
from cfljax.errors import SpecError
from cfljax.models import MODELS, build, from_module


class Linen(linen.Module):
    rate: float = 0.5

    @linen.compact
    def __call__(self, x, train=False):
        x = linen.Dense(8)(x)
        x = linen.Dropout(self.rate, deterministic=not train)(x)
        return linen.Dense(3)(x)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(5, 8, rngs=rngs)
        self.second = nnx.Linear(8, 3, rngs=rngs)
        self.drops = nnx.List([nnx.Dropout(0.5, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)])

    def __call__(self, x):
        return self.second(self.drops[1](self.drops[0](self.first(x))))


def init(key):
    return {"kernel": jax.random.normal(key, (5, 3)), "bias": jnp.zeros(3)}


def apply(params, x, key):
    x = x if key is None else x * jax.random.bernoulli(key, 0.5, x.shape)
    return x @ params["kernel"] + params["bias"]


def plain(params, x):
    return x @ params["kernel"] + params["bias"]


OWN = {"linen": Linen(), "nnx": Nnx, "pair": (init, apply), "plain pair": (init, plain)}
X = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
Y = np.int32([0, 1, 2, 0])


@pytest.mark.parametrize("kind", ["linen", "nnx", "pair"])
def test_own_models_train_inside_a_compiled_loop_and_over_a_batch_of_runs(kind):
    model = from_module(OWN[kind], (5,), 3)

    def loss(params, key=None):
        return jnp.mean(model.loss(model.forward(params, X, key), Y))

    @jax.jit
    @jax.vmap
    def train(key):
        def step(params, key):
            grads = jax.grad(loss)(params, key)
            return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), None

        flat = model.init(key)
        end = jax.lax.scan(step, model.unravel(flat), jax.random.split(key, 30))[0]
        return flat, model.ravel(end), loss(model.unravel(flat)), loss(end)

    start, end, before, after = map(np.asarray, train(jax.random.split(jax.random.key(0), 2)))
    assert start.shape == end.shape == (2, model.size)
    assert not np.array_equal(start[0], start[1])
    assert (after < before).all()


@pytest.mark.parametrize("kind", OWN)
def test_a_key_means_training_and_none_means_no_chance(kind):
    model = from_module(OWN[kind], (5,), 3)
    params = model.unravel(np.random.default_rng(0).normal(size=model.size).astype(np.float32))
    forward = jax.jit(model.forward)
    np.testing.assert_array_equal(forward(params, X), forward(params, X))
    first, again, other = (forward(params, X, jax.random.key(k)) for k in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.array_equal(first, other) == (kind == "plain pair")


@pytest.mark.parametrize("kind", ["linen", "nnx"])
def test_dropout_does_not_depend_on_padding_behind(kind):
    model = from_module(OWN[kind], (5,), 3)
    params = model.unravel(np.random.default_rng(0).normal(size=model.size).astype(np.float32))
    forward = jax.jit(model.forward)
    padded = np.concatenate([X, np.ones((3, 5), np.float32)])
    with jax.threefry_partitionable(False):
        short, long = (
            forward(params, X, jax.random.key(1)),
            forward(params, padded, jax.random.key(1)),
        )
    np.testing.assert_allclose(short, long[:4], rtol=1e-5, atol=1e-5)


def test_the_dropout_layers_of_an_nnx_module_draw_apart():
    model = from_module(lambda rngs: Wide(rngs), (1,), 400)  # a factory, not a class
    params = model.unravel(model.init(jax.random.key(0)))
    kept = (
        np.asarray(jax.jit(model.forward)(params, np.zeros((1, 1), np.float32), jax.random.key(0)))
        != 0
    )
    assert 60 < kept.sum() < 140  # a quarter; a half if both had the same mask


class Wide(nnx.Module):
    def __init__(self, rngs):
        self.layer = nnx.Linear(1, 400, bias_init=nnx.initializers.ones, rngs=rngs)
        self.drops = nnx.List([nnx.Dropout(0.5, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)])

    def __call__(self, x):
        return self.drops[1](self.drops[0](self.layer(x)))


class WithState(linen.Module):
    @linen.compact
    def __call__(self, x):
        self.variable("counts", "seen", jnp.zeros, ())
        return linen.Dense(3)(x)


class OwnStatistics(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.SpectralNorm(linen.Dense(3))(x, update_stats=False)


class Folded(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(3)(linen.BatchNorm()(x.reshape(-1, 1)).reshape(x.shape))


class NnxWithStatistics(nnx.Module):
    def __init__(self, rngs):
        self.layer, self.norm = nnx.Linear(5, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.layer(x))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (WithState(), "state besides its parameters (counts)"),
        (OwnStatistics(), "state besides its parameters (SpectralNorm_0/"),
        (Folded(), "BatchNorm BatchNorm_0 gets 5 rows of a batch of 1"),
        (NnxWithStatistics, "keeps state"),
        (linen.Dense(4), "must be (1, 3)"),
        (linen.Dense(3, param_dtype=jnp.bfloat16), "bfloat16"),
        ((lambda key: {}, lambda params, x: x[:, :3]), "no parameters"),
        ((init, lambda params, x: x @ jnp.ones((7, 3))), "samples of shape (5,)"),
        (Linen, "must be a flax.linen module"),
        (7, "must be a flax.linen module"),
        (lambda rngs: 7, "it returned 7"),
        (nnx.Linear(5, 3, rngs=nnx.Rngs(0)), "give the class, model=Linear, or a factory"),
        (lambda: Nnx, "factory(rngs)"),
    ],
)
def test_what_is_no_model_says_why_in_one_line(module, words):
    with pytest.raises(SpecError) as raised:
        from_module(module, (5,), 3)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


class Mixing(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(3)(x.reshape(1, -1))


def test_a_model_that_mixes_samples_is_told_so_by_its_own_name():
    model = from_module(Mixing(), (5,), 3, name="own-85b091fc-1")
    params = model.unravel(np.zeros(model.size, np.float32))
    with pytest.raises(SpecError, match='model "Mixing": .* mixes samples; keep the first axis'):
        model.forward(params, X)


class Misspelt(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(3)(x.reshapes(len(x), -1))


def test_what_a_model_raises_is_a_line_without_frames_of_flax():
    blobs = {"name": "blobs", "samples": 60, "partition": "iid", "clients": 3}
    with pytest.raises(SpecError, match=r'model "Misspelt" .*test_own.py, line \d+:') as raised:
        cfljax.run("fedavg", data=blobs, model=Misspelt(), rounds=1)
    frames = [frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert not [name for name in frames if "site-packages" in name]
    assert raised.value.__cause__ is None and raised.value.__suppress_context__


def test_a_registered_model_is_built_by_name():
    MODELS.add("mine", lambda options, sample_shape, classes: linen.Dense(classes))
    assert build("mine", None, (5,), 3).size == 18
