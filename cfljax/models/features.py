"""The features of samples: what the head of a network gets."""

from __future__ import annotations

from collections.abc import Callable

from cfljax.errors import SpecError
from cfljax.lazy import jnp
from cfljax.models.flat import NetForward, head_of, mask_head, paths_of
from cfljax.types import Array, Forward, Model, Tree


def split_features(model: Model) -> tuple[Callable[..., tuple[Array, Array]], int]:
    """Return the function (params of the network, x, key, mask as for `Model.forward`) -> (f32[B,
    width] the head's inputs, f32[B, outputs] the logits), and width. A SpecError if the head cannot
    be found."""
    forward = model.forward
    path = head_of(model).split("/")
    width = dict(paths_of(model))["/".join([*path, "kernel"])].shape[0]
    if isinstance(forward, NetForward) and (body := forward.net.body) is not None:
        return lambda params, x, *more: (body(params, x), forward(params, x, *more)), width
    from flax import linen as nn

    if not isinstance(forward, NetForward) or not isinstance(forward.net.network, nn.Module):
        raise SpecError(
            f'model "{model.name}" is not a flax.linen module, so its features are unknown; '
            "take another model"
        )

    def both(params: Tree, x: Array, *more: Array | None) -> tuple[Array, Array]:
        found = []

        def record_inputs(
            next_fun: Callable[..., Array],
            args: tuple[Array, ...],
            kwargs: dict[str, Array],
            context: nn.module.InterceptorContext,
        ) -> Array:
            if context.method_name == "__call__" and list(context.module.path) == path:
                found.append(args[0])
            return next_fun(*args, **kwargs)

        with nn.intercept_methods(record_inputs):
            logits = forward(params, x, *more)
        # Features of width 0 say that the head is not called once for each sample; callers check
        if len(found) != 1 or found[0].ndim != 2:
            return jnp.zeros((len(x), 0)), logits
        return found[0], logits

    return both, width


def with_features(model: Model) -> tuple[Forward, int]:
    """Return (`split_features` as one array f32[B, width + outputs], width). A SpecError if there
    is no body or no head."""
    mask_head(model)
    both, width = split_features(model)

    def forward(
        params: Tree, x: Array, key: Array | None = None, mask: Array | None = None
    ) -> Array:
        features, logits = both(params, x, key, mask)
        if features.shape[1] != width:
            raise SpecError(
                f'model "{model.name}": its head is not its last step, once for each sample; '
                "take another model"
            )
        return jnp.concatenate([features, logits], axis=1)

    return forward, width
