"""What a run can be asked about the models that it has kept: predictions, parameters, files of them."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cfljax.errors import SpecError
from cfljax.registry.options import Table
from cfljax.results import export, predict

if TYPE_CHECKING:
    from cfljax.types import Tree


class KeptModels:
    """The models of a run, and which client belongs to which. They are kept by `cfljax.run` and with `--keep models`."""

    def __init__(self, record: Table, arrays: dict[str, np.ndarray]):
        self.record, self.arrays = record, arrays

    @property
    def run(self) -> str:
        """The id of the run."""
        return str(self.record.get("id", ""))

    @property
    def models(self) -> np.ndarray | None:
        """f32[K, d]: the models at the end; None unless they were kept (`--keep models`)."""
        return self.arrays.get("models")

    @property
    def labels(self) -> np.ndarray | None:
        """i32[C]: the cluster of each client at the end, −1 for none; None if labels were not kept."""
        history = self.labels_history
        return None if history is None else history[-1].astype(np.int32)

    @property
    def labels_history(self) -> np.ndarray | None:
        """i16 or i32[E, C]: the clusters at each evaluation (above 10,000 clients only at the last)."""
        kept = self.arrays.get("labels")
        return kept[None] if kept is not None and kept.ndim == 1 else kept

    @cached_property
    def _scene(self) -> predict.Scene:
        return predict.scene_of(self.record)

    def _flat(self, cluster: int) -> np.ndarray:
        """f32[d]: the model of a cluster."""
        models = predict.need(self.models, "models", self.run)
        if not 0 <= cluster < len(models):
            raise SpecError(f"cluster = {cluster}: the run has models 0 to {len(models) - 1}")
        return models[cluster]

    def _model_for(self, client: int, cluster: int | None) -> np.ndarray:
        models = predict.need(self.models, "models", self.run)
        if cluster is None:
            cluster = predict.cluster_of(self._scene, client, models, predict.need(self.labels, "labels", self.run))
        return self._flat(cluster)

    def samples(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """(x f32[n, ...], y i32[n]): the test samples that a client is scored on, as its model sees them: normalised, and through
        the client's own view (rotated, relabelled, …)."""
        return predict.test_samples(self._scene, predict.check_client(self._scene, client))

    def predict(
        self, client: int, x: ArrayLike, cluster: int | None = None, *, probabilities: bool = False, prepared: bool = False
    ) -> np.ndarray:
        """i32[n]: the classes that a client's model gives to samples x, or with `probabilities` f32[n, classes].

        Where samples may have several labels, each is there or not: i32[n, classes], with probabilities of their own.

        x [n, ...] is in the shape and the scale of the data set, as the client itself would hold it (its own view is not applied
        again), and is normalised as in training; with `prepared` it is so already, as `samples` returns it. `cluster`: take this
        model in place of the one that the client was scored with. Needs a run that has kept its models."""
        place = predict.check_client(self._scene, client)
        flat = self._model_for(place, cluster)
        seen = np.asarray(x, np.float32) if prepared else predict.prepared(self._scene.federation, np.asarray(x))
        several = self._scene.federation.several
        each = predict.probabilities(self._scene.model, flat, seen, several)
        if probabilities:
            return each
        return (each > 0.5).astype(np.int32) if several else each.argmax(axis=1).astype(np.int32)

    def confusion(self, client: int, cluster: int | None = None) -> np.ndarray:
        """i64[classes, classes]: how many test samples of a client with each label (rows) got each class (columns)."""
        if self._scene.federation.several:
            raise SpecError("confusion: is of samples with one label, and here they have several; compare predict with samples")
        x, y = self.samples(client)
        classes = self._scene.federation.classes
        found = self.predict(client, x, cluster, prepared=True) if len(y) else np.zeros(0, np.int32)
        return np.bincount(y.astype(np.int64) * classes + found, minlength=classes**2).reshape(classes, classes)

    def params(self, cluster: int = 0) -> Tree:
        """The parameters of a cluster's model as the network's own tree: `params["dense_0"]["kernel"]` f32[inputs, outputs]."""
        import jax

        flat, model = self._flat(cluster), predict.model_of(self.record)
        params = model.unravel(jax.numpy.asarray(flat))
        return jax.tree.map(np.array, params if model.whole is None else model.whole(params))

    def state_dict(self, cluster: int = 0) -> dict[str, np.ndarray]:
        """The parameters as PyTorch's modules hold them, as numpy arrays:
        `module.load_state_dict({name: torch.from_numpy(a) for name, a in result.state_dict(0).items()})`."""
        from cfljax.models.started import MEANS

        options = self.record["config"]["model"]
        return export.state_dict(self.params(cluster), float(options.get("forget_bias", 0.0)), options["name"] not in MEANS)

    def export(self, path: str | os.PathLike[str], cluster: int = 0, layout: str = "jax") -> Path:
        """Write the model of a cluster to a `.safetensors` file. `layout`: "jax" as in `params`, "torch" as in `state_dict`."""
        if layout not in ("jax", "torch"):
            raise SpecError(f'layout = "{layout}": must be "jax" or "torch"')
        arrays = export.named(self.params(cluster)) if layout == "jax" else self.state_dict(cluster)
        facts = {"run": self.run, "method": self.record["method"], "model": self.record["config"]["model"]["name"]}
        about = {name: str(fact) for name, fact in facts.items()} | {"cluster": str(cluster), "layout": layout}
        return export.write_safetensors(path, arrays, about)
