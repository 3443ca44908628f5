"""Flower's simulation: its server app and FedAvg strategy, clients in two Ray actors, messages for
the scheduled clients."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ["RAY_ADDRESS"] = "local"  # not into a cluster that happens to run on this machine
os.environ.setdefault(
    "RAY_worker_niceness", "0"
)  # its workers otherwise step back for whatever else runs
HERE = str(Path(__file__).parent)
os.environ["PYTHONPATH"] = HERE + os.pathsep + os.environ.get("PYTHONPATH", "")  # for the actors

import torch  # noqa: E402
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402


def client_app(shared_file: str, threads: int) -> ClientApp:
    """Clients whose number comes with the message. An actor loads the shared samples once."""
    app, kept = ClientApp(), {}

    def trainer() -> dict[str, Any]:
        if not kept:
            sys.path.insert(0, HERE)
            from networks import as_tensors, build
            from protocol import Shared
            from torch_loop import Plain

            torch.set_num_threads(threads)
            given = Shared(shared_file)
            x, y = as_tensors(*given.samples())
            kept.update(given=given, x=x, y=y, plain=Plain(build(given.init), given.settings["lr"]))
        return kept

    @app.train()
    def train(message: Message, _: Context) -> Message:
        from torch_loop import choose, train_client

        have = trainer()
        client = int(message.content["config"]["client"])
        weights = [torch.from_numpy(a.numpy()) for a in message.content["arrays"].values()]
        number = int(message.content["config"]["models"])
        models = [
            weights[k * len(weights) // number : (k + 1) * len(weights) // number]
            for k in range(number)
        ]
        x, y = have["x"][have["given"].of(client)], have["y"][have["given"].of(client)]
        chosen = choose(have["plain"], models, x, y)
        have["plain"].load(models[chosen])
        train_client(have["plain"], x, y, have["given"].settings)
        arrays = ArrayRecord([w.numpy() for w in have["plain"].weights()])
        metrics = MetricRecord({"num-examples": len(y), "cluster": chosen})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


class Scheduled(FedAvg):
    """FedAvg (or IFCA: a mean per model) over the participants of the shared schedule; keeps the
    benchmark's clock."""

    def __init__(self, stage: Any, number: int) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.stage, self.number = stage, number
        self.models: list[Any] = []

    def configure_train(
        self,
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,  # noqa: ARG002
        grid: Grid,
    ) -> Any:
        self.models = arrays.to_numpy_ndarrays()
        self.stage.begin()
        clients, nodes = self.stage.schedule[server_round - 1], list(grid.get_node_ids())
        for client in clients:
            mine = ConfigRecord({"client": int(client), "models": self.number})
            record = RecordDict({"arrays": arrays, "config": mine})
            yield Message(content=record, message_type="train", dst_node_id=nodes[int(client)])

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        if self.number == 1:
            done = super().aggregate_train(server_round, replies)
        else:
            done = self._per_model(replies), None
        failed = [r for r in replies if r.has_error()]
        if failed or len(replies) < self.stage.schedule.shape[1]:
            why = failed[0].error.reason if failed else "a reply is missing"
            print(f"flower: {why}", file=sys.stderr, flush=True)
            os._exit(1)
        self.stage.end()
        return done

    def _per_model(self, replies: list[Any]) -> ArrayRecord:
        each, per_model = self.models, len(self.models) // self.number
        for k in range(self.number):
            members = [
                r.content["arrays"].to_numpy_ndarrays()
                for r in replies
                if int(r.content["metrics"]["cluster"]) == k
            ]
            if members:
                mean = [sum(layer) / len(members) for layer in zip(*members, strict=True)]
                each[k * per_model : (k + 1) * per_model] = mean
        return ArrayRecord(each)


def main() -> None:
    from networks import from_torch, to_torch
    from protocol import Stage

    stage = Stage()
    image = tuple(stage.settings["image"])
    number = len(next(iter(stage.init.values())))
    start = [w.numpy() for k in range(number) for w in to_torch(stage.init, image, k)]
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    server, ended = ServerApp(), {}

    @server.main()
    def serve(grid: Grid, _: Context) -> None:
        import flwr
        import ray

        while len(list(grid.get_node_ids())) < len(stage.count):
            pass
        versions = f"flwr {flwr.__version__}, ray {ray.__version__}, torch {torch.__version__}"
        stage.ready(version=versions, actors=cores, compile_s=0.0)
        strategy = Scheduled(stage, number)
        result = strategy.start(
            grid=grid, initial_arrays=ArrayRecord(start), num_rounds=len(stage.schedule)
        )
        ended["models"] = [torch.from_numpy(a) for a in result.arrays.to_numpy_ndarrays()]
        each = len(start) // number
        models = [ended["models"][k * each : (k + 1) * each] for k in range(number)]
        stage.finish(
            from_torch(models, stage.init, image)
        )  # while the actors are there to be counted

    start_with = {"num_cpus": cores, "include_dashboard": False}
    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": start_with}
    try:
        run_simulation(
            server, client_app(stage.shared_file, 1), len(stage.count), backend_config=backend
        )
    except Exception as error:  # the server's thread would wait for its clients for ever
        print(f"flower: {error.__cause__ or error}", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
