"""Where the curves of a sweep can go besides its folder: JSON lines, TensorBoard, Weights & Biases, MLflow. A package is imported
when its sink is asked for.

A sink is made by `make(folder, name)` (the results folder and the name of the sweep); its `write(result)` takes one finished run,
its `close()` ends it.
"""

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
