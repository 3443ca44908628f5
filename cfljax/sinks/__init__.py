"""Sinks, to which the curves of a sweep are sent besides its folder: JSON lines, TensorBoard,
Weights & Biases. The package of a sink is imported when the sink is used. What a sink is:
`cfljax.sinks.common.Sink`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cfljax.registry import Registry

if TYPE_CHECKING:
    from cfljax.sinks.common import MakeSink

SINKS: Registry[MakeSink] = Registry(
    "sink",
    {
        "jsonl": "cfljax.sinks.services:JsonLines",
        "tensorboard": "cfljax.sinks.services:TensorBoard",
        "wandb": "cfljax.sinks.services:WeightsAndBiases",
    },
    "cfljax.sinks",
)
