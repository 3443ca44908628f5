"""Options that every model has: the file that it starts from, and what of it does not train."""

from __future__ import annotations

import dataclasses

from cfljax.registry.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of every model."""

    weights: str | None = option(None, "start from this .safetensors file", file=True)
    frozen: str | None = option(
        None,
        "only the head trains and is sent; the body's features are computed once",
        choices=("body",),
    )
    loss: str | None = option(
        None, "what training minimises: mse for a continuous target, or a loss of your own"
    )
    jitter: float = option(
        0.0,
        "normal noise on `weights`, in units of each layer's spread, different for each cluster",
        low=0,
    )


def common_options(options: object) -> ModelOptions:
    """Return the options that every model has. Options of the same names in a user's class are the
    user's own."""
    fields = getattr(options, "__dataclass_fields__", {})
    ours = ModelOptions.__dataclass_fields__
    same = [
        name
        for name, field in ours.items()
        if name in fields and fields[name].metadata == field.metadata
    ]
    return ModelOptions(**{name: getattr(options, name) for name in same})
