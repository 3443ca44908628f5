"""A model that starts from a file: whole, with a frozen body of which only the head trains, or with
LoRA's adapters beside frozen kernels. The flat vector has only the parameters that train, so
methods cluster on them and send nothing else."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError, SpecWarning
from cfljax.keys import fold
from cfljax.lazy import jax, jnp
from cfljax.models.flat import (
    FirstDense,
    Net,
    NetForward,
    as_model,
    find_head,
    head_of,
    make_flattening,
    mark_statistics,
    paths_of,
)
from cfljax.models.options import ModelOptions, common_options
from cfljax.models.starts import to_normal
from cfljax.models.weights import Start, count_models, read_start
from cfljax.types import Array, Model, Tree

# Models whose head sees the mean of all pixels
POOLED_MODELS = ("resnet20", "resnet18", "mobilenet_v2")
# The layers of an attention, as here and in flax's own, whose kernels have an axis for the heads
ATTENTION_LAYERS = ("query", "key", "value", "out")


class Adapters(NamedTuple):
    """LoRA (Hu et al. 2022): beside a frozen kernel W, alpha / rank · down @ up trains."""

    rank: int
    alpha: float
    # "attention", "dense" or "all"
    where: str
    # Whether the head trains, as a whole
    head: bool


def apply_start(model: Model, options: object, lora: Adapters | None) -> Model:
    """Apply the weights file and the division that the options ask for; the model itself if they
    ask for none."""
    common = common_options(options)
    if common.weights is None:
        return model
    number = count_models(common.weights)
    forget_bias = float(getattr(options, "forget_bias", 0.0))
    starts = [
        read_start(model, common.weights, forget_bias, model.name not in POOLED_MODELS, at)
        for at in (range(number) if number else [None])
    ]
    start = starts[0]
    if start.misfit:
        warnings.warn(
            f'model.weights = "{common.weights}": the head is initialised: {start.misfit}',
            SpecWarning,
            stacklevel=2,
        )
    if start.batches and (lora is not None or common.frozen is not None):
        raise SpecError(
            f'model.weights = "{common.weights}": has batch normalisation, but model '
            f'"{model.name}" has no place for its means and variances, and frozen layers cannot '
            f"adapt; leave {'train.lora' if lora else 'model.frozen'} out"
        )
    for words in start.spare:
        warnings.warn(f'model.weights = "{common.weights}": {words}', SpecWarning, stacklevel=2)
    if number > 1:
        if lora is not None or common.frozen is not None:
            raise SpecError(
                f'model.weights = "{common.weights}": has {number} models, and '
                f"{'train.lora' if lora else 'model.frozen'} begins with one for all; take the "
                "export of one cluster"
            )
        return model._replace(first_models=_begin_each(model, starts, common))
    if lora is not None:
        return _add_lora(model, start, lora, common.jitter)
    begin = _make_draw(model, start, common.jitter)
    if common.frozen is None:
        return model._replace(init=jax.jit(begin))
    return _train_head(model, start, begin)


def _make_draw(model: Model, start: Start, jitter: float) -> Callable[[Array], Array]:
    """Return key -> f32[d]: the start, `jitter` times each parameter's spread as noise; what the
    file lacks is drawn."""
    sizes = [math.prod(leaf.shape) for _, leaf in paths_of(model)]
    edges = np.cumsum(sizes)[:-1]
    spreads = [float(np.std(part)) for part in np.split(start.flat, edges)]
    spread = np.repeat(spreads, sizes).astype(np.float32)

    def begin(key: Array) -> Array:
        flat = jnp.asarray(start.flat)
        if jitter:
            with jax.threefry_partitionable(True):
                flat = flat + jitter * spread * jax.random.normal(fold(key, "jitter"), flat.shape)
        return flat if start.known.all() else jnp.where(start.known, flat, model.init(key))

    return begin


def _begin_each(
    model: Model, starts: list[Start], common: ModelOptions
) -> Callable[[Array, int], Array]:
    """Return (key, K) -> f32[K, d]: cluster k begins with the k-th start."""
    draws = [_make_draw(model, start, common.jitter) for start in starts]

    def begin(key: Array, clusters: int) -> Array:
        if clusters != len(draws):
            raise SpecError(
                f'model.weights = "{common.weights}": has {len(draws)} models, and the method '
                f"begins with {clusters}; take a method with clusters = {len(draws)}, or the "
                "export of one cluster"
            )
        return jnp.stack([draw(fold(key, "model", at)) for at, draw in enumerate(draws)])

    return begin


class Division(NamedTuple):
    """The parameters of a network that train."""

    # The tree of the parameters that train
    shapes: Tree
    # Params -> the parameters of the whole network
    whole: Callable[[Tree], Tree]
    # Key -> params
    draw: Callable[[Array], Tree]


def _divide(model: Model, parts: Division) -> Model:
    size, ravel, unravel = make_flattening(model.name, parts.shapes)
    whole, penalty = parts.whole, model.penalty

    def forward(
        params: Tree, x: Array, key: Array | None = None, mask: Array | None = None
    ) -> Array:
        return model.forward(whole(params), x, key, mask)

    return model._replace(
        size=size,
        init=jax.jit(lambda key: ravel(parts.draw(key))),
        ravel=ravel,
        unravel=unravel,
        forward=forward,
        penalty=None if penalty is None else lambda params: penalty(whole(params)),
        whole=whole,
        statistics=(),
    )


def _train_head(model: Model, start: Start, begin: Callable[[Array], Array]) -> Model:
    path = head_of(model).split("/")
    _check_known(model, start, f"{head_of(model)}/", "frozen: the body")
    body = model.unravel(jnp.asarray(start.flat))
    shapes = _nest(
        {name: leaf for name, leaf in paths_of(model) if name.startswith("/".join(path) + "/")}
    )

    def draw(key: Array) -> Tree:
        return _set_at(shapes, path, _get_at(model.unravel(begin(key)), path))

    return _divide(
        model, Division(shapes, lambda params: _set_at(body, path, _get_at(params, path)), draw)
    )


def to_head_model(model: Model, divided: Model, classes: int, width: int) -> Model:
    """Make a model of the body's features f32[width] with the head of `_train_head`'s model: the
    same vector, without the body."""
    path = head_of(model).split("/")
    leaf = dict(paths_of(divided))
    bias = "/".join([*path, "bias"]) in leaf

    def apply(params: Tree, x: Array) -> Array:
        head = _get_at(params, path)
        return x @ head["kernel"] + (head["bias"] if bias else 0.0)

    shapes = jax.eval_shape(divided.unravel, jax.ShapeDtypeStruct((divided.size,), jnp.float32))
    first = FirstDense((*path, "kernel"), (*path, "bias"), lambda _, z: z) if bias else None
    assert isinstance(model.forward, NetForward)

    # The parameters are drawn as `divided` draws them
    def zeros(_: Array) -> Tree:
        return jax.tree.map(lambda of: jnp.zeros(of.shape), shapes)

    net = Net((zeros, apply), first=first)
    net = net._replace(loss=model.forward.net.loss, own=model.forward.net.own)
    return as_model(model.name, net, (width,), classes)._replace(init=divided.init)


def _add_lora(model: Model, start: Start, lora: Adapters, jitter: float) -> Model:
    leaves = dict(paths_of(model))
    head = find_head(model)
    kernels = {
        name: sides
        for name in leaves
        if (sides := _adapter_shape(name, leaves, lora, head)) is not None
    }
    if not kernels:
        raise SpecError(
            f'train.lora.where = "{lora.where}": model "{model.name}" has no such layer'
        )
    if lora.head and head is None:
        raise SpecError(
            f'train.lora.head = true: model "{model.name}" has no dense layer that could be '
            "its head"
        )
    _check_known(model, start, f"{head}/" if lora.head else None, "train.lora: what does not train")
    base = model.unravel(jnp.asarray(start.flat))
    scale = lora.alpha / lora.rank
    whole_head = {
        name: leaf for name, leaf in leaves.items() if lora.head and name.startswith(f"{head}/")
    }
    shapes: dict[str, jax.ShapeDtypeStruct] = dict(whole_head)
    for name, (inputs, outputs) in kernels.items():
        owner = name.rpartition("/")[0]
        shapes[f"{owner}/down"] = jax.ShapeDtypeStruct((inputs, lora.rank), jnp.float32)
        shapes[f"{owner}/up"] = jax.ShapeDtypeStruct((lora.rank, outputs), jnp.float32)
    spreads = {name: float(np.std(_get_at(base, name.split("/")))) for name in kernels}

    def whole(params: Tree) -> Tree:
        tree = base
        for name in kernels:
            layer = _get_at(params, name.split("/")[:-1])
            old = _get_at(base, name.split("/"))
            new = old + scale * (layer["down"] @ layer["up"]).reshape(old.shape)
            tree = _set_at(tree, name.split("/"), new)
        for name in whole_head:
            tree = _set_at(tree, name.split("/"), _get_at(params, name.split("/")))
        return tree

    def draw(key: Array) -> Tree:
        begun = model.unravel(_make_draw(model, start, jitter)(key)) if whole_head else {}
        drawn = {name: _get_at(begun, name.split("/")) for name in whole_head}
        for number, (name, (inputs, outputs)) in enumerate(kernels.items()):
            owner = name.rpartition("/")[0]
            with jax.threefry_partitionable(True):
                one = jax.random.uniform(
                    fold(key, "lora", number), (inputs + outputs, lora.rank), jnp.float32, -1, 1
                )
            drawn[f"{owner}/down"] = to_normal(one[:inputs]) / math.sqrt(inputs)
            # Kernel noise of `jitter` times its spread: scale · down @ up has scale² · rank /
            # inputs times the variance of up
            size = jitter * spreads[name] / (scale * math.sqrt(lora.rank / inputs))
            drawn[f"{owner}/up"] = size * to_normal(one[inputs:].T)
        return _nest(drawn)

    return _divide(model, Division(_nest(shapes), whole, draw))


def _adapter_shape(
    name: str, leaves: dict[str, jax.ShapeDtypeStruct], lora: Adapters, head: str | None
) -> tuple[int, int] | None:
    """Return (inputs, outputs) of a parameter that is a kernel and gets an adapter; None: it gets
    none."""
    owner, _, last = name.rpartition("/")
    if last != "kernel" or f"{owner}/recurrent" in leaves or owner == head:
        return None
    above, _, own = owner.rpartition("/")
    all_four = all(f"{above}/{each}/kernel" in leaves for each in ATTENTION_LAYERS)
    attention = own in ATTENTION_LAYERS and (all_four or "attention" in above.lower())
    shape = leaves[name].shape
    if len(shape) not in ((2, 3) if attention else (2,)):
        return None
    if lora.where not in ("all", "attention" if attention else "dense"):
        return None
    # Heads × numbers of a head are what "out" gets
    inputs = math.prod(shape[: len(shape) - 1 if own == "out" else 1])
    return inputs, math.prod(shape) // inputs


def _check_known(model: Model, start: Start, but: str | None, what: str) -> None:
    """Require that the file has all parameters (except those that begin with `but`)."""
    leaves = paths_of(model)
    trains = np.repeat(
        [but is not None and name.startswith(but) for name, _ in leaves],
        [math.prod(leaf.shape) for _, leaf in leaves],
    )
    if not (start.known | trains).all():
        raise SpecError(
            f"{what} must be in model.weights unchanged: {start.misfit}; give "
            "train.lora.head = true"
        )


def _get_at(tree: Tree, path: list[str]) -> Tree:
    for step in path:
        tree = tree[step]
    return tree


def _set_at(tree: Tree, path: list[str], value: Tree) -> Tree:
    first, *rest = path
    return {**tree, first: _set_at(tree.get(first, {}), rest, value) if rest else value}


def _nest(flat: dict[str, Tree]) -> Tree:
    tree: Tree = {}
    for name, value in flat.items():
        tree = _set_at(tree, name.split("/"), value)
    return tree


def in_bfloat16(model: Model, tokens: bool = False) -> Model:
    """Return the model whose network computes in bfloat16, forwards and backwards, in training and
    when it is scored.

    Parameters, their gradients, statistics of batches and losses stay float32. The model does not
    train on Gram matrices, which are products of the samples as they are. `tokens`: samples are ids
    of tokens, which stay: bfloat16 has no odd numbers above 256.
    """
    forward = model.forward
    assert isinstance(forward, NetForward)
    marks = mark_statistics(model)

    def apply(params: Tree, x: Array, key: Array | None, *mask: Array) -> Array:
        halves = jax.tree.map(lambda leaf, running: leaf if running else _half(leaf), params, marks)
        return forward.apply(halves, x if tokens else _half(x), key, *mask).astype(jnp.float32)

    return model._replace(
        forward=dataclasses.replace(forward, apply=apply, net=forward.net._replace(first=None))
    )


def _half(leaf: Array) -> Array:
    return leaf.astype(jnp.bfloat16) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
