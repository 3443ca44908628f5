"""The models of this package by name: their options, and the networks that they make of these."""

from __future__ import annotations

import dataclasses
import itertools
import math

from cfljax.errors import SpecError
from cfljax.lazy import jax, jnp
from cfljax.models import augment
from cfljax.models.blocks import PADDINGS
from cfljax.models.flat import FirstDense, Net
from cfljax.models.layers import CONVOLUTIONS, multiply
from cfljax.models.options import ModelOptions
from cfljax.models.starts import INIT_NAMES, START_HELP, make_start
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Array, Tree

CONV_HELP = (
    "how convolutions are computed: native (by XLA), patches (gradients by matrix products), "
    "windows (all by matrix products, but "
    "depthwise ones by XLA), auto (patches on a CPU, windows on an NVIDIA GPU)"
)


@dataclasses.dataclass(frozen=True)
class MCLROptions(ModelOptions):
    """Options of `mclr`."""

    init: str = option("lecun", START_HELP + "; or zeros", choices=(*INIT_NAMES, "zeros"))


@dataclasses.dataclass(frozen=True)
class MLPOptions(ModelOptions):
    """Options of `mlp`."""

    hidden: tuple[int, ...] = option((200,), "widths of the hidden layers", low=1)
    init: str = option("lecun", START_HELP, choices=INIT_NAMES)


@dataclasses.dataclass(frozen=True)
class CNNOptions(ModelOptions):
    """Options of `cnn`."""

    channels: tuple[int, ...] = option(
        (32, 64), "channels of the convolutions, each followed by 2×2 pooling", low=1
    )
    kernel: int = option(5, "side of the kernels", low=1)
    padding: str = option(
        "same",
        "same: zeros around the image, so that a convolution keeps its size; valid: none, as in "
        "PyTorch's examples",
        choices=PADDINGS,
    )
    dense: tuple[int, ...] = option((512,), "widths of the dense layers before the outputs", low=1)
    norm: str = option(
        "none", "batch: batch normalisation after each convolution", choices=("none", "batch")
    )
    conv: str = option("auto", CONV_HELP, choices=CONVOLUTIONS)
    init: str = option("lecun", START_HELP, choices=INIT_NAMES)


@dataclasses.dataclass(frozen=True)
class CifarOptions(ModelOptions):
    """Options of `cnn_cifar`."""

    channels: int = option(64, "channels of both convolutions", low=1)
    dense: tuple[int, ...] = option(
        (384, 192), "widths of the dense layers; IFCA's paper has the first only", low=1
    )
    crop: int = option(
        24, "side of the random crops (evaluation: the centre); 0: the whole image", low=0
    )
    flip: bool = option(True, "flip half of the training images, left to right")
    brightness: float = option(
        0.0, "largest random shift of all pixels, in the model's units; IFCA: 63/255", low=0
    )
    contrast: float = option(
        0.0, "largest random change of the contrast, as a fraction; IFCA: 0.8", low=0, high=1
    )
    standardise: bool = option(True, "standardise each image, in evaluation, too")
    decay: float = option(0.004, "adds this · ½‖W‖² of the hidden dense layers to the loss", low=0)
    conv: str = option("auto", CONV_HELP, choices=CONVOLUTIONS)
    init: str = option(
        "ifca", START_HELP + "; ifca: the spreads of IFCA's code", choices=("ifca", *INIT_NAMES)
    )

    def check(self, where: str) -> None:
        """Require a dense layer, whose weights decay."""
        if not self.dense:
            raise SpecError(f"{where}.dense = []: give at least one width")


@dataclasses.dataclass(frozen=True)
class LSTMOptions(ModelOptions):
    """Options of `lstm`."""

    width: int = option(100, "width of the LSTM layers", low=1)
    layers: int = option(2, "number of LSTM layers", low=1)
    dense: int = option(30, "width of the linear layer before the output", low=1)
    forget_bias: float = option(1.0, "bias of the forget gate, as in TensorFlow's cell; 0: none")
    init: str = option(
        "lecun", START_HELP + "; recurrent kernels orthogonal but with torch", choices=INIT_NAMES
    )


def make_mclr(options: MCLROptions, sample_shape: tuple[int, ...], classes: int) -> Net:
    """Build a multinomial logistic regression."""
    return _build_dense((math.prod(sample_shape), classes), options.init)


def make_mlp(options: MLPOptions, sample_shape: tuple[int, ...], classes: int) -> Net:
    """Build a multi-layer perceptron with ReLU."""
    return _build_dense((math.prod(sample_shape), *options.hidden, classes), options.init)


