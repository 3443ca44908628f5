"""From a network to a `types.Model`: flat float32 vectors outside, the network's own tree of
parameters inside."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from cfljax.errors import CfljaxError, SpecError, locate_frame, suggest
from cfljax.lazy import custom_jvp, jax, jnp, optax
from cfljax.models.apply import RUNNING_PREFIX, Apply, to_functions
from cfljax.models.losses import LOSSES, Loss
from cfljax.types import Array, Model, OfLogits, Tree

if TYPE_CHECKING:
    from cfljax.models.apply import Network


class FirstDense(NamedTuple):
    """A model whose first layer is dense: logits = rest(params, x.reshape(B, -1) @ kernel +
    bias)."""

    # Keys that lead to the kernel f32[inputs, h] in the unravelled parameters
    kernel: tuple[str, ...]
    # Keys that lead to the bias f32[h]
    bias: tuple[str, ...]
    # (params, f32[B, h] the outputs of the first layer) -> logits f32[B, outputs]
    rest: Callable[[Tree, Array], Array]


class Net(NamedTuple):
    """A network with its loss, its initial parameters, its augmentation and its regularisation."""

    # A flax.linen module, a class or factory of flax.nnx modules, or a pair of functions (init,
    # apply)
    network: Network
    start: Callable[[Array, Tree], Tree] | None = None
    """(key, tree of shapes) -> initial params; None: the network's initialisers draw them."""
    loss: str = "softmax"
    """"softmax": one logit per class; "sigmoid": one logit, two classes; "several": one logit per
    class, of which a sample may have several; or the name of a registered loss, as "mse"."""
    training: Callable[[Array, Array], Array] | None = None
    """(key, x f32[B, ...]) -> x as the network sees it in training (crops, flips)."""
    evaluation: Callable[[Array], Array] | None = None
    """x f32[B, ...] -> x as the network sees it outside of training, of the same shape."""
    # Params -> f32[]: regularisation that is added to the loss
    penalty: Callable[[Tree], Array] | None = None
    first: FirstDense | None = None
    own: tuple[OfLogits, OfLogits] | None = None
    """(loss, whether correct) in place of `loss`'s functions; in training it may read more columns
    than the logits."""
    body: Callable[[Tree, Array], Array] | None = None
    """(params, x f32[B, ...]) -> f32[B, width] what the head gets, outside of training; None: that
    is found in a linen module."""


class MakeModel(Protocol):
    """The function that a registry entry for a model has."""

    def __call__(
        self, options: Any, sample_shape: tuple[int, ...], classes: int, /
    ) -> Network | Net:
        """Build the network for samples of this shape and this number of classes; `options` is an
        instance of its Options class."""


@dataclasses.dataclass(frozen=True, eq=False)
class NetForward:
    """The `Model.forward` of a Net: augments x and applies the network."""

    apply: Apply
    net: Net
    # The paths of the layers of BatchNorm that use their running statistics in training, too
    fixed: frozenset[str] = frozenset()

    def __call__(
        self, params: Tree, x: Array, key: Array | None = None, mask: Array | None = None
    ) -> Array:
        """Return logits f32[B, outputs] of x f32[B, ...]; a key means training."""
        if key is not None and self.net.training is not None:
            x = self.net.training(key, x)
        elif key is None and self.net.evaluation is not None:
            x = self.net.evaluation(x)
        if mask is None:
            return self.apply(params, x, key)
        return self.apply(params, x, key, mask, self.fixed)


# The name in the registry of a network that `cfljax.run` was given
_GIVEN_NAME = re.compile(r"own-[0-9a-f]{8}-\d+")


def from_module(
    module: Network,
    sample_shape: tuple[int, ...],
    classes: int,
    *,
    loss: str = "softmax",
    name: str = "own",
) -> Model:
    """Make a model of a flax.linen module, a flax.nnx module class or factory (called with an
    `nnx.Rngs`), or a pair of functions `init(key) -> params`, `apply(params, x f32[B, ...][, key])
    -> logits f32[B, outputs]`, whose key is None outside of training. A module's argument `train`,
    `training` or `deterministic` says whether it trains."""
    return as_model(name, Net(module, loss=loss), sample_shape, classes)


