"""Sinks, to which the curves of a sweep are sent besides its folder: JSON lines, TensorBoard, Weights & Biases, MLflow. The
package of a sink is imported when the sink is used. What a sink is: `cfljax.sinks.common.Sink`."""

from collections.abc import Callable

from cfljax.registry import Registry

SINKS: Registry[Callable[..., object]] = Registry(
    "sink",
    {
        "jsonl": "cfljax.sinks.jsonl:JSONL",
        "tensorboard": "cfljax.sinks.tensorboard:TENSORBOARD",
        "wandb": "cfljax.sinks.wandb:WANDB",
        "mlflow": "cfljax.sinks.mlflow:MLFLOW",
    },
    "cfljax.sinks",
)
