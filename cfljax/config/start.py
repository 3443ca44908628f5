"""A start from a file, and what it excludes."""

from __future__ import annotations

from pathlib import Path

from cfljax.config.data import Data
from cfljax.config.train import Train
from cfljax.errors import SpecError
from cfljax.registry.options import Options
from cfljax.round.config import MethodConfig


def check_start(label: str, options: MethodConfig, model: Options, train: Train, data: Data) -> None:
    """Reject a start from a file that is missing, or that parameters which do not train would need."""
    from cfljax.models.options import common_options  # with JAX

    common = common_options(model)
    weights, frozen = common.weights, common.frozen
    if weights is not None and not Path(weights).expanduser().is_file():
        raise SpecError(f'model.weights = "{weights}": there is no such file')
    if frozen and not weights:
        raise SpecError(
            f'model.frozen = "{frozen}": freezes the body of a pretrained model; give model.weights, or take train.freeze'
        )
    if train.lora and not weights:
        raise SpecError("train.lora: adapts a pretrained model; give model.weights")
    if frozen and train.lora:
        raise SpecError(f'model.frozen = "{frozen}": train.lora freezes all but its adapters; leave out one')
    if frozen and data.drift is not None:
        raise SpecError(f'model.frozen = "{frozen}": data.drift changes the inputs of its features; take train.freeze')
    if frozen and getattr(model, "predict", "last") == "every":
        raise SpecError(f'model.frozen = "{frozen}": its features are of the last token; take model.predict = "last"')
    if frozen and (train.divided_by or options.parts):
        what = train.divided_by or f"method.{label}"
        raise SpecError(
            f'model.frozen = "{frozen}": {what} needs the parts of the model, of which only the head is left; leave out one'
        )
    if common.jitter and not weights:
        raise SpecError(f"model.jitter = {common.jitter}: is noise on pretrained weights; give model.weights")
