"""Models of images with group or batch normalisation: ResNets, MobileNetV2 and a small vision
transformer."""

from __future__ import annotations

import dataclasses
import math

from cfljax.errors import SpecError
from cfljax.lazy import jnp
from cfljax.models.builtin import CONV_HELP, image_shape_of
from cfljax.models.flat import Net
from cfljax.models.layers import CONVOLUTIONS
from cfljax.models.options import ModelOptions
from cfljax.models.starts import INIT_NAMES, START_HELP, make_start, to_normal, to_truncated
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Array

INITS = ("published", *INIT_NAMES)
INIT_HELP = START_HELP + "; published: as its paper or program"
GROUPS_HELP = "groups of channels that are normalised together"
NORM_HELP = "group: group normalisation; batch: batch normalisation with running statistics"


@dataclasses.dataclass(frozen=True)
class ResNet20Options(ModelOptions):
    """Options of `resnet20`."""

    blocks: int = option(
        3, "blocks in each of the three stages: 6 · blocks + 2 layers", low=1, high=200
    )
    width: int = option(16, "channels of the first stage; each next one has twice as many", low=1)
    groups: int = option(2, GROUPS_HELP, low=1)
    norm: str = option("group", NORM_HELP, choices=("group", "batch"))
    conv: str = option("auto", CONV_HELP, choices=CONVOLUTIONS)
    init: str = option("published", INIT_HELP, choices=INITS)


@dataclasses.dataclass(frozen=True)
class ResNet18Options(ModelOptions):
    """Options of `resnet18`."""

    blocks: tuple[int, ...] = option((2, 2, 2, 2), "blocks in each stage", low=1, high=200)
    width: int = option(64, "channels of the first stage; each next one has twice as many", low=1)
    groups: int = option(2, GROUPS_HELP, low=1)
    norm: str = option("group", NORM_HELP, choices=("group", "batch"))
    stem: str = option(
        "small",
        "small: 3 × 3 (images up to about 64 × 64); large: 7 × 7 and pooling",
        choices=("small", "large"),
    )
    conv: str = option("auto", CONV_HELP, choices=CONVOLUTIONS)
    init: str = option("published", INIT_HELP, choices=INITS)


@dataclasses.dataclass(frozen=True)
class MobileOptions(ModelOptions):
    """Options of `mobilenet_v2`."""

    width: float = option(1.0, "factor of all channels", above=0, high=8)
    depth: float = option(
        1.0, "factor of the number of blocks in each stage (at least one)", above=0, high=8
    )
    groups: int = option(2, GROUPS_HELP, low=1)
    norm: str = option("group", NORM_HELP, choices=("group", "batch"))
    stem: str = option(
        "small",
        "small: the first two halvings are left out; large: as published",
        choices=("small", "large"),
    )
    dropout: float = option(
        0.2, "share of the features that are zero in a training step", low=0, high=0.95
    )
    conv: str = option("auto", CONV_HELP, choices=CONVOLUTIONS)
    init: str = option("published", INIT_HELP, choices=INITS)


@dataclasses.dataclass(frozen=True)
class VisionOptions(ModelOptions):
    """Options of `vit_tiny`."""

    patch: int = option(4, "side of an image patch, in pixels", low=1)
    width: int = option(192, "width of a token's vector", low=1)
    depth: int = option(12, "blocks", low=1, high=200)
    heads: int = option(3, "attention heads", low=1)
    dropout: float = option(
        0.0, "share of values that are zero in a training step", low=0, high=0.95
    )
    init: str = option("published", INIT_HELP, choices=INITS)


def make_resnet20(options: ResNet20Options, sample_shape: tuple[int, ...], classes: int) -> Net:
    """Build ResNet-20 for CIFAR (He et al. 2016), with group or batch normalisation: three stages
    of three residual blocks."""
    return _build_resnet(
        "resnet20",
        (options.blocks,) * 3,
        options,
        sample_shape,
        classes,
        projected=False,
        large=False,
    )


def make_resnet18(options: ResNet18Options, sample_shape: tuple[int, ...], classes: int) -> Net:
    """Build ResNet-18 (He et al. 2016), with group or batch normalisation: four stages of two
    residual blocks."""
    large = options.stem == "large"
    return _build_resnet(
        "resnet18", options.blocks, options, sample_shape, classes, projected=True, large=large
    )


