"""The optimisers of optax that specs may name, of clients (`train.optimizer`) and of the server
(`train.server`)."""

from __future__ import annotations

import functools
import inspect
import math

from cfljax.config.frozen import FrozenTable
from cfljax.errors import SpecError, suggest
from cfljax.lazy import jax, optax
from cfljax.registry.options import Table, Value, show

# Optimisers whose update needs losses, which local training does not pass to it
_NEED_MORE = ("lbfgs", "polyak_sgd")


def list_optimisers(server: bool = False) -> dict[str, dict[str, Value]]:
    """Return optax's optimisers with their arguments beside the learning rate, and the defaults.
    `server`: also servers' own."""
    from cfljax.round.stages.server import PRINTED

    found: dict[str, dict[str, Value]] = {}
    for name, thing in (
        {each: getattr(optax, each) for each in dir(optax)} | (PRINTED if server else {})
    ).items():
        if name.startswith("_") or name in _NEED_MORE or not inspect.isfunction(thing):
            continue
        arguments = {p.name: p.default for p in inspect.signature(thing).parameters.values()}
        if next(iter(arguments), "") == "learning_rate":
            found[name] = {
                key: default for key, default in arguments.items() if key != "learning_rate"
            }
    return found


@functools.lru_cache(maxsize=64)
def count_state(name: str, arguments: Table) -> int:
    """Return roughly how many numbers the optimiser stores per parameter: 2 for Adam."""
    from cfljax.round.stages.server import maker

    # Many parameters, so that counters and other scalars of a state round to nothing
    size = 1 << 12
    state = jax.eval_shape(
        maker(name)(0.1, **arguments).init, jax.ShapeDtypeStruct((size,), "float32")
    )
    return round(sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state)) / size)


@functools.lru_cache(maxsize=64)
def _trace_step(name: str, arguments: Table) -> None:
    """Trace a first step: optax checks many arguments only then."""
    from cfljax.round.stages.server import maker

    def step(params: Value) -> Value:
        made = maker(name)(0.1, **arguments)
        return made.update(params, made.init(params), params)

    jax.eval_shape(
        step,
        {"dense": {name: jax.ShapeDtypeStruct((2, 3), "float32") for name in ("kernel", "bias")}},
    )


def check_optimiser(
    name: str, arguments: Table, where: str, rate: str, server: bool = False
) -> None:
    """Reject an optimiser that optax does not have, or arguments that it does not take. `where` is
    its key in the spec, `rate` that of its learning rate; `server`: it is a server's."""
    known = list_optimisers(server)
    if name not in known:
        raise SpecError(f'{where} = "{name}": optax has no such optimiser' + suggest(name, known))
    for key, value in arguments.items():
        if key == "learning_rate":
            raise SpecError(f"{where}.learning_rate: the learning rate is {rate}")
        if key not in known[name]:
            raise SpecError(
                f"{where}.{key}: {name} takes no such argument" + suggest(key, known[name])
            )
        if isinstance(known[name][key], (int, float)) and not isinstance(value, (int, float)):
            raise SpecError(f"{where}.{key} = {show(value)}: must be a number")
    try:
        if name != "sgd" or arguments:
            _trace_step(name, FrozenTable(arguments))
    # optax raises many kinds of errors for wrong arguments
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise SpecError(
            f"{where} = {show(arguments)}: optax.{name} refuses it ({reason})"
        ) from None
