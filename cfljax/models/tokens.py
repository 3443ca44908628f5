"""Models of sequences of tokens: an LSTM of characters and a small transformer, for the next token
or the class."""

from __future__ import annotations

import dataclasses
import math

from cfljax.errors import SpecError
from cfljax.lazy import jax, jnp, optax
from cfljax.models.flat import Net
from cfljax.models.images import INIT_HELP, INITS, check_heads
from cfljax.models.options import ModelOptions
from cfljax.models.starts import make_start, to_normal
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Array, OfLogits

PREDICT_HELP = (
    "train on the token after the sequence, or on every token of it, too; the last one is scored"
)
PADDING_HELP = "padding token of short sequences; −1: none. It has no loss (predict = every){}"
VOCABULARY_HELP = "number of tokens; 0: as many as labels, if these are next tokens"


@dataclasses.dataclass(frozen=True)
class CharactersOptions(ModelOptions):
    """Options of `char_lstm`."""

    vocabulary: int = option(0, VOCABULARY_HELP, low=0)
    embedding: int = option(8, "width of a token's embedding", low=1)
    width: int = option(256, "width of the LSTM layers", low=1)
    layers: int = option(2, "number of LSTM layers", low=1, high=100)
    predict: str = option("last", PREDICT_HELP, choices=("last", "every"))
    padding: int = option(-1, PADDING_HELP.format(""), low=-1)
    dropout: float = option(
        0.0, "share of an LSTM layer's outputs that are zero in a training step", low=0, high=0.95
    )
    forget_bias: float = option(1.0, "bias of the forget gate, as in TensorFlow's cell; 0: none")
    init: str = option("published", INIT_HELP, choices=INITS)

    def check(self, where: str) -> None:
        """Reject padding unless every token is predicted."""
        if self.predict == "last" and self.padding >= 0:
            raise SpecError(
                f'{where}.padding = {self.padding}: is for predict = "every"; leave it out'
            )


@dataclasses.dataclass(frozen=True)
class TransformerOptions(ModelOptions):
    """Options of `transformer`."""

    task: str = option(
        "next",
        "next: the token after a sequence, causal; class: the class of a sequence",
        choices=("next", "class"),
    )
    vocabulary: int = option(0, VOCABULARY_HELP + "; samples that are vectors need none", low=0)
    width: int = option(128, "width of a token's vector", low=1)
    depth: int = option(2, "blocks", low=1, high=200)
    heads: int = option(4, "attention heads", low=1)
    hidden: int = option(0, "width of the dense layers; 0: four times the width", low=0)
    predict: str = option("last", PREDICT_HELP, choices=("last", "every"))
    padding: int = option(-1, PADDING_HELP.format(", and no token sees it (task = class)"), low=-1)
    dropout: float = option(
        0.0, "share of values that are zero in a training step", low=0, high=0.95
    )
    init: str = option("published", INIT_HELP, choices=INITS)

    def check(self, where: str) -> None:
        """Reject options of the other task."""
        if self.task == "class" and self.predict == "every":
            raise SpecError(f'{where}.predict = "every": is for task = "next"; leave out one')
        if self.task == "next" and self.predict == "last" and self.padding >= 0:
            raise SpecError(
                f'{where}.padding = {self.padding}: is for task = "class" and for predict = '
                '"every"; leave it out'
            )


def make_characters(options: CharactersOptions, sample_shape: tuple[int, ...], classes: int) -> Net:
    """Build LEAF's LSTM for Shakespeare (Caldas et al. 2018): embedded tokens, two LSTM layers,
    output from the last step."""
    if len(sample_shape) != 1:
        raise SpecError(
            'model.name = "char_lstm": needs sequences of tokens, but samples have the '
            f'shape {sample_shape}; use "lstm"'
        )
    from cfljax.models.nets_tokens import Characters

    vocabulary = options.vocabulary or classes
    every = _predicts_every(options.predict, options.vocabulary, classes)
    sizes = (vocabulary, options.embedding, options.width, options.layers)
    network = Characters(
        *sizes, options.dropout, classes, every, options.forget_bias, options.padding
    )
    word = "glorot" if options.init == "published" else options.init
    return Net(
        network,
        start=make_start(word),
        own=make_token_loss(sample_shape[0], classes) if every else None,
    )


def make_transformer(
    options: TransformerOptions, sample_shape: tuple[int, ...], classes: int
) -> Net:
    """Build a small transformer as GPT-2 (Radford et al. 2019): learnt positions, next tokens or
    classes."""
    if len(sample_shape) not in (1, 2):
        raise SpecError(
            'model.name = "transformer": needs sequences, but samples have the shape '
            f'{sample_shape}; use "vit_tiny" for images'
        )
    check_heads(options.width, options.heads)
    if len(sample_shape) == 1 and options.task == "class" and not options.vocabulary:
        raise SpecError('model.vocabulary: task = "class" needs the number of tokens')
    vectors = len(sample_shape) == 2
    if vectors and (options.vocabulary or options.predict == "every"):
        raise SpecError(
            "model.vocabulary, model.predict: are for tokens, but samples are vectors "
            f"{sample_shape}; leave them out"
        )
    from cfljax.models.nets_tokens import Transformer

    vocabulary = 0 if vectors else options.vocabulary or classes
    every = _predicts_every(options.predict, options.vocabulary, classes)
    sizes = (
        vocabulary,
        options.width,
        options.depth,
        options.heads,
        options.hidden or 4 * options.width,
    )
    network = Transformer(
        *sizes, options.dropout, classes, options.task == "next", every, options.padding
    )

    def published(path: tuple[str, ...], drawn: Array) -> Array | None:
        if path[-1] == "kernel":
            # What is added to the sequence is smaller, the more blocks add to it
            adds = path[-2] in ("out", "dense_1")
            return 0.02 * to_normal(drawn) / (math.sqrt(2 * options.depth) if adds else 1.0)
        if path[-1].startswith("embed_"):
            return 0.02 * to_normal(drawn)
        return jnp.zeros_like(drawn) if path[-1] == "bias" else None

    return Net(
        network,
        start=make_start(options.init, published),
        own=make_token_loss(sample_shape[0], classes) if every else None,
    )


def _predicts_every(predict: str, vocabulary: int, classes: int) -> bool:
    """Return whether all tokens of a sequence are predicted; a SpecError if labels are not
    tokens."""
    if predict == "every" and vocabulary not in (0, classes):
        raise SpecError(
            f'model.predict = "every": labels must be tokens, but there are {classes} labels '
            f"and {vocabulary} tokens"
        )
    return predict == "every"


def make_token_loss(length: int, classes: int) -> tuple[OfLogits, OfLogits]:
    """Return (loss, correct) of networks that return the logits of the next token, and in training
    the summed loss of the sequence's own tokens and, with padding, the number of the others
    (`nets_tokens.read`): the loss is then the mean of all."""

    def loss(logits: Array, y: Array) -> Array:
        wanted = jax.nn.one_hot(y, classes, dtype=logits.dtype)
        last = optax.softmax_cross_entropy(logits[..., :classes], wanted)
        if logits.shape[-1] == classes:
            return last
        number = length if logits.shape[-1] == classes + 1 else 1 + logits[..., classes + 1]
        return (last + logits[..., classes]) / number

    return loss, lambda logits, y: jnp.argmax(logits[..., :classes], axis=-1) == y


CHARACTERS = Entry(CharactersOptions, make_characters)
TRANSFORMER = Entry(TransformerOptions, make_transformer)
