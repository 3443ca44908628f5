"""The perplexity of the next tokens, for models that predict them."""

from __future__ import annotations

from cfljax.engine.metrics import Seen
from cfljax.lazy import jax, jnp
from cfljax.registry import Entry
from cfljax.registry.options import NoOptions


def perplexity(seen: Seen) -> jax.Array:
    """Compute e to the mean loss of all scored samples, f32[]: the number of equally likely tokens with the same uncertainty."""
    losses, samples = (jnp.sum(jnp.where(seen.who, each, 0)) for each in (seen.loss, seen.samples))
    return jnp.exp(losses / samples)


PERPLEXITY = Entry(NoOptions, perplexity)
