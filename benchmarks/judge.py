"""Where a comparison begins and ends: the shared file before it; after it the accuracy of every
system's models, all scored in one way, and what a round of the workload costs at least. In
processes of their own, so that the comparison needs no JAX."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import peaks
from benchmarks.shared import contents, data_folder, flat_models, run_of
from benchmarks.workloads import WORKLOADS, layers, layers_of_resnet, operations_of


def accuracies(name: str, files: dict[str, Path], data: Path | None) -> dict[str, float]:
    """Accuracy over the test samples of all clients; of several models, each client has the one
    with the smallest loss on its training data."""
    import jax.numpy as jnp

    from cfljax.engine import metrics
    from cfljax.engine.scoring import score
    from cfljax.experiment import assemble
    from cfljax.kernels.choose import least_loss
    from cfljax.local.stream import client_losses

    run = run_of(WORKLOADS[name], 1, data)
    federation = assemble.federation_of(run)
    model, found = assemble.model_of(run, federation), {}
    everyone = jnp.arange(federation.clients)
    there = federation.uid >= 0
    for system, file in files.items():
        with np.load(file, allow_pickle=False) as arrays:
            models = flat_models(model, dict(arrays))
        labels = jnp.zeros_like(everyone)
        if len(models) > 1:
            labels = least_loss(
                client_losses(model, federation, federation.train, models, everyone, there)
            )
        scores = score(model, federation, federation.test, models, labels, there)
        found[system] = float(metrics.fairness(scores.correct, scores.samples).accuracy)
    return found


def work(arrays: dict[str, Any], choose: bool) -> list[dict[str, float]]:
    """Per round: steps, samples visited, operations."""
    settings = json.loads(str(arrays["settings"]))
    names = sorted({n[5:].rsplit("/", 1)[0] for n in arrays if n.endswith("/kernel")}, key=_place)
    kernels = {name: arrays[f"init/{name}/kernel"].shape[1:] for name in names}
    image, of_resnet = tuple(settings["image"]), any(name.startswith("block_") for name in names)
    forward = (
        layers_of_resnet(kernels, image) if of_resnet else layers(list(kernels.values()), image)
    )
    rows = []
    for ids in arrays["schedule"]:
        counts = arrays["count"][ids].astype(int)
        full = settings["batch"] == "full"
        passes = settings["steps"] if full else settings["epochs"]
        steps = passes * (len(ids) if full else int(np.sum(-(-counts // settings["batch"]))))
        samples = passes * int(counts.sum())
        losses = int(counts.sum()) * (len(arrays[f"init/{names[0]}/kernel"]) if choose else 0)
        flops = operations_of(forward, samples, losses)
        rows.append({"steps": steps, "samples": samples, "operations": flops})
    return rows


def _place(name: str) -> tuple[bool, bool, str]:
    """Where a layer stands: a ResNet's first convolution before its blocks, dense layers behind."""
    return "dense" in name or name == "head", name.startswith("block_"), name


def prepare(name: str, rounds: int, turn: int, folder: Path) -> dict[str, Any]:
    """Write the shared file; {file, data (in words), place, work}."""
    workload = WORKLOADS[name]
    data, words = data_folder(workload, folder)
    arrays = contents(workload, rounds, data, turn)
    np.savez(folder / f"{name}.npz", **arrays)
    found = work(arrays, workload.method["name"] == "ifca")
    return {"data": words, "place": None if data is None else str(data), "work": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("prepare", "accuracies", "peaks"))
    parser.add_argument("given", help="JSON arguments")
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    given = json.loads(arguments.given)
    if arguments.what == "prepare":
        found = prepare(given["workload"], given["rounds"], given["turn"], Path(given["folder"]))
    elif arguments.what == "accuracies":
        files = {system: Path(file) for system, file in given["files"].items()}
        found = accuracies(
            given["workload"], files, Path(given["place"]) if given["place"] else None
        )
    else:
        found = peaks(**given)
    arguments.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
