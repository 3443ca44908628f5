"""A network of any kind (flax.linen, flax.nnx or a pair of functions) as two functions: `init` and
`apply`.

The running statistics of flax.linen's `BatchNorm` are entries of the parameters, beside scale and
bias: `running_mean` and `running_var`. In training their gradient is not one: it is what they lose
in the step (old − new, see `_record`)."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from cfljax.errors import SpecError
from cfljax.keys import fold
from cfljax.lazy import custom_vjp, jax, jnp
from cfljax.types import Array, Tree

if TYPE_CHECKING:
    from flax import linen, nnx

    Network = (
        linen.Module
        | Callable[[nnx.Rngs], nnx.Module]
        | tuple[Callable[[Array], Tree], Callable[..., Array]]
    )
    """A linen module, a class or factory of nnx modules, or a pair `init(key) -> params`,
    `apply(params, x[, key]) -> logits`."""


Apply = Callable[..., Array]
"""(params, x f32[B, ...], key) -> logits f32[B, outputs]. The key draws dropout; None outside of
training. A network with batch statistics also takes the mask bool[B] of the samples that count,
and the paths of the layers that use their running statistics all the same; without a mask all
do."""
Functions = tuple[Callable[[Array], Tree], Apply, tuple[str, ...]]
"""(init: key -> params, apply, the paths of the running statistics of batches in the
parameters)."""
# What the names of running statistics begin with in the parameters, and flax's name of the
# collection that they are from
RUNNING_PREFIX = "running_"
STATISTICS_COLLECTION = "batch_stats"


def to_functions(network: Network, sample: jax.ShapeDtypeStruct, name: str) -> Functions:
    """Convert a network to functions. `sample` has the shape of a batch with one sample; `name` is
    for errors."""
    if isinstance(network, tuple) and len(network) == 2 and all(callable(part) for part in network):
        init, pair = network
        if len(inspect.signature(pair).parameters) > 2:
            return init, pair, ()

        def apply_without_key(params: Tree, x: Array, _: Array | None) -> Array:
            return pair(params, x)

        return init, apply_without_key, ()
    from flax import linen, nnx

    if isinstance(network, nnx.Module):
        kind = type(network).__name__
        raise SpecError(
            f'model "{name}": is a module that was made already, and each run makes its own; give '
            f"the class, model={kind}, or a factory, model=lambda rngs: {kind}(…, rngs=rngs)"
        )
    if isinstance(network, linen.Module):
        return _wrap_linen(network, sample, name)
    if callable(network) and not (isinstance(network, type) and issubclass(network, linen.Module)):
        return _wrap_nnx(cast("Callable[[nnx.Rngs], nnx.Module]", network), name)
    wanted = "a flax.linen module, a class or factory of flax.nnx modules, or a pair (init, apply)"
    raise SpecError(f'model "{name}": {network!r:.60}: must be {wanted}')


def _training_argument(call: Callable[..., object], training: bool) -> dict[str, bool]:
    """Return the keyword argument that says whether a module trains (`deterministic`, `train` or
    `training`); {} if it has none."""
    names = inspect.signature(call).parameters
    if "deterministic" in names:
        return {"deterministic": not training}
    return {word: training for word in ("train", "training") if word in names}


class _Linen(NamedTuple):
    """A linen module, and what is known of it before it has parameters."""

    module: linen.Module
    name: str
    # Whether it trains -> the keyword argument that says so
    arguments: dict[bool, dict[str, bool]]
    # The path of each running statistic among the parameters -> its path in flax's collection of
    # statistics, and the paths of the layers that have some
    running: dict[tuple[str, ...], tuple[str, ...]]
    layers: set[tuple[str, ...]]


def _wrap_linen(module: linen.Module, sample: jax.ShapeDtypeStruct, name: str) -> Functions:
    """Convert a linen module to functions. Running statistics move from flax's collection into the
    parameters, so that they are sent, averaged and saved with them."""
    from flax.traverse_util import flatten_dict, unflatten_dict

    arguments = {
        training: _training_argument(type(module).__call__, training) for training in (False, True)
    }
    layers: set[tuple[str, ...]] = set()
    draw = _make_draw(module, sample, name, arguments[False], layers)
    # Traced, so that nothing is compiled for it
    shapes = jax.eval_shape(lambda: draw(jax.random.key(0)))
    running = {
        (*path[:-1], RUNNING_PREFIX + path[-1]): path
        for path in flatten_dict(shapes.get(STATISTICS_COLLECTION, {}))
    }
    _check_collections(name, shapes, [path for path in running.values() if path[:-1] not in layers])

    def init(key: Array) -> Tree:
        drawn = draw(key)
        found = flatten_dict(drawn.get(STATISTICS_COLLECTION, {}))
        return unflatten_dict(
            flatten_dict(drawn.get("params", {}))
            | {new: found[old] for new, old in running.items()}
        )

    apply = _make_apply(_Linen(module, name, arguments, running, layers))
    return init, apply, tuple("/".join(path) for path in running)


def _make_draw(
    module: linen.Module,
    sample: jax.ShapeDtypeStruct,
    name: str,
    argument: dict[str, bool],
    layers: set[tuple[str, ...]],
) -> Callable[[Array], Tree]:
    """Return key -> flax's collections of a new module's variables.

    Args:
      module: The network.
      sample: The shape of a batch with one sample.
      name: The network's name, for errors.
      argument: The keyword argument that says that it does not train.
      layers: Each call adds the paths of the layers with running statistics.
    """
    from flax import linen as nn

    make_variables: Callable[..., Tree] = module.init

    def draw(key: Array) -> Tree:
        with nn.intercept_methods(_normalise_by(None, name, layers)):
            # Dropout that no argument switches off asks for a key here, too
            return make_variables(
                {"params": key, "dropout": key}, jnp.zeros(sample.shape, sample.dtype), **argument
            )

    return draw


def _check_collections(name: str, shapes: Tree, foreign: list[tuple[str, ...]]) -> None:
    """Raise SpecError if a module keeps state that is neither parameters nor running statistics of
    a `BatchNorm`.

    Args:
      name: The network's name.
      shapes: The shapes of its collections.
      foreign: The paths of statistics that no `BatchNorm` has made.
    """
    extra = [kind for kind in shapes if kind not in ("params", STATISTICS_COLLECTION)]
    extra += ["/".join(path) for path in foreign]
    if extra:
        raise SpecError(
            f'model "{name}" keeps state besides its parameters ({", ".join(extra)}): use '
            "BatchNorm or GroupNorm"
        )


def _make_apply(network: _Linen) -> Apply:
    """Return the function `apply` of a linen module (see `Apply`)."""
    from flax import linen as nn
    from flax.traverse_util import flatten_dict, unflatten_dict

    compute: Callable[..., Tree] = network.module.apply
    running = network.running

    def apply(
        params: Tree,
        x: Array,
        key: Array | None,
        mask: Array | None = None,
        fixed: frozenset[str] = frozenset(),
    ) -> Array:
        flat = flatten_dict(params)
        statistics = {path: flat.pop(path) for path in running}
        # A step of the server or an attacker's update can move a variance below 0
        used = {
            running[path]: jnp.maximum(each, 0) if path[-1] == RUNNING_PREFIX + "var" else each
            for path, each in statistics.items()
        }
        variables = {
            "params": unflatten_dict(flat),
            STATISTICS_COLLECTION: jax.lax.stop_gradient(unflatten_dict(used)),
        }
        if mask is not None:
            # A batch of padding alone is computed as if all counted, whose mean would be 0 / 0, and
            # leaves the statistics as they are
            counts = jnp.any(mask)
            mask = mask | ~counts
        normalise = _normalise_by(mask, network.name, network.layers, fixed)
        with _explain_shapes(network.name), nn.intercept_methods(normalise):
            if key is None:
                return compute(variables, x, **network.arguments[False])
            # In the other implementation the padding of a batch changes the dropout of its samples
            with jax.threefry_partitionable(True):
                training = {
                    "rngs": {"dropout": fold(key, "dropout")},
                    **network.arguments[True],
                }
                if mask is None:
                    return compute(variables, x, **training)
                logits, changed = compute(variables, x, mutable=[STATISTICS_COLLECTION], **training)
        after = flatten_dict(changed[STATISTICS_COLLECTION])
        new = {
            path: jnp.where(counts, after[running[path]], each) for path, each in statistics.items()
        }
        return _record(logits, statistics, jax.lax.stop_gradient(new))

    return apply


@contextlib.contextmanager
def _explain_shapes(name: str) -> Iterator[None]:
    """Turn flax's error about the shape of a parameter into a line: the module was made with a
    batch of one sample, so that its layers depend on the size of the batch."""
    from flax.errors import ScopeParamShapeError

    try:
        yield
    except ScopeParamShapeError as error:
        raise SpecError(
            f'model "{name}": a layer\'s size depends on the number of samples in a batch, so that '
            "the model mixes samples; keep the first axis, as in x.reshape(x.shape[0], -1)"
        ) from error


def _normalise_by(
    mask: Array | None,
    name: str,
    layers: set[tuple[str, ...]],
    unchanging: frozenset[str] = frozenset(),
) -> Callable[..., Array]:
    """Return what flax calls instead of a module's method: each `BatchNorm` gets the mask bool[B]
    of the samples that count, unless it is to use its running statistics. Without a mask it does,
    and those at the paths `unchanging` always do. `layers` collects the paths of all."""
    from flax import linen as nn

    def call(
        next_fun: Callable[..., Array],
        args: tuple[Array, ...],
        kwargs: dict[str, Array],
        context: nn.module.InterceptorContext,
    ) -> Array:
        module = context.module
        if not isinstance(module, nn.BatchNorm) or context.method_name != "__call__":
            return next_fun(*args, **kwargs)
        layers.add(module.path)
        x = args[0]
        given = args[1] if len(args) > 1 else kwargs.get("use_running_average")
        own = module.use_running_average
        here = kwargs.get("mask")
        uses_running = mask is None or "/".join(module.path) in unchanging
        uses_running = uses_running or bool(own if given is None else given)
        if mask is not None and len(x) != len(mask):
            why = (
                f"gets {len(x)} rows of a batch of {len(mask)}, so padding cannot be told apart; "
                "use LayerNorm"
            )
            raise SpecError(f'model "{name}": BatchNorm {"/".join(module.path)} {why}')
        if mask is not None:
            of_samples = mask.reshape(-1, *[1] * (jnp.ndim(x) - 1))
            here = of_samples if here is None else here & of_samples
        # Flax accepts it once, from the module or from the call
        object.__setattr__(module, "use_running_average", None)
        try:
            return next_fun(x, use_running_average=uses_running, mask=here)
        finally:
            object.__setattr__(module, "use_running_average", own)

    return call


@custom_vjp()
def _record(logits: Array, old: Tree, new: Tree) -> Array:  # noqa: ARG001 (for its gradient)
    """Return the logits. The gradient by the statistics `old` is old − new, whatever the loss is:
    so the new statistics leave a function that returns logits alone (`local.train.make_stepper`
    takes them from there)."""
    return logits


def _record_forward(logits: Array, old: Tree, new: Tree) -> tuple[Array, tuple[Tree, Tree]]:
    return logits, (jax.tree.map(jnp.subtract, old, new), new)


def _record_backward(kept: tuple[Tree, Tree], change: Array) -> tuple[Array, Tree, Tree]:
    lost, new = kept
    return change, lost, jax.tree.map(jnp.zeros_like, new)


_record.defvjp(_record_forward, _record_backward)


def _wrap_nnx(factory: Callable[[nnx.Rngs], nnx.Module], name: str) -> Functions:
    """Convert a factory of nnx modules to functions. A module holds its parameters, so it is split
    into its structure, which is kept here, and its parameters; each call of `apply` joins the
    structure with the parameters that it is given, and with new random streams."""
    from flax import nnx

    # (structure, parameters, random streams, all other state)
    def split_new(key: Array) -> Tree:
        module = factory(nnx.Rngs(key))
        if not isinstance(module, nnx.Module):
            raise TypeError(f"it returned {module!r:.40}")
        return nnx.split(module, nnx.Param, nnx.RngState, ...)

    try:
        graph, _, streams, extra = jax.eval_shape(lambda: split_new(jax.random.key(0)))
    except TypeError as error:
        reason = str(error).split("\n")[0]
        raise SpecError(
            f'model "{name}": must be callable as factory(rngs) and return a flax.nnx '
            f"module: {reason}"
        ) from error
    if jax.tree.leaves(extra):
        raise SpecError(
            f'model "{name}" keeps state besides its parameters (batch statistics?): use '
            "GroupNorm or LayerNorm, or flax.linen"
        )

    def apply(params: Tree, x: Array, key: Array | None) -> Array:
        training = key is not None
        # A copy: variables belong to one trace
        module = nnx.merge(graph, params, _seed_streams(streams, key), copy=True)
        module.set_attributes(
            deterministic=not training, use_running_average=not training, raise_if_not_found=False
        )
        # In the other implementation the padding of a batch changes the dropout of its samples
        with jax.threefry_partitionable(True):
            return module(x, **_training_argument(type(module).__call__, training))

    return lambda key: split_new(key)[1], apply, ()


def _seed_streams(shapes: Tree, key: Array | None) -> Tree:
    """Return the states of the random streams of an nnx module, each with a different key."""
    leaves, tree = jax.tree.flatten(shapes)
    key = jax.random.key(0) if key is None else key
    fresh = [
        fold(key, "dropout", number)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else jnp.zeros(leaf.shape, leaf.dtype)
        for number, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(tree, fresh)
