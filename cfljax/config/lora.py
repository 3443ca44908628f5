"""The table `train.lora`: adapters that train instead of a model's kernels; and options of a start from a file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from cfljax.config.data import Data
from cfljax.errors import SpecError
from cfljax.registry.options import Options, option
from cfljax.round.config import MethodConfig

if TYPE_CHECKING:
    from cfljax.config.train import Train


@dataclasses.dataclass(frozen=True)
class Lora:
    """The table `train.lora` (Hu et al. 2022): beside a frozen kernel W, alpha / rank · down @ up trains."""

    rank: int = option(8, "rank of the adapters", low=1, high=4096)
    alpha: float = option(16.0, "adapters are scaled by alpha / rank", above=0)
    where: str = option("attention", "layers: of attention, the other dense ones, or all", choices=("attention", "dense", "all"))
    head: bool = option(False, "the head trains, too, as a whole")


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