def _build_resnet(
    name: str,
    depths: tuple[int, ...],
    options: ResNet20Options | ResNet18Options,
    sample_shape: tuple[int, ...],
    classes: int,
    *,
    projected: bool,
    large: bool,
) -> Net:
    image_shape_of(name, sample_shape)
    groups = _check_groups(options, (options.width,))
    from cfljax.models.nets_images import ResNet

    network = ResNet(depths, options.width, groups, classes, options.conv, projected, large)
    return Net(network, start=make_start(options.init, _scale_resnet))


def _scale_resnet(path: tuple[str, ...], drawn: Array) -> Array | None:
    """Scale convolutions by their outputs (He et al. 2015), and the head as PyTorch's `Linear`."""
    if path[-2:] == ("head", "kernel"):
        return drawn / math.sqrt(drawn.shape[0])
    return _scale_by_outputs(path, drawn)


def _scale_by_outputs(path: tuple[str, ...], drawn: Array) -> Array | None:
    if path[-1] != "kernel":
        return None
    side, _, _, outputs = drawn.shape
    return to_normal(drawn) * math.sqrt(2 / (side * side * outputs))


# MobileNetV2's table 2: how much wider, channels, blocks, stride
MOBILENET_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def make_mobilenet(options: MobileOptions, sample_shape: tuple[int, ...], classes: int) -> Net:
    """Build MobileNetV2 (Sandler et al. 2018), with group or batch normalisation: inverted,
    depthwise bottlenecks."""
    image_shape_of("mobilenet_v2", sample_shape)
    small = options.stem == "small"

    def widen(channels: int) -> int:
        return _round_channels(channels * options.width)

    stages = tuple(
        (
            wider,
            widen(channels),
            max(1, math.ceil(depth * options.depth)),
            1 if small and number == 1 else stride,
        )
        for number, (wider, channels, depth, stride) in enumerate(MOBILENET_STAGES)
    )
    first = widen(32)
    # As published, the last layer is not narrower in a narrow network, unless it is very narrow
    if options.width >= 0.5:
        last = _round_channels(1280 * max(1.0, options.width))
    else:
        last = widen(1280)
    groups = _check_groups(options, (first, last, *(stage[1] for stage in stages)))
    from cfljax.models.nets_images import MobileNet

    network = MobileNet(
        stages, first, last, 1 if small else 2, groups, classes, options.dropout, options.conv
    )

    def published(path: tuple[str, ...], drawn: Array) -> Array | None:
        if path[-2:] == ("head", "kernel"):
            return 0.01 * to_normal(drawn)
        return _scale_by_outputs(path, drawn)

    return Net(network, start=make_start(options.init, published))


def _round_channels(channels: float) -> int:
    """Round to the nearest multiple of eight, at least eight and nine tenths of the number, as in
    the published program."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def make_vision(options: VisionOptions, sample_shape: tuple[int, ...], classes: int) -> Net:
    """Build ViT-Tiny (Touvron et al. 2021): a transformer of twelve blocks over image patches, with
    a class token."""
    height, width, _ = image_shape_of("vit_tiny", sample_shape)
    if height % options.patch or width % options.patch:
        raise SpecError(
            f"model.patch = {options.patch}: must divide the sides of the images, {height} "
            f"and {width}"
        )
    check_heads(options.width, options.heads)
    from cfljax.models.nets_images import Vision

    def published(path: tuple[str, ...], drawn: Array) -> Array | None:
        if path[-1] in ("kernel", "embed_kernel"):
            return 0.02 * to_truncated(drawn)
        return jnp.zeros_like(drawn) if path[-1] == "bias" else None

    network = Vision(
        options.patch, options.width, options.depth, options.heads, classes, options.dropout
    )
    return Net(network, start=make_start(options.init, published))


def check_heads(width: int, heads: int) -> None:
    """Require that the heads divide the width."""
    if width % heads:
        raise SpecError(f"model.heads = {heads}: must divide model.width = {width}")


def _check_groups(
    options: ResNet20Options | ResNet18Options | MobileOptions, channels: tuple[int, ...]
) -> int:
    """Return the number of groups, which must divide the channels of all layers; 0: batch
    normalisation."""
    if options.norm == "batch":
        return 0
    wrong = next((each for each in channels if each % options.groups), None)
    if wrong is not None:
        raise SpecError(
            f"model.groups = {options.groups}: must divide the channels of every layer, and "
            f"one has {wrong}"
        )
    return options.groups


RESNET20 = Entry(ResNet20Options, make_resnet20)
RESNET18 = Entry(ResNet18Options, make_resnet18)
MOBILENET = Entry(MobileOptions, make_mobilenet)
VISION = Entry(VisionOptions, make_vision)