def as_model(
    name: str, network: Network | Net, sample_shape: tuple[int, ...], classes: int
) -> Model:
    """Convert the network (or Net) to functions of flat vectors. Only shapes are evaluated: no
    parameters are allocated."""
    net = network if isinstance(network, Net) else Net(network)
    # Errors call it as its author does
    if _GIVEN_NAME.fullmatch(name):
        name = str(getattr(net.network, "__name__", type(net.network).__name__))
    if net.loss not in _LOSSES and net.loss not in LOSSES:
        raise SpecError(
            f'model "{name}": loss = "{net.loss}": unknown loss'
            + suggest(net.loss, [*_LOSSES, *LOSSES])
        )
    sample = jax.ShapeDtypeStruct((1, *sample_shape), jnp.float32)
    if net.evaluation is not None:
        sample = jax.eval_shape(net.evaluation, sample)
    try:
        init, apply, statistics = to_functions(net.network, sample, name)
        shapes = jax.eval_shape(lambda: init(jax.random.key(0)))
        logits = jax.eval_shape(lambda params, x: apply(params, x, None), shapes, sample)
        if statistics:
            jax.eval_shape(
                lambda params, x: apply(params, x, jax.random.key(0), jnp.ones(1, bool)),
                shapes,
                sample,
            )
    except CfljaxError:
        raise
    except Exception as error:
        # Whatever the network raises; flax's own errors go on with advice after the first line
        words = str(error).strip().splitlines() or [type(error).__name__]
        reason = f"{locate_frame(error)}{words[0]}"
        raise SpecError(
            f'model "{name}" cannot take samples of shape {sample.shape[1:]}: {reason}'
        ) from error
    if net.own is not None:
        loss = Loss(*net.own)
    elif net.loss in _LOSSES:
        loss = Loss(*_LOSSES[net.loss]())
    else:
        loss = _read_loss(net.loss)
    wanted = (1, 1 if net.loss == "sigmoid" else loss.outputs or classes)
    got = getattr(logits, "shape", type(logits).__name__)
    if got != wanted:
        labels = "for a number" if loss.outputs else f"for {classes} classes"
        need = f'must be {wanted} {labels} with loss "{net.loss}"'
        raise SpecError(f'model "{name}": the output for one sample is {got}: {need}')
    size, ravel, unravel = make_flattening(name, shapes)
    start = net.start
    draw = init if start is None else lambda key: start(key, shapes)
    assert loss.score_of_samples is not None
    begin = jax.jit(lambda key: ravel(draw(key)))
    return Model(
        name,
        size,
        begin,
        unravel,
        ravel,
        NetForward(apply, net),
        loss.of_samples,
        loss.score_of_samples,
        net.penalty,
        None,
        statistics,
        score=loss.score,
    )


def _read_loss(name: str) -> Loss:
    """Return the registered loss of this name, whose functions get float32; a SpecError if they do
    not return a number per sample."""
    loss = LOSSES.entry(name).make()

    def wrap(function: OfLogits, what: str) -> OfLogits:
        def of_samples(outputs: Array, y: Array) -> Array:
            found = function(outputs.astype(_real(outputs)), y)
            if jnp.shape(found) != outputs.shape[:1]:
                raise SpecError(
                    f'loss "{name}": the {what} of {outputs.shape[0]} samples has shape '
                    f"{list(jnp.shape(found))}: must be a number per sample, {outputs.shape[:1]}"
                )
            return found

        return of_samples

    score = loss.score_of_samples or _softmax()[1]
    return loss._replace(
        of_samples=wrap(loss.of_samples, "loss"), score_of_samples=wrap(score, "score")
    )


def paths_of(model: Model) -> list[tuple[str, jax.ShapeDtypeStruct]]:
    """Return (path, shape) of each parameter, in the order of the flat vector:
    "head/dense_0/kernel"."""
    shapes = jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32))
    leaves = jax.tree_util.tree_flatten_with_path(shapes)[0]
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]


def mark_statistics(model: Model) -> Tree:
    """Return the tree of parameters with whether each is a running statistic of batches
    (`Model.statistics`)."""
    return _mark(model, lambda path: path in model.statistics)


def mark_head(model: Model) -> Tree:
    """Return the tree of parameters with whether each belongs to the head (`head_of`)."""
    head = head_of(model) + "/"
    return _mark(model, lambda path: path.startswith(head))


def _mark(model: Model, is_marked: Callable[[str], bool]) -> Tree:
    """Return the tree of parameters with what `is_marked` says of their paths."""
    tree = jax.tree.structure(
        jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32))
    )
    return jax.tree.unflatten(tree, [is_marked(path) for path, _ in paths_of(model)])


