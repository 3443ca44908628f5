"""Networks of tokens (an LSTM of characters, a transformer) as flax.linen modules. Imported when
one is built."""

from __future__ import annotations

from collections.abc import Callable

from cfljax.lazy import jax, jnp, nn, optax
from cfljax.models import blocks
from cfljax.models.nets import LSTM, ZEROS


class Affine(nn.Module):
    """The kernel and the bias of a dense layer."""

    outputs: int

    @nn.compact
    def __call__(self, inputs: int) -> tuple[jax.Array, jax.Array]:
        """Return (f32[inputs, outputs], f32[outputs])."""
        return self.param("kernel", ZEROS, (inputs, self.outputs)), self.param(
            "bias", ZEROS, (self.outputs,)
        )


class Attention(nn.Module):
    """Attention of the tokens of a sequence to each other."""

    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, seen: jax.Array | None) -> jax.Array:
        """f32[B, T, width] -> the same. `seen` as in `blocks.attend`."""
        width = x.shape[-1]
        kernels, biases = zip(
            *(Affine(width, name=name)(width) for name in ("query", "key", "value")), strict=True
        )
        # One product instead of three
        together = x @ jnp.concatenate(kernels, 1) + jnp.concatenate(biases)
        queries, keys, values = jnp.split(together, 3, -1)
        return nn.Dense(width, name="out")(blocks.attend(queries, keys, values, self.heads, seen))


class Block(nn.Module):
    """Attention, then two dense layers, each on the normalised sequence and added to it."""

    heads: int
    hidden: int
    dropout: float
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: jax.Array, seen: jax.Array | None, deterministic: bool) -> jax.Array:
        """f32[B, T, width] -> the same."""

        def drop(of: jax.Array) -> jax.Array:
            return nn.Dropout(self.dropout, deterministic=deterministic)(of)

        normalised = nn.LayerNorm(self.epsilon, name="norm_0")(x)
        x = x + drop(Attention(self.heads, name="attention")(normalised, seen))
        y = nn.Dense(self.hidden, name="dense_0")(nn.LayerNorm(self.epsilon, name="norm_1")(x))
        y = drop(nn.gelu(y, approximate=False))
        return x + drop(nn.Dense(x.shape[-1], name="dense_1")(y))


class Transformer(nn.Module):
    """A transformer over tokens or vectors that has learnt positions."""

    # 0: the samples are sequences of vectors
    vocabulary: int
    width: int
    depth: int
    heads: int
    hidden: int
    dropout: float
    outputs: int
    # Each token sees those before it and itself, and the last is read; else each sees all, and
    # their mean is read
    causal: bool
    every: bool
    padding: int
    """The token that fills up short sequences; −1: there is none. No loss asks for it, and where
    tokens see all others, none sees it."""

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool = True) -> jax.Array:
        """f32[B, T] tokens or f32[B, T, inputs] -> f32[B, outputs], or as `read`."""
        length = x.shape[1]
        there = (
            x != self.padding if self.vocabulary and self.padding >= 0 and not self.causal else None
        )
        seen = jnp.tril(jnp.ones((length, length), bool)) if self.causal else None
        if there is not None:
            seen = there[:, None, None, :]
        ids = x
        if self.vocabulary:
            x = blocks.embed(x, self.param("embed_tokens", ZEROS, (self.vocabulary, self.width)))
        else:
            x = nn.Dense(self.width, name="embed_vectors")(x)
        x = x + self.param("embed_positions", ZEROS, (length, self.width))
        x = nn.Dropout(self.dropout, deterministic=deterministic)(x)
        for number in range(self.depth):
            x = Block(self.heads, self.hidden, self.dropout, name=f"block_{number}")(
                x, seen, deterministic
            )
        norm = nn.LayerNorm(1e-5, name="last_norm")
        head = nn.Dense(self.outputs, name="head")
        if self.causal:
            return read(
                x, ids, lambda of: head(norm(of)), self.every and not deterministic, self.padding
            )
        x = norm(x)
        if there is None:
            return head(jnp.mean(x, 1))
        weight = there.astype(x.dtype)[..., None]
        return head(jnp.sum(x * weight, 1) / jnp.maximum(jnp.sum(weight, 1), 1.0))


class Characters(nn.Module):
    """Embedded tokens, LSTM layers, and the outputs from the last step."""

    vocabulary: int
    embedding: int
    width: int
    depth: int
    dropout: float
    outputs: int
    every: bool
    forget_bias: float
    # As a transformer's
    padding: int = -1

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool = True) -> jax.Array:
        """f32[B, T] tokens -> f32[B, outputs], or as `read`."""
        ids = x
        x = blocks.embed(x, self.param("embed_tokens", ZEROS, (self.vocabulary, self.embedding)))
        for number in range(self.depth):
            x = LSTM(self.width, self.forget_bias, name=f"lstm_{number}")(x)
            x = nn.Dropout(self.dropout, deterministic=deterministic)(x)
        return read(
            x,
            ids,
            nn.Dense(self.outputs, name="head"),
            self.every and not deterministic,
            self.padding,
        )


def read(
    x: jax.Array, ids: jax.Array, head: Callable[[jax.Array], jax.Array], every: bool, padding: int
) -> jax.Array:
    """Return f32[B, outputs]: the logits of the token after the sequence, from its last step f32[B,
    T, width]. With `every` another column has the summed loss of the tokens 1 … T − 1, each
    predicted from those before it; a token for padding is left out, and a last column has the
    number of the others."""
    if not every:
        return head(x[:, -1])
    logits = head(x)
    losses = optax.softmax_cross_entropy_with_integer_labels(
        logits[:, :-1], ids[:, 1:].astype(jnp.int32)
    )
    if padding < 0:
        return jnp.concatenate([logits[:, -1], jnp.sum(losses, 1, keepdims=True)], -1)
    real = (ids[:, 1:] != padding).astype(losses.dtype)
    return jnp.concatenate(
        [logits[:, -1], jnp.sum(losses * real, 1, keepdims=True), jnp.sum(real, 1, keepdims=True)],
        -1,
    )
