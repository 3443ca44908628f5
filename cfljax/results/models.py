"""The models that a run has kept: predictions, parameters, and files of them."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from cfljax.errors import SpecError
from cfljax.registry.options import Table
from cfljax.results import export, predict
from cfljax.store.quantities import score_of

if TYPE_CHECKING:
    from cfljax.types import Tree


class KeptModels:
    """The models of a run, and which client belongs to which. They are kept by `cfljax.run` and
    with `--keep models`."""

    def __init__(self, record: Table, arrays: dict[str, np.ndarray]):
        self.record = record
        self.arrays = arrays

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made again when it is asked for; it holds functions, which cannot be
        pickled."""
        return {name: value for name, value in vars(self).items() if name != "_rebuilt"}

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
        """i32[C]: the cluster of each client at the end, −1 for none; None if labels were not
        kept."""
        history = self.labels_history
        return None if history is None else history[-1].astype(np.int32)

    @property
    def labels_history(self) -> np.ndarray | None:
        """i16 or i32[E, C]: the clusters at each evaluation (above 10,000 clients only at the
        last)."""
        kept = self.arrays.get("labels")
        return kept[None] if kept is not None and kept.ndim == 1 else kept

    @property
    def mixture(self) -> np.ndarray | None:
        """f32[C, K]: the weights of each client in the models at the end, of methods whose clients
        mix models (`fedem`, `fedrc`, `fedsoft`); of those in which they mix each other's (`fedamp`,
        `pfedgraph`) f32[C, C], with up to 100 clients. Rows sum to one. None: the clients mix
        nothing."""
        each = self.mixtures
        return (
            self.arrays.get(f"diag/{self.record['method']}/mixture") if each is None else each[-1]
        )

    @property
    def mixtures(self) -> np.ndarray | None:
        """f32[E, C, K]: the same at each evaluation (`history["round"]`), where C · K is at most
        10,000; else None."""
        return self.arrays.get(f"diag/{self.record['method']}/mixture_of_clients")

    @cached_property
    def _rebuilt(self) -> predict.RebuiltRun:
        return predict.rebuild_run(self.record)

    def _select_model(self, cluster: int) -> np.ndarray:
        models = predict.need_array(self.models, "models", self.run)
        if not 0 <= cluster < len(models):
            raise SpecError(f"cluster = {cluster}: the run has models 0 to {len(models) - 1}")
        return models[cluster]

    def _choose_model(self, client: int, cluster: int | None) -> np.ndarray:
        models = predict.need_array(self.models, "models", self.run)
        if cluster is None:
            cluster = predict.cluster_of(
                self._rebuilt, client, models, predict.need_array(self.labels, "labels", self.run)
            )
        return self._select_model(cluster)

    def samples(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (x f32[n, ...], y i32[n]): the test samples that a client is scored on, as its
        model sees them: normalised, and through the client's own view (rotated, relabelled, …)."""
        return predict.test_samples(self._rebuilt, predict.check_client(self._rebuilt, client))

    def predict(
        self,
        client: int,
        x: ArrayLike,
        cluster: int | None = None,
        *,
        probabilities: bool = False,
        prepared: bool = False,
    ) -> np.ndarray:
        """Predict the classes i32[n] of samples x by a client's model, or with `probabilities`
        f32[n, classes].

        If samples may have several labels, each is predicted separately: i32[n, classes], with a
        probability for each. With a loss that is not for classes, the outputs of the model are
        returned: f32[n], or f32[n, outputs].

        x [n, ...] is in the shape and the scale of the data set, as the client itself would hold it
        (its own view is not applied again), and is normalised as in training; with `prepared` it is
        so already, as `samples` returns it. `cluster`: take this model instead of the one that the
        client was scored with. Needs a run that has kept its models."""
        index = predict.check_client(self._rebuilt, client)
        flat = self._choose_model(index, cluster)
        seen = (
            np.asarray(x, np.float32)
            if prepared
            else predict.prepare_samples(self._rebuilt.federation, np.asarray(x))
        )
        if score_of(self.record) != "accuracy":
            if probabilities:
                raise SpecError("probabilities: this run's loss has no classes; leave it out")
            found = predict.outputs(self._rebuilt.model, flat, seen)
            return found[:, 0] if found.shape[1] == 1 else found
        several = self._rebuilt.federation.several
        each = predict.probabilities(self._rebuilt.model, flat, seen, several)
        if probabilities:
            return each
        return (each > 0.5).astype(np.int32) if several else each.argmax(axis=1).astype(np.int32)

    def confusion(self, client: int, cluster: int | None = None) -> np.ndarray:
        """Count a client's test samples by label (rows) and predicted class (columns): i64[classes,
        classes]."""
        if self._rebuilt.federation.several:
            raise SpecError(
                "confusion: needs one label per sample, and here samples have several; "
                "compare predict with samples"
            )
        if score_of(self.record) != "accuracy":
            raise SpecError(
                "confusion: this run's loss has no classes; compare predict with samples"
            )
        x, y = self.samples(client)
        classes = self._rebuilt.federation.classes
        found = self.predict(client, x, cluster, prepared=True) if len(y) else np.zeros(0, np.int32)
        return np.bincount(y.astype(np.int64) * classes + found, minlength=classes**2).reshape(
            classes, classes
        )

    def params(self, cluster: int = 0) -> Tree:
        """Return the parameters of a cluster's model as the network's own tree:
        `params["dense_0"]["kernel"]` f32[inputs, outputs]."""
        return predict.params_of(predict.model_of(self.record), self._select_model(cluster))

    def state_dict(self, cluster: int = 0) -> dict[str, np.ndarray]:
        """Return the parameters as PyTorch's modules hold them, as numpy arrays:
        `module.load_state_dict({name: torch.from_numpy(a) for name, a in
        result.state_dict(0).items()})`."""
        return self._name_arrays(self.params(cluster), "torch")

    def _name_arrays(self, params: Tree, layout: str) -> dict[str, np.ndarray]:
        """Name the arrays of a model. `layout`: "jax" as in `params`, "torch" as in
        `state_dict`."""
        from cfljax.models.started import POOLED_MODELS

        if layout not in ("jax", "torch"):
            raise SpecError(f'layout = "{layout}": must be "jax" or "torch"')
        if layout == "jax":
            return export.name_arrays(params)
        options = self.record["config"]["model"]
        return export.state_dict(
            params, float(options.get("forget_bias", 0.0)), options["name"] not in POOLED_MODELS
        )

    def export(
        self, path: str | os.PathLike[str], cluster: int | str = 0, layout: str = "jax"
    ) -> Path:
        """Write the model of a cluster to a `.safetensors` file; with `cluster="all"` the models of
        all clusters, each array with an axis of clusters before its own, from which the clusters of
        another run begin (`model.weights`). `layout`: "jax" as in `params`, "torch" as in
        `state_dict`."""
        from cfljax.models.weights import MODELS_KEY

        about = {name: str(fact) for name, fact in self._describe_origin(layout).items()} | {
            "cluster": str(cluster)
        }
        if cluster == "all":
            models = predict.need_array(self.models, "models", self.run)
            each = [self._name_arrays(self.params(k), layout) for k in range(len(models))]
            arrays = {name: np.stack([one[name] for one in each]) for name in each[0]}
            about[MODELS_KEY] = str(len(models))
        elif isinstance(cluster, str):
            raise SpecError(f'cluster = "{cluster}": must be the number of a cluster, or "all"')
        else:
            arrays = self._name_arrays(self.params(cluster), layout)
        return export.write_safetensors(path, arrays, about)

    def export_clusters(self, folder: str | os.PathLike[str], layout: str = "jax") -> Path:
        """Write who is in which cluster, and the models of all clusters that have clients, to a new
        folder for other programs: `clusters.json` and a `cluster_K.npz` each. `layout` as for
        `export`."""
        models, labels = (
            predict.need_array(kept, what, self.run)
            for kept, what in ((self.models, "models"), (self.labels, "labels"))
        )
        clients = predict.clusters_of(self._rebuilt, models, labels)
        about = self._describe_origin(layout)
        used = np.unique(clients[clients >= 0])
        # Clients that mix models use all of them, each by its weight
        if self._rebuilt.mixes:
            used = np.arange(len(models))
            about["weights"] = predict.need_array(self.mixture, "mixtures", self.run).tolist()
        params = {
            int(cluster): predict.params_of(self._rebuilt.model, models[cluster])
            for cluster in used
        }
        return export.write_clusters(
            folder,
            {k: self._name_arrays(each, layout) for k, each in params.items()},
            clients,
            about,
        )

    def _describe_origin(self, layout: str) -> Table:
        return {
            "run": self.run,
            "method": self.record["method"],
            "model": self.record["config"]["model"]["name"],
            "layout": layout,
        }
