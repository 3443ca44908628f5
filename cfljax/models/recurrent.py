"""LSTM for sequences of embedded tokens."""

from __future__ import annotations

import dataclasses

from cfljax.errors import SpecError
from cfljax.models.flat import Net
from cfljax.models.starts import HELP, STARTS, start
from cfljax.registry import Entry
from cfljax.registry.options import option


@dataclasses.dataclass(frozen=True)
class LSTMOptions:
    """Options of `lstm`."""

    width: int = option(100, "width of the LSTM layers", low=1)
    layers: int = option(2, "number of LSTM layers", low=1)
    dense: int = option(30, "width of the linear layer before the output", low=1)
    forget_bias: float = option(1.0, "constant in the forget gate, as in TensorFlow's cell; 0: none")
    init: str = option("lecun", HELP + "; recurrent kernels orthogonal but with torch", choices=STARTS)


def make_lstm(options: LSTMOptions, sample_shape: tuple[int, ...], classes: int) -> Net:
    """LSTM layers over embedded tokens, last step read; two classes make one logit with the sigmoid loss."""
    if len(sample_shape) != 2:
        raise SpecError(f'model.name = "lstm": needs samples [steps, features], and they are {sample_shape}')
    from cfljax.models.nets import Recurrent

    binary = classes == 2
    network = Recurrent(options.width, options.layers, options.dense, 1 if binary else classes, options.forget_bias)
    return Net(network, start=start(options.init), loss="sigmoid" if binary else "softmax")


LSTM = Entry(LSTMOptions, make_lstm)
