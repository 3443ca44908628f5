"""Facts about every model of the registry."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cfljax.errors import SpecError
from cfljax.models import MODELS, build
from cfljax.models.flat import cross_entropy, part_of
from cfljax.models.nets import Dense
from tests.often import every, rarely

SMALL = {
    "mclr": ({}, (5, 5), 3),
    "mlp": ({"hidden": [7, 4]}, (5, 5, 1), 3),
    "cnn": ({"channels": [2, 3], "kernel": 3, "dense": [5], "conv": "patches"}, (9, 8, 2), 3),
    "cnn_cifar": ({"channels": 3, "dense": [6, 5], "crop": 8, "conv": "patches"}, (11, 10, 3), 3),
    "lstm": ({"width": 4, "dense": 3}, (6, 5), 2),
    "resnet20": ({"blocks": 1, "width": 2, "conv": "patches"}, (6, 5, 2), 3),
    "resnet18": ({"blocks": [1, 1], "width": 2, "conv": "patches"}, (6, 5, 2), 3),
    "mobilenet_v2": ({"width": 0.05, "depth": 0.1, "conv": "patches"}, (6, 5, 2), 3),
    "vit_tiny": ({"patch": 2, "width": 4, "depth": 1, "heads": 2}, (4, 6, 2), 3),
    "char_lstm": ({"embedding": 3, "width": 4, "layers": 2}, (6,), 5),
    "transformer": ({"width": 4, "depth": 1, "heads": 2}, (6,), 5),
}
TOKENS = ("char_lstm", "transformer")


@functools.cache
def small(name, **more):
    options, shape, classes = SMALL[name]
    return build(name, {**options, **more}, shape, classes), shape, classes


def weights(model, seed=0):
    """Not `model.init`, which takes longer to compile than what is tested."""
    return np.random.default_rng(seed).normal(size=model.size).astype(np.float32) * 0.2


def batch(shape, classes, size=6, seed=0):
    rng, y = np.random.default_rng(seed), (np.arange(size) % classes).astype(np.int32)
    if len(shape) == 1:  # tokens
        return rng.integers(classes, size=(size, *shape)).astype(np.float32), y
    return rng.normal(size=(size, *shape)).astype(np.float32), y


def test_every_model_of_the_registry_is_tested_here():
    assert set(SMALL) == set(MODELS)


@pytest.mark.parametrize(("name", "options", "shape", "classes", "size"), [
    ("mclr", {}, (28, 28, 1), 10, 7_850), ("mclr", {}, (28, 28), 26, 20_410), ("mclr", {}, (60,), 10, 610),
    ("mlp", {"hidden": [128]}, (28, 28, 1), 10, 101_770), ("mlp", {"hidden": [512]}, (28, 28), 26, 415_258),
    ("lstm", {}, (25, 300), 2, 243_861),
    ("mlp", {"hidden": [200, 200]}, (28, 28, 1), 10, 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10),
    ("cnn", {}, (28, 28, 1), 10, 25 * 32 + 32 + 25 * 32 * 64 + 64 + 7 * 7 * 64 * 512 + 512 + 5130),
    ("cnn", {"channels": [10, 20], "dense": [50], "padding": "valid"}, (28, 28, 1), 10, 21_840),  # PyTorch's example for MNIST
    ("cnn", {"channels": [6, 16], "dense": [120, 84], "padding": "valid"}, (32, 32, 3), 10, 62_006),  # its tutorial for CIFAR-10
    ("cnn_cifar", {}, (32, 32, 3), 10, 75 * 64 + 64 + 25 * 64 * 64 + 64 + 36 * 64 * 384 + 384 + 384 * 192 + 192 + 1930),
    ("cnn_cifar", {"dense": [384]}, (32, 32, 3), 10, 75 * 64 + 64 + 25 * 64 * 64 + 64 + 36 * 64 * 384 + 384 + 3850),
    ("resnet20", {}, (32, 32, 3), 10, 269_722), rarely("resnet18", {}, (32, 32, 3), 10, 11_173_962),
    ("resnet18", {"stem": "large"}, (224, 224, 3), 1000, 11_689_512),
    ("mobilenet_v2", {"stem": "large"}, (224, 224, 3), 1000, 3_504_872),
    ("vit_tiny", {"patch": 16}, (224, 224, 3), 1000, 5_717_416),
    ("char_lstm", {}, (80,), 80, 80 * 8 + 4 * (264 * 256 + 256) + 4 * (512 * 256 + 256) + 257 * 80),
    ("transformer", {}, (80,), 65, 65 * 128 + 80 * 128 + 2 * (12 * 128**2 + 13 * 128) + 2 * 128 + 129 * 65),
])  # fmt: skip
def test_parameter_counts_are_those_of_the_papers(name, options, shape, classes, size):
    assert build(name, options, shape, classes).size == size


@pytest.mark.parametrize(
    ("padding", "layers", "most"),
    [("valid", 3, 2), ("valid", 2, None), ("same", 5, 4), ("same", 4, None)],
)
def test_images_that_convolutions_use_up_are_refused_in_a_line(padding, layers, most):
    options = {"channels": [2] * layers, "dense": [3], "padding": padding}
    if most is None:
        assert build("cnn", options, (28, 28, 1), 10).size
        return
    with pytest.raises(SpecError, match=f"{layers} layers.*28×28.*halved {most} times"):
        build("cnn", options, (28, 28, 1), 10)


@pytest.mark.parametrize("name", SMALL)
def test_unravel_undoes_ravel(name):
    model, _, _ = small(name)
    flat = np.arange(model.size, dtype=np.float32)

    @jax.jit
    def back(flat):
        params = model.unravel(flat)
        return model.ravel(params), jax.flatten_util.ravel_pytree(params)[0]

    for again in back(flat):
        np.testing.assert_array_equal(again, flat)


@pytest.mark.parametrize("name", SMALL)
def test_initial_weights_differ_by_key_and_alone_depend_on_it(name):
    model, _, _ = small(name)
    init = jax.jit(lambda seed: model.init(jax.random.key(seed)))
    first, again, other = (init(seed) for seed in (0, 0, 1))
    assert first.shape == (model.size,)
    assert first.dtype == jnp.float32
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(("name", "options", "shape"), [
    ("mlp", {"hidden": [3]}, (8, 8)), ("cnn", {"channels": [2, 2], "dense": [3]}, (8, 8)),
    ("cnn", {"channels": [2, 2, 2], "dense": [3, 4]}, (9, 15, 1)), ("cnn", {"channels": [2, 2], "dense": [3]}, (28, 28, 1)),
    ("cnn", {"channels": [2, 2], "dense": [3]}, (32, 32, 3)), ("cnn_cifar", {"channels": 2, "dense": [3, 3]}, (28, 28, 1)),
    ("cnn_cifar", {"channels": 2, "dense": [3, 3]}, (32, 32, 3)),
    ("cnn_cifar", {"channels": 2, "dense": [3, 3], "crop": 0}, (8, 8, 1)),
])  # fmt: skip
def test_images_of_any_size_give_a_logit_per_class(name, options, shape):
    model = build(name, options, shape, 10)
    params = jax.eval_shape(lambda key: model.unravel(model.init(key)), jax.random.key(0))
    x = jax.ShapeDtypeStruct((4, *shape), jnp.float32)
    for logits in (
        jax.eval_shape(model.forward, params, x),
        jax.eval_shape(model.forward, params, x, jax.random.key(0)),
    ):
        assert logits.shape == (4, 10)
        assert logits.dtype == jnp.float32


@pytest.mark.parametrize("name", every(SMALL, often=set(SMALL) - {"mobilenet_v2", "resnet18"}))
def test_gradients_agree_with_finite_differences_in_float64(name):
    model, shape, classes = small(name)
    x, y = batch(shape, classes)
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        flat = weights(model, 3).astype(np.float64)
        way = rng.normal(size=model.size)
        images = x.astype(np.float64)

        @jax.jit
        @jax.value_and_grad
        def loss(flat):
            params = model.unravel(flat)
            own = model.penalty(params) if model.penalty else 0.0
            return jnp.mean(model.loss(model.forward(params, images), y)) + own

        slope = (float(loss(flat + 1e-6 * way)[0]) - float(loss(flat - 1e-6 * way)[0])) / 2e-6
        exact = np.asarray(loss(flat)[1])
        assert exact.dtype == np.float64
        np.testing.assert_allclose(exact @ way, slope, rtol=1e-5)
        assert np.count_nonzero(exact) > model.size / 3


@pytest.mark.parametrize("name", SMALL)
def test_loss_and_correct_agree_with_numpy(name):
    model, shape, classes = small(name)
    _, y = batch(shape, classes)
    logits = np.random.default_rng(3).normal(size=(6, 1 if classes == 2 else classes))
    if classes == 2:
        chance = 1 / (1 + np.exp(-logits[:, 0]))
        loss, right = -np.log(np.where(y == 1, chance, 1 - chance)), (logits[:, 0] > 0) == y
    else:
        loss = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
        right = logits.argmax(1) == y
    found = jax.jit(lambda logits: (model.loss(logits, y), model.correct(logits, y)))(
        logits.astype(np.float32)
    )
    np.testing.assert_allclose(found[0], loss, rtol=1e-5)
    np.testing.assert_array_equal(found[1], right)


def test_the_gradients_of_the_cross_entropy_are_those_of_optax():
    rng = np.random.default_rng(0)
    logits, along = (4 * rng.normal(size=(6, 3)).astype(np.float32) for _ in range(2))
    y, weight = (
        np.int32([0, 2, 1, 3, -1, 0]),
        np.linspace(0, 2, 6, dtype=np.float32),
    )  # two of the labels are out of range
    ours = lambda logits: jnp.sum(weight * cross_entropy(logits, y))  # noqa: E731

    def theirs(logits):
        return jnp.sum(weight * optax.softmax_cross_entropy(logits, jax.nn.one_hot(y, 3)))

    def bent(f):
        return jax.jit(lambda logits: (f(logits), *jax.jvp(jax.grad(f), (logits,), (along,))))(
            logits
        )

    for a, b in zip(bent(ours), bent(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["mclr", "mlp"])
def test_the_first_dense_layer_and_the_rest_make_the_whole(name):
    model, shape, classes = small(name)
    x, _ = batch(shape, classes)
    params = model.unravel(weights(model))
    first = model.forward.net.first
    (layer, kernel), (_, bias) = first.kernel, first.bias
    z = x.reshape(len(x), -1) @ np.asarray(params[layer][kernel]) + np.asarray(params[layer][bias])
    np.testing.assert_allclose(
        jax.jit(first.rest)(params, z), jax.jit(model.forward)(params, x), atol=1e-5
    )
    assert small("lstm")[0].forward.net.first is None


def test_building_allocates_nothing_and_flax_waits_until_then():
    code = (
        "import sys, cfljax.models as m\n"
        "m.MODELS.check('cnn', {}, 'model')\n"
        "assert not {'flax', 'optax'} & set(sys.modules)\n"
        "import jax\n"
        "before = sum(a.nbytes for a in jax.live_arrays())\n"
        "model = m.build('mlp', {'hidden': [30000, 40000]}, (28, 28), 10)\n"
        "assert model.size > 10**9\n"
        "assert sum(a.nbytes for a in jax.live_arrays()) - before < 10**4\n"
        "jax.eval_shape(model.init, jax.random.key(0))\n"
        "assert not {'flax', 'optax'} & set(sys.modules)\n"  # models of dense layers do without
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("hidden", [(), (7,), (7, 5)])
def test_dense_layers_are_those_of_flax(hidden):
    options = {"hidden": list(hidden)} if hidden else {}
    model = build("mlp" if hidden else "mclr", options, (4, 3), 6)
    theirs = Dense(hidden, 6)
    x = np.random.default_rng(0).normal(size=(9, 4, 3)).astype(np.float32)
    params = model.unravel(weights(model))
    shapes = jax.eval_shape(theirs.init, jax.random.key(1), x)["params"]
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, shapes)

    def loss(forward):
        return lambda params: jnp.sum(jnp.tanh(forward(params, x)))

    ours, flax = loss(model.forward), loss(lambda params, x: theirs.apply({"params": params}, x))
    found = jax.jit(lambda params: [jax.value_and_grad(of)(params) for of in (ours, flax)])(params)
    jax.tree.map(np.testing.assert_array_equal, *found)


@pytest.mark.parametrize(("name", "options", "shape", "words"), [
    ("cnn", {"channels": [1] * 4}, (8, 8), "model.channels"), ("cnn", {}, (60,), "needs images"),
    ("cnn_cifar", {}, (8, 8, 1), "model.crop = 24"), ("cnn_cifar", {"dense": []}, (32, 32, 3), "model.dense"),
    ("lstm", {}, (60,), "steps, features"), ("mlp", {"hidden": [0]}, (60,), "model.hidden"),
    ("mlp", {"hiden": [3]}, (60,), 'did you mean "hidden"'), ("mpl", {}, (60,), 'did you mean "mlp"'),
    ("resnet20", {}, (60,), "needs images"), ("resnet20", {"groups": 3}, (8, 8, 1), "model.groups = 3"),
    ("vit_tiny", {"patch": 3}, (8, 8, 1), "model.patch = 3"), ("vit_tiny", {"heads": 5}, (8, 8, 1), "model.heads = 5"),
    ("char_lstm", {}, (8, 8), 'use "lstm"'), ("transformer", {"task": "class"}, (8,), "model.vocabulary"),
    ("transformer", {"task": "class", "predict": "every"}, (8,), "model.predict"),
    ("transformer", {"padding": 0}, (8,), "model.padding"),
    ("transformer", {"predict": "every", "vocabulary": 11}, (8,), "labels must be tokens"),
    ("transformer", {"vocabulary": 3}, (8, 8), "model.vocabulary"),
])  # fmt: skip
def test_what_cannot_be_built_says_why_in_one_line(name, options, shape, words):
    with pytest.raises(SpecError) as raised:
        build(name, options, shape, 10)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


SPREADS = [("lecun", 0.9, 1.1), ("he", 1.8, 2.2), ("glorot", 0.9, 1.1), ("torch", 0.3, 0.36)]


@pytest.mark.parametrize(("start", "low", "high"), SPREADS)
def test_initial_weights_have_the_variance_of_their_name(start, low, high):
    model = build("mlp", {"hidden": [100], "init": start}, (100,), 3)
    layer = jax.tree.map(np.asarray, model.unravel(model.init(jax.random.key(0)))["dense_0"])
    assert low < 100 * np.var(layer["kernel"]) < high
    assert (start == "torch") == bool(np.any(layer["bias"]))


@pytest.mark.parametrize("name", every(SMALL, often=("mlp", "vit_tiny", "char_lstm")))
def test_every_model_takes_every_start(name):
    words = MODELS.entry(name).options.__dataclass_fields__["init"].metadata["choices"]
    models = [small(name, init=word)[0] for word in words]
    for word, flat in zip(
        words,
        jax.jit(lambda key: [model.init(key) for model in models])(jax.random.key(0)),
        strict=True,
    ):
        assert np.isfinite(flat).all()
        assert (word == "zeros") == (not np.asarray(flat).any())


def test_a_model_of_more_parameters_than_an_index_reaches_is_refused():
    with pytest.raises(SpecError, match="parameters; at most"):
        build("mlp", {"hidden": [100_000, 100_000]}, (5, 5), 3)


@pytest.mark.parametrize("prefix", ["dense_0", "params/dense_0", "dense_0/"])
def test_part_of_says_which_numbers_belong_to_a_layer(prefix):
    model = small("mlp")[0]
    params = jax.tree.map(np.zeros_like, model.unravel(weights(model)))
    params["dense_0"] = jax.tree.map(np.ones_like, params["dense_0"])
    np.testing.assert_array_equal(part_of(model, prefix), np.asarray(model.ravel(params)) == 1)


def test_part_of_takes_a_path_and_refuses_what_is_no_parameter():
    model = small("cnn")[0]
    assert (
        part_of(model, "params").all()
        and part_of(model, "head/dense_1/bias").sum() == small("cnn")[2]
    )
    with pytest.raises(SpecError, match='"dense_0"'):
        part_of(model, "dense_0")
