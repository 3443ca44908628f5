"""Passing many clients' samples through models as large matrix products, in blocks, without padding any client.

The samples of the listed clients are laid end to end; block b is samples b·B … (b+1)·B − 1 of that line, whoever holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import compress, repeat
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from cfljax.devices.spread import devices, mine, share
from cfljax.federation.gather import samples
from cfljax.types import Federation, Model, Split

BLOCK_FLOATS = 1 << 22
"""How large the largest intermediate of a block may grow …"""
CACHED_FLOATS = 1 << 20
"""… and on a CPU, where it should stay in the cache (measured: an MLP's and a CNN's scores in four fifths of the time)."""


def block_size(model: Model, federation: Federation, copies: int, most: int) -> int:
    """Samples per block, so that the samples and the activations of `copies` models stay small. A block is computed whole, so there
    are about as many for each device, and they are no larger than that takes; `most`: all the samples that there may be."""
    x = jax.eval_shape(lambda: samples(federation, jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32), jnp.ones(1, bool))[0])
    params = jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32))
    jaxpr = jax.make_jaxpr(lambda p, v: model.forward(p, v, None))(params, x).jaxpr
    own = jaxpr.invars[: len(jax.tree.leaves(params))]
    widest = max([x.size, *(size * (copies if each else 1) for size, each in _widths(jaxpr, own))])
    floats = CACHED_FLOATS if jax.default_backend() == "cpu" else BLOCK_FLOATS
    limit = min(4096, max(16, floats // widest // 16 * 16))
    blocks = devices() * -(-max(most, 1) // (devices() * limit))
    return -(-max(most, 1) // (16 * blocks)) * 16


def _widths(jaxpr: Any, own: Iterable[Any]) -> Iterator[tuple[int, bool]]:
    """(size, whether each model has its own) of the intermediates of a one-sample pass that scale with the batch. `own`: the inputs
    of which each model has its own."""
    known = set(own)
    for equation in jaxpr.eqns:
        inputs = [not isinstance(v, Literal) and v in known for v in equation.invars]
        if any(inputs):
            known.update(equation.outvars)
        yield from ((v.aval.size, any(inputs)) for v in equation.outvars if v.aval.shape[:1] == (1,))
        for inner in equation.params.values():
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                alike = len(inner.invars) == len(inputs)
                yield from _widths(inner, compress(inner.invars, inputs if alike else repeat(any(inputs))))


def fold_blocks(
    federation: Federation, split: Split, clients: jax.Array, mask: jax.Array, block: int, visit: Callable[..., Any], zero: Any
) -> Any:
    """`zero` after `visit(carry, x, y, s, valid)` of each block; s i32[B] is the place of the sample's owner in `clients`.
    The carry is a sum that starts at zero: devices share the blocks, or each visits the samples that it alone has, and add up.

    Clients whose mask is False, and clients without samples, take no room on the line: the work is that of the samples there are.
    """
    owner = None if split.shared or federation.owner is None else federation.owner[clients]
    counts = jnp.where(mine(owner, mask), split.count[clients], 0)
    ends = jnp.cumsum(counts)
    starts = ends - counts

    def body(b: jax.Array, carry: Any) -> Any:
        where = b * block + jnp.arange(block)
        owner = jnp.minimum(jnp.searchsorted(ends, where, side="right"), clients.shape[0] - 1)
        valid = where < ends[-1]
        client = clients[owner]
        rows = split.rows[jnp.where(valid, split.start[client] + where - starts[owner], 0)]
        x, y = samples(federation, client, rows, valid)
        return visit(carry, x, y, owner, valid)

    blocks = -(-ends[-1] // block)

    def part(device: jax.Array, devices: int) -> Any:
        if owner is not None:  # they are this device's
            return jax.lax.fori_loop(0, blocks, body, zero)
        own = (blocks - device + devices - 1) // devices
        return jax.lax.fori_loop(0, own, lambda i, carry: body(device + i * devices, carry), zero)

    return share(part)


def client_losses(
    model: Model, federation: Federation, split: Split, models: jax.Array, clients: jax.Array, mask: jax.Array
) -> jax.Array:
    """f32[K, S]: the mean loss of each model on all samples of each client; 0 for a client without samples or masked."""
    block = block_size(model, federation, models.shape[0], clients.shape[0] * split.longest)
    params = jax.vmap(model.unravel)(models)

    def visit(total: jax.Array, x: jax.Array, y: jax.Array, owner: jax.Array, valid: jax.Array) -> jax.Array:
        losses = jax.vmap(lambda p: model.loss(model.forward(p, x), y))(params)
        return total.at[:, owner].add(jnp.where(valid, losses, 0.0))

    zero = jnp.zeros((models.shape[0], clients.shape[0]))
    total = fold_blocks(federation, split, clients, mask, block, visit, zero)
    return total / jnp.maximum(split.count[clients], 1)
