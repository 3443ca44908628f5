"""pfl-research: its simulated backend and federated averaging on a PyTorch model; for IFCA an
algorithm on its interfaces."""

from __future__ import annotations

import os
from typing import Any

import torch
from networks import as_tensors, build, from_torch, to_torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.bridge import FrameworkBridgeFactory
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from protocol import Stage
from torch.nn import functional as F


class Net(torch.nn.Module):
    """The workload's network with the methods that pfl asks for."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.net(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        with torch.no_grad():
            return {
                "loss": Weighted(F.cross_entropy(self.net(x), y, reduction="sum").item(), len(y))
            }


class Nets(torch.nn.Module):
    """IFCA's models side by side; one of them is the client's own."""

    def __init__(self, nets: list[torch.nn.Module]) -> None:
        super().__init__()
        self.nets, self.own = torch.nn.ModuleList(nets), 0

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.nets[self.own](x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        with torch.no_grad():
            return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class Ifca(FederatedAveraging):
    """Each user trains the model with the smallest loss on its data; each model moves by the mean
    of its users' updates."""

    def __init__(self) -> None:
        super().__init__()
        self.members: list[int] = []

    def train_one_user(
        self, initial_model_state: Any, model: Any, user_dataset: Any, central_context: Any
    ) -> Any:
        nets = model.pytorch_model
        with torch.no_grad():
            losses = [
                F.cross_entropy(net(user_dataset.raw_data[0]), user_dataset.raw_data[1]).item()
                for net in nets.nets
            ]
        nets.own = losses.index(min(losses))
        self.members.append(nets.own)
        FrameworkBridgeFactory.sgd_bridge().do_sgd(
            model, user_dataset, central_context.model_train_params
        )
        return model.get_model_difference(initial_model_state), Metrics()

    def process_aggregated_statistics(self, *given: Any) -> Any:
        _, _, model, statistics = given
        statistics.average()  # over all users; below over the model's own
        for name in statistics:
            statistics[name] *= len(self.members) / max(
                1, self.members.count(int(name.split(".")[1]))
            )
        self.members = []
        return model.apply_model_update(statistics)


class Turns(TrainingProcessCallback):
    """The benchmark's clock: pfl calls this after each round."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.left = stage, len(stage.schedule)

    def on_train_begin(self, **_: Any) -> Metrics:
        self.stage.begin()
        return Metrics()

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        self.stage.end()
        self.left -= 1
        if self.left:
            self.stage.begin()
        return False, Metrics()


def hyperparameters(
    settings: dict[str, Any], rounds: int, cohort: int
) -> tuple[NNAlgorithmParams, NNTrainHyperParams]:
    """The settings in pfl's words; it evaluates in round 0 only, which is not counted."""
    full = settings["batch"] == "full"
    train = NNTrainHyperParams(
        local_num_epochs=settings["steps"] if full else settings["epochs"],
        local_learning_rate=settings["lr"],
        local_batch_size=None if full else settings["batch"],
    )
    return NNAlgorithmParams(rounds, rounds + 1, cohort, 0), train


def main() -> None:
    stage = Stage()
    torch.set_num_threads(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    torch.manual_seed(0)
    data, labels = stage.samples()
    image = data.shape[1:]
    x, y = as_tensors(data, labels)
    del data
    number = len(next(iter(stage.init.values())))
    nets = []
    for k in range(number):
        net = build(stage.init)
        with torch.no_grad():
            for p, w in zip(net.parameters(), to_torch(stage.init, image, k), strict=True):
                p.copy_(w)
        nets.append(net)
    clustered = number > 1
    module = Nets(nets) if clustered else Net(nets[0])
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    order = iter(stage.schedule.ravel().tolist())

    def user(client: int) -> PyTorchTensorDataset:
        """Shuffled once a round; pfl keeps the batches it has cut and goes through them again in
        each epoch."""
        rows = torch.randperm(int(stage.count[client])) + int(stage.start[client])
        return PyTorchTensorDataset((x[rows], y[rows]), user_id=str(client))

    users = FederatedDataset(user, lambda: next(order))
    weighting = WeightByUser() if clustered else WeightByDatapoints()
    backend = SimulatedBackend(users, users, postprocessors=[weighting])
    algorithm_params, train_params = hyperparameters(stage.settings, *stage.schedule.shape)
    import pfl.version

    version = f"pfl {getattr(pfl.version, '__version__', '0.6.0')}, torch {torch.__version__}"
    stage.ready(version=version, threads=torch.get_num_threads(), compile_s=0.0)
    algorithm = Ifca() if clustered else FederatedAveraging()
    algorithm.run(
        algorithm_params,
        backend,
        model,
        train_params,
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[Turns(stage)],
        send_metrics_to_platform=False,
    )
    stage.finish(from_torch([list(net.parameters()) for net in nets], stage.init, image))


if __name__ == "__main__":
    main()
