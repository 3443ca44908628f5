"""Runs that fine-tune the models of clients after the last round, and their outputs."""

from cfljax.config import read_spec
from cfljax.devices.machine import describe_machine
from cfljax.engine.simulate import simulate
from cfljax.experiment.assemble import assemble_batch
from cfljax.experiment.batching import make_batches
from tests import toy

BLOBS = {
    "name": "blobs",
    "samples": 400,
    "features": 6,
    "classes": 4,
    "partition": "label_permutation",
    "groups": 2,
    "clients": 12,
}
MLP = {"name": "mlp", "hidden": [7]}
NAMES = ["accuracy_finetuned", "accuracy_worst10_finetuned", "accuracy_client_std_finetuned"]


def runs(method="fedavg", data=None, train=None, seeds=(0,)):
    train = {"rounds": 3, "lr": 0.2, "participation": 5} | (train or {})
    model = toy.named_model(method["name"] if isinstance(method, dict) else method, MLP)
    blobs = {option: value for option, value in (BLOBS | (data or {})).items() if value is not None}
    return read_spec(
        {"data": blobs, "model": model, "train": train, "method": [method], "seeds": list(seeds)}
    ).runs()


def outputs(runs, sequential=True, wide=0, **more):
    """`wide`: how many clients fine-tune at a time, if not as many as take part in a round."""
    (batch,) = make_batches(runs, len(runs))
    made = assemble_batch(batch, describe_machine())
    plan, settings = (
        made.plan._replace(stream=wide or made.plan.stream),
        made.settings._replace(sequential=sequential),
    )
    made = made._replace(plan=plan, settings=settings)
    return simulate(made, batch.seeds, batch.hypers, **more)
