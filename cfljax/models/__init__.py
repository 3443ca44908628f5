"""Models as functions of flat parameter vectors. flax and optax are imported when a model is built,
not before."""

from __future__ import annotations

from cfljax.errors import SpecError
from cfljax.models.flat import FirstDense, MakeModel, Net, as_model, from_module
from cfljax.models.options import ModelOptions, common_options
from cfljax.models.weights import has_batch_statistics, replace_net_norm
from cfljax.registry import Registry
from cfljax.types import Model

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
    name: str, options: object, sample_shape: tuple[int, ...], classes: int, several: bool = False
) -> Model:
    """Build the model of this name for samples of this shape, which may have `several` labels.
    `options` is an instance of its Options class, a table to check, or None for the defaults. No
    parameters are allocated before `init` is called."""
    if options is None or isinstance(options, dict):
        options = MODELS.check(name, options or {}, "model")
    made = MODELS.entry(name).make(options, sample_shape, classes)
    common = common_options(options)
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
    return as_model(name, made, sample_shape, classes)
