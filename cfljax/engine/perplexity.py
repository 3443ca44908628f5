"""The perplexity of the next tokens, for models that predict them."""

from __future__ import annotations

from cfljax.engine.metrics import Seen
from cfljax.lazy import jax, jnp
from cfljax.registry import Entry
from cfljax.registry.options import NoOptions


def perplexity(seen: Seen) -> jax.Array:
    """f32[]: e to the mean loss of all scored samples: among how many equally likely tokens the models are as uncertain."""
    losses, samples = (jnp.sum(jnp.where(seen.who, each, 0)) for each in (seen.loss, seen.samples))
    return jnp.exp(losses / samples)


PERPLEXITY = Entry(NoOptions, perplexity)