def _build_dense(widths: tuple[int, ...], init: str) -> Net:
    """Build dense layers with ReLU between them. `widths`: the numbers of a sample, then the
    outputs of each layer."""
    # They are not flax's: importing flax and tracing its layers took a tenth of a first command
    last = len(widths) - 2

    def zeros(_: Array) -> Tree:
        sides = itertools.pairwise(widths)
        return {
            f"dense_{n}": {"kernel": jnp.zeros(each), "bias": jnp.zeros(each[1])}
            for n, each in enumerate(sides)
        }

    def layer(params: Tree, number: int, x: jax.Array) -> jax.Array:
        own = params[f"dense_{number}"]
        return multiply(x, own["kernel"]) + own["bias"]

    def rest(params: Tree, z: jax.Array) -> jax.Array:
        for number in range(1, last + 1):
            z = layer(params, number, jax.nn.relu(z))
        return z

    def apply(params: Tree, x: jax.Array) -> jax.Array:
        return rest(params, layer(params, 0, x.reshape(len(x), -1)))

    def body(params: Tree, x: jax.Array) -> jax.Array:
        x = x.reshape(len(x), -1)
        for number in range(last):
            x = jax.nn.relu(layer(params, number, x))
        return x

    first = FirstDense(("dense_0", "kernel"), ("dense_0", "bias"), rest)
    return Net((zeros, apply), start=make_start(init), first=first, body=body)


def make_cnn(options: CNNOptions, sample_shape: tuple[int, ...], classes: int) -> Net:
    """Build convolutions with 2×2 pooling, then dense layers (two and two by default)."""
    height, width, _ = image_shape_of("cnn", sample_shape)
    lost = options.kernel - 1 if options.padding == "valid" else 0
    # How often a convolution and a pooling leave at least one pixel
    side = (min(height, width) - lost) // 2
    most = 0
    while side >= 1:
        side = (side - lost) // 2
        most += 1
    if len(options.channels) > most:
        before = f", {options.kernel}×{options.kernel} kernels without padding" if lost else ""
        raise SpecError(
            f"model.channels has {len(options.channels)} layers: {height}×{width} images can "
            f"be halved {most} times{before}"
        )
    from cfljax.models.nets import Convolutional

    network = Convolutional(
        options.channels,
        options.kernel,
        options.dense,
        classes,
        options.conv,
        options.norm == "batch",
        options.padding,
    )
    return Net(network, start=make_start(options.init))


def make_cifar(options: CifarOptions, sample_shape: tuple[int, ...], classes: int) -> Net:
    """Build IFCA's CNN for CIFAR-10: random 24×24 crops and flips, two convolutions, dense 384 and
    192 with weight decay."""
    height, width, _ = image_shape_of("cnn_cifar", sample_shape)
    if options.crop > min(height, width):
        raise SpecError(
            f"model.crop = {options.crop}: the images are {height}×{width}; use a smaller "
            "crop, or 0 for the whole image"
        )
    from cfljax.models.nets import Cifar

    def penalty(params: Tree) -> jax.Array:
        squares = [
            jnp.sum(params[f"dense_{number}"]["kernel"] ** 2)
            for number in range(len(options.dense))
        ]
        return options.decay * 0.5 * jnp.sum(jnp.stack(squares))

    how = augment.Augmentation(
        options.crop, options.flip, options.brightness, options.contrast, options.standardise
    )
    return Net(
        Cifar(options.channels, options.dense, classes, options.conv),
        start=make_start(options.init),
        training=augment.make_training(how),
        evaluation=augment.make_evaluation(how),
        penalty=penalty if options.decay else None,
    )


def image_shape_of(name: str, sample_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return (height, width, channels) of a sample."""
    if len(sample_shape) == 2:
        sample_shape = (*sample_shape, 1)
    if len(sample_shape) != 3:
        raise SpecError(
            f'model.name = "{name}": needs images, but samples have the shape '
            f'{sample_shape}; use "mlp" or "mclr"'
        )
    return sample_shape


def make_lstm(options: LSTMOptions, sample_shape: tuple[int, ...], classes: int) -> Net:
    """Build LSTM layers over embedded tokens, last step read; two classes make one logit with the
    sigmoid loss."""
    if len(sample_shape) != 2:
        raise SpecError(
            'model.name = "lstm": needs samples [steps, features], but samples have the '
            f"shape {sample_shape}"
        )
    from cfljax.models.nets import Recurrent

    binary = classes == 2
    network = Recurrent(
        options.width, options.layers, options.dense, 1 if binary else classes, options.forget_bias
    )
    return Net(network, start=make_start(options.init), loss="sigmoid" if binary else "softmax")


MCLR = Entry(MCLROptions, make_mclr)
MLP = Entry(MLPOptions, make_mlp)
CNN = Entry(CNNOptions, make_cnn)
CNN_CIFAR = Entry(CifarOptions, make_cifar)
LSTM = Entry(LSTMOptions, make_lstm)