def columns_of_statistics(model: Model) -> np.ndarray:
    """Return bool[d]: which numbers of the flat vector are running statistics of batches."""
    columns = np.zeros(model.size, bool)
    for path in model.statistics:
        columns |= part_of(model, path)
    return columns


@functools.lru_cache(maxsize=8)
def fix_statistics(model: Model, paths: frozenset[str]) -> Model:
    """Return the model in which the layers with these running statistics, paths of
    `Model.statistics`, normalise by them in training as they do when the model is scored."""
    assert isinstance(model.forward, NetForward)
    layers = frozenset(path.rpartition("/")[0] for path in paths)
    moving = tuple(path for path in model.statistics if path.rpartition("/")[0] not in layers)
    return model._replace(
        forward=dataclasses.replace(model.forward, fixed=model.forward.fixed | layers),
        statistics=moving,
    )


def part_of(model: Model, prefix: str) -> np.ndarray:
    """Return bool[d]: which numbers of the flat vector belong to the parameters whose path is
    `prefix` or begins with it.

    Args:
        model: The model.
        prefix: The name of a layer, as "dense_0", or a longer path, as "head/dense_0/kernel";
            flax's "params/" before it may be left out.

    Example:
        ```python
        head = part_of(model, "dense_1")
        models = state.models.at[:, head].set(0.0)
        ```
    """
    leaves = paths_of(model)
    names = [name for name, _ in leaves]
    begin = prefix.rstrip("/") + "/"
    chosen = [f"{name}/".startswith(begin) or f"params/{name}/".startswith(begin) for name in names]
    if not any(chosen):
        raise SpecError(
            f'model "{model.name}": has no parameters "{prefix}"' + suggest(prefix, names)
        )
    return np.repeat(chosen, [math.prod(leaf.shape) for _, leaf in leaves])


def head_of(model: Model) -> str:
    """Return the path of the head: the last dense layer in the order of names and numbers. A
    SpecError if there is none.

    Args:
        model: The model.

    Example:
        ```python
        last_layer = part_of(model, head_of(model))
        ```
    """
    paths = paths_of(model)
    layers: dict[str, set[tuple[str, int]]] = {}
    for path, leaf in paths:
        layer, _, name = path.rpartition("/")
        layers.setdefault(layer, set()).add((name, leaf.ndim))
    dense = [
        layer
        for layer, names in layers.items()
        if ("kernel", 2) in names and names <= {("kernel", 2), ("bias", 1)}
    ]
    if not dense:
        names = sorted({path.partition("/")[0] for path, _ in paths})
        raise SpecError(
            f'model "{model.name}": no dense layer that could be its head: name parts by '
            "their paths" + suggest("head", names)
        )
    return max(dense, key=_split_numbers)


def _split_numbers(path: str) -> list[tuple[bool, int, str]]:
    """Return a key by which "dense_10" comes after "dense_9"."""
    parts = [part for part in re.split(r"(\d+)", path) if part]
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def norm_of(model: Model) -> np.ndarray:
    """Return bool[d]: which numbers belong to layers of normalisation: scale, bias and running
    statistics. A SpecError if none do."""
    split = [
        (path.removesuffix("/value").rpartition("/"), math.prod(leaf.shape))
        for path, leaf in paths_of(model)
    ]
    layers = {
        layer for (layer, _, name), _ in split if name == "scale" or name.startswith(RUNNING_PREFIX)
    }
    if not layers:
        why = (
            'has no layers of normalisation for the part "norm"; use resnet20 or another model '
            "that has"
        )
        raise SpecError(f'model "{model.name}": {why}')
    return np.repeat([layer in layers for (layer, _, _), _ in split], [size for _, size in split])


def mask_head(model: Model) -> np.ndarray:
    """Return bool[d]: which numbers of the flat vector belong to the head. A SpecError if there is
    none, or nothing else."""
    head = part_of(model, head_of(model))
    if head.all():
        raise SpecError(
            f'model "{model.name}": has one layer, so its head is all of it and there is no '
            "body; use more layers"
        )
    return head


def find_head(model: Model) -> str | None:
    """Return the path of the head as `head_of` does; None if there is none."""
    try:
        return head_of(model)
    except SpecError:
        return None


