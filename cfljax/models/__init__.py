"""Models as functions of flat parameter vectors. flax and optax are imported when a model is built,
not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cfljax.errors import SpecError
from cfljax.models.flat import FirstDense, MakeModel, Net, as_model, from_module
from cfljax.models.losses import LOSSES
from cfljax.models.options import ModelOptions, common_options
from cfljax.models.weights import has_batch_statistics, replace_net_norm
from cfljax.registry import Registry
from cfljax.types import Model, Score

if TYPE_CHECKING:
    from cfljax.models.apply import Network

__all__ = ["MODELS", "FirstDense", "MakeModel", "Net", "as_model", "build", "from_module"]

MODELS: Registry[MakeModel] = Registry(
    "model",
    {
        "mclr": "cfljax.models.builtin:MCLR",
        "mlp": "cfljax.models.builtin:MLP",
        "cnn": "cfljax.models.builtin:CNN",
        "cnn_cifar": "cfljax.models.builtin:CNN_CIFAR",
        "lstm": "cfljax.models.builtin:LSTM",
        "resnet20": "cfljax.models.images:RESNET20",
        "resnet18": "cfljax.models.images:RESNET18",
        "mobilenet_v2": "cfljax.models.images:MOBILENET",
        "vit_tiny": "cfljax.models.images:VISION",
        "char_lstm": "cfljax.models.tokens:CHARACTERS",
        "transformer": "cfljax.models.tokens:TRANSFORMER",
    },
    "cfljax.models",
    ModelOptions,
)


def build(
    name: str,
    options: object,
    sample_shape: tuple[int, ...],
    classes: int,
    several: bool = False,
    continuous: bool = False,
) -> Model:
    """Build the model of this name. No parameters are allocated before `init` is called.

    Args:
        name: the model.
        options: an instance of its Options class, a table to check, or None for the defaults.
        sample_shape: the shape of a sample.
        classes: how many classes labels have; 1 for a continuous target.
        several: whether a sample may have several labels.
        continuous: whether the target is a number."""
    if options is None or isinstance(options, dict):
        options = MODELS.check(name, options or {}, "model")
    common = common_options(options)
    loss = None if common.loss is None else LOSSES.entry(common.loss, "model.loss").make()
    outputs = classes if loss is None else loss.outputs or classes
    made = MODELS.entry(name).make(options, sample_shape, outputs)
    if common.loss is not None:
        made = _replace_loss(name, made, common.loss, several)
    if (
        common.frozen is not None
        and common.weights is not None
        and has_batch_statistics(common.weights)
    ):
        made = replace_net_norm(made)
    if several:
        net = made if isinstance(made, Net) else Net(made)
        if net.loss == "sigmoid" or net.own is not None:
            why = (
                "has a loss of its own" if net.own is not None else "has one output for two classes"
            )
            raise SpecError(
                f'model "{name}": {why}, but samples may have several labels; use another model'
            )
        made = net._replace(loss="several")
    model = as_model(name, made, sample_shape, classes)
    if continuous and model.score == Score():
        raise SpecError(
            f'model "{name}": its loss is for classes, and the target of these data is a number; '
            'give model.loss = "mse", or integers as labels'
        )
    return model


def _replace_loss(name: str, made: Network | Net, loss: str, several: bool) -> Net:
    """Return the network with the loss of this name."""
    net = made if isinstance(made, Net) else Net(made)
    if net.own is not None:
        raise SpecError(f'model.loss = "{loss}": {name} has a loss of its own; leave it out')
    if several:
        raise SpecError(f'model.loss = "{loss}": samples have several labels; leave it out')
    return net._replace(loss=loss)
