"""MLflow: an experiment for the sweep with its runs, in $MLFLOW_TRACKING_URI, or else in the results folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cfljax.registry import Entry
from cfljax.registry.options import NoOptions
from cfljax.results.result import Result
from cfljax.sinks.common import flat, folder_of, need, rows, summary, title

_AT_ONCE = 900
"""Metrics per request; MLflow's limit is 1,000."""
_LONGEST = 500
"""The most characters of a parameter; MLflow's limit."""


class MLflow:
    """A sink for MLflow. `MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri DIR/logs/mlflow` shows its files."""

    def __init__(self, folder: Path, name: str):
        need("mlflow", "mlflow")
        from mlflow import MlflowClient

        self.address = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not self.address:
            self.address = folder_of(folder, "mlflow").resolve().as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else MLflow 3 asks for a database
        self.client = MlflowClient(tracking_uri=self.address)
        known = self.client.get_experiment_by_name(name)
        self.experiment = known.experiment_id if known else self.client.create_experiment(name)

    def write(self, result: Result) -> None:
        """Send the run; an earlier one of the same id is deleted."""
        from mlflow.entities import Metric, Param

        for old in self.client.search_runs([self.experiment], f"tags.cfljax_run = '{result.run}'"):
            self.client.delete_run(old.info.run_id)
        tags = {"cfljax_run": result.run, "method": result.method, "status": result.status}
        run = self.client.create_run(self.experiment, run_name=title(result), tags=tags).info.run_id
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, number) for number, values in rows(result) for name, value in values.items()]
        metrics += [Metric(name, value, now, 0) for name, value in summary(result).items()]
        params: list[Param] = [Param(name, str(value)[:_LONGEST]) for name, value in flat(result.config).items()]
        self.client.log_batch(run, params=params[:100])
        for at in range(0, len(metrics), _AT_ONCE):
            self.client.log_batch(run, metrics=metrics[at : at + _AT_ONCE])
        self.client.set_terminated(run, "FINISHED" if result.status == "done" else "FAILED")


MLFLOW = Entry(NoOptions, MLflow)