def make_flattening(
    name: str, shapes: Tree
) -> tuple[int, Callable[[Tree], Array], Callable[[Array], Tree]]:
    """Return d, the function ravel: params -> f32[d], and the function unravel: f32[d] -> params
    for a tree of shapes, in the order of JAX's `ravel_pytree`. Unlike that function's `unravel`,
    this one needs no parameters and accepts float64."""
    paths, tree = jax.tree_util.tree_flatten_with_path(shapes)
    for path, leaf in paths:
        if leaf.dtype != jnp.float32:
            where = jax.tree_util.keystr(path)
            raise SpecError(
                f'model "{name}": parameter {where} is {leaf.dtype}: parameters are float32 '
                "(compute in another dtype)"
            )
    forms = [leaf.shape for _, leaf in paths]
    sizes = [math.prod(form) for form in forms]
    if not sum(sizes):
        raise SpecError(f'model "{name}" has no parameters: give it at least one layer to train')
    if sum(sizes) >= 2**31:
        raise SpecError(f'model "{name}" has {sum(sizes):,} parameters; at most 2,147,483,647')

    # Outside of jit each is one program, not one per operation
    @functools.partial(jax.jit, inline=True)
    def ravel(params: Tree) -> Array:
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(params)])

    @functools.partial(jax.jit, inline=True)
    def unravel(flat: Array) -> Tree:
        # Its transpose is one concatenation, not a sum of padded vectors
        parts = jax.lax.split(flat, sizes)
        return jax.tree.unflatten(
            tree, [part.reshape(form) for part, form in zip(parts, forms, strict=True)]
        )

    return sum(sizes), ravel, unravel


@custom_jvp()
def cross_entropy(logits: Array, y: Array) -> Array:
    """Compute −log softmax(logits f32[B, C])[y], f32[B]; 0 out of range. Its own derivative takes
    half the kernels."""
    return _losses_and_powers(logits, y)[0]


def _losses_and_powers(logits: Array, y: Array) -> tuple[Array, Array, Array, Array]:
    """Return the losses f32[B], f32[B, C] 1 at the label, f32[B, C] the exponentials, and f32[B]
    their sums."""
    # One-hot labels, not a gather: its gradient is a scatter, and a label out of range would make a
    # NaN
    wanted = jax.nn.one_hot(y, logits.shape[-1], dtype=logits.dtype)
    shifted = logits - jnp.max(logits, axis=-1, keepdims=True)
    powers = jnp.exp(shifted)
    total = jnp.sum(powers, axis=-1, keepdims=True)
    return -jnp.sum(wanted * (shifted - jnp.log(total)), axis=-1), wanted, powers, total[..., 0]


@cross_entropy.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    logits, y = primals
    losses, wanted, powers, total = _losses_and_powers(logits, y)
    there = (y >= 0) & (y < logits.shape[-1])
    change = jnp.where(there, jnp.sum(powers * tangents[0], axis=-1) / total, 0.0)
    return losses, change - jnp.sum(wanted * tangents[0], axis=-1)


def _softmax() -> tuple[OfLogits, OfLogits]:

    def loss(logits: Array, y: Array) -> Array:
        return cross_entropy(logits.astype(_real(logits)), y)

    return loss, lambda logits, y: jnp.argmax(logits, axis=-1) == y


def _sigmoid() -> tuple[OfLogits, OfLogits]:

    def loss(logits: Array, y: Array) -> Array:
        logit = logits[..., 0].astype(_real(logits))
        return optax.sigmoid_binary_cross_entropy(logit, y.astype(logit.dtype))

    return loss, lambda logits, y: (logits[..., 0] > 0) == (y > 0)


def _several() -> tuple[OfLogits, OfLogits]:
    """Return (loss, correct) for y of 0 and 1 per class: the mean loss of a sample's labels;
    correct if all are."""

    def loss(logits: Array, y: Array) -> Array:
        logits = logits.astype(_real(logits))
        return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, y.astype(logits.dtype)), axis=-1)

    return loss, lambda logits, y: jnp.all((logits > 0) == (y > 0), axis=-1)


_LOSSES: dict[str, Callable[[], tuple[OfLogits, OfLogits]]] = {
    "softmax": _softmax,
    "sigmoid": _sigmoid,
    "several": _several,
}


def _real(logits: Array) -> jnp.dtype:
    return jnp.promote_types(logits.dtype, jnp.float32)
