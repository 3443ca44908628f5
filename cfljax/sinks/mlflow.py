"""MLflow: an experiment per sweep, a run each; in $MLFLOW_TRACKING_URI, else in a store beside the results."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from cfljax.registry import Entry
from cfljax.registry.options import NoOptions
from cfljax.results.result import Result
from cfljax.sinks.common import flat, need, place, rows, summary, title

_AT_ONCE = 900
"""Metrics per request; the limit is 1,000."""
_LONGEST = 500


class MLflow:
    """`MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri DIR/logs/mlflow` shows it."""

    def __init__(self, folder: Path, name: str):
        need("mlflow", "mlflow")
        from mlflow import MlflowClient

        self.address = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not self.address:
            self.address = place(folder, "mlflow").resolve().as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else MLflow 3 asks for a database
        self.client = MlflowClient(tracking_uri=self.address)
        found = self.client.get_experiment_by_name(name)
        self.experiment = found.experiment_id if found else self.client.create_experiment(name)

    def write(self, result: Result) -> None:
        """The run; one of the same id is replaced."""
        from mlflow.entities import Metric, Param

        for old in self.client.search_runs([self.experiment], f"tags.cfljax_run = '{result.run}'"):
            self.client.delete_run(old.info.run_id)
        tags = {"cfljax_run": result.run, "method": result.method, "status": result.status}
        run = self.client.create_run(self.experiment, run_name=title(result), tags=tags).info.run_id
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, number) for number, values in rows(result) for name, value in values.items()]
        metrics += [Metric(name, value, now, 0) for name, value in summary(result).items()]
        params: list[Any] = [Param(name, str(value)[:_LONGEST]) for name, value in flat(result.config).items()]
        self.client.log_batch(run, params=params[:100])
        for at in range(0, len(metrics), _AT_ONCE):
            self.client.log_batch(run, metrics=metrics[at : at + _AT_ONCE])
        self.client.set_terminated(run, "FINISHED" if result.status == "done" else "FAILED")

    def close(self) -> None:
        """Every run is finished already."""


MLFLOW = Entry(NoOptions, MLflow)
