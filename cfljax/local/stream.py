"""Many clients' samples pass through models as large matrix products, in blocks, without padding for any client.

The samples of the listed clients are laid end to end on a line; block b is samples b·B … (b+1)·B − 1 of that line, whoever
has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import compress, repeat
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from cfljax.devices.spread import devices, of_this_device, share
from cfljax.federation.gather import samples
from cfljax.types import Array, Federation, Model, Split, Tree

ON_CPU, ON_ACCELERATOR = 1 << 20, 1 << 22
"""Numbers of the largest intermediate of a block. On a CPU it should stay in the cache (measured: an MLP's and a CNN's scores then
take four fifths of the time)."""
Carry = TypeVar("Carry")
Visit = Callable[[Carry, Array, Array, Array, Array], Carry]
"""(carry, x f32[B, ...], y i32[B], s i32[B], valid bool[B]) -> carry with a block of samples; s is the place of each sample's
client among the listed ones."""


def block_size(model: Model, federation: Federation, copies: int, most: int, on_cpu: bool = True) -> int:
    """Samples per block, so that the samples and the activations of `copies` models stay small. `most`: an upper bound of the
    number of samples. A block is computed whole: there are about as many for each device, and none is larger than that takes."""
    x = jax.eval_shape(lambda: samples(federation, jnp.zeros(1, jnp.int32), jnp.zeros(1, jnp.int32), jnp.ones(1, bool))[0])
    params = jax.eval_shape(model.unravel, jax.ShapeDtypeStruct((model.size,), jnp.float32))
    jaxpr = jax.make_jaxpr(lambda p, v: model.forward(p, v, None))(params, x).jaxpr
    of_model = jaxpr.invars[: len(jax.tree.leaves(params))]
    widest = max([x.size, *(size * (copies if each else 1) for size, each in _widths(jaxpr, of_model))])
    floats = ON_CPU if on_cpu else ON_ACCELERATOR
    limit = min(4096, max(16, floats // widest // 16 * 16))
    blocks = devices() * -(-max(most, 1) // (devices() * limit))
    return -(-max(most, 1) // (16 * blocks)) * 16


def _widths(jaxpr: Tree, of_model: Iterable[object]) -> Iterator[tuple[int, bool]]:
    """(size, whether each model has its own) of the intermediates of a one-sample pass that scale with the batch. `of_model`: the
    inputs of which each model has its own."""
    known = set(of_model)
    for equation in jaxpr.eqns:
        inputs = [not isinstance(v, Literal) and v in known for v in equation.invars]
        if any(inputs):
            known.update(equation.outvars)
        yield from ((v.aval.size, any(inputs)) for v in equation.outvars if v.aval.shape[:1] == (1,))
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, tuple) else (parameter,):
                inner = getattr(inner, "jaxpr", inner)
                if inner is not None and hasattr(inner, "eqns"):
                    alike = len(inner.invars) == len(inputs)
                    yield from _widths(inner, compress(inner.invars, inputs if alike else repeat(any(inputs))))


def fold_blocks(
    federation: Federation, split: Split, clients: Array, mask: Array, block: int, visit: Visit[Carry], zero: Carry
) -> Carry:
    """`zero` after a visit of each block. The carry is a sum that starts at zero: devices share the blocks, or each visits the
    samples that it alone has, and the sums are added up.

    Clients whose mask is False, and clients without samples, take no place on the line: the work is that of the samples present."""
    owner = None if split.shared or federation.owner is None else federation.owner[clients]
    counts = jnp.where(of_this_device(owner, mask), split.count[clients], 0)
    ends = jnp.cumsum(counts)
    starts = ends - counts

    def body(b: Array, carry: Carry) -> Carry:
        where = b * block + jnp.arange(block)
        place = jnp.minimum(jnp.searchsorted(ends, where, side="right"), clients.shape[0] - 1)
        valid = where < ends[-1]
        client = clients[place]
        rows = split.rows[jnp.where(valid, split.start[client] + where - starts[place], 0)]
        x, y = samples(federation, client, rows, valid)
        return visit(carry, x, y, place, valid)

    blocks = -(-ends[-1] // block)

    def part(device: Array, devices: int) -> Carry:
        if owner is not None:  # all these blocks are this device's
            return jax.lax.fori_loop(0, blocks, body, zero)
        number = (blocks - device + devices - 1) // devices
        return jax.lax.fori_loop(0, number, lambda i, carry: body(device + i * devices, carry), zero)

    return share(part)


def client_losses(
    model: Model, federation: Federation, split: Split, models: Array, clients: Array, mask: Array, on_cpu: bool = True
) -> Array:
    """f32[K, S]: the mean loss of each model on all samples of each client; 0 for a client without samples or masked."""
    block = block_size(model, federation, models.shape[0], clients.shape[0] * split.longest, on_cpu)
    params = jax.vmap(model.unravel)(models)

    def visit(total: Array, x: Array, y: Array, place: Array, valid: Array) -> Array:
        losses = jax.vmap(lambda p: model.loss(model.forward(p, x), y))(params)
        return total.at[:, place].add(jnp.where(valid, losses, 0.0))

    zero = jnp.zeros((models.shape[0], clients.shape[0]))
    total = fold_blocks(federation, split, clients, mask, block, visit, zero)
    return total / jnp.maximum(split.count[clients], 1)
