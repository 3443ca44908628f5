"""Write the clusters and models of a run to a folder for other programs, such as a Flower app: who is in which cluster, and a file
of named arrays for each cluster's model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cfljax.errors import StoreError
from cfljax.registry.options import Table
from cfljax.store.arrays import pack
from cfljax.store.atomic import store_errors, sync_folder, write_bytes

INDEX = "clusters.json"


def write_clusters(
    folder: str | os.PathLike[str], models: Mapping[int, Mapping[str, np.ndarray]], clients: np.ndarray, about: Table
) -> Path:
    """Write the models of clusters as `cluster_K.npz`, and `clusters.json`: the cluster of each client (`clients` i32[C],
    −1: none), the file of each cluster, and what is said `about` the run. The folder appears when it is complete."""
    target = Path(folder)
    if target.exists():
        raise StoreError(f"{target}: exists already; remove it, or choose another folder")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    files = {str(cluster): f"cluster_{cluster}.npz" for cluster in models}
    index = {**about, "clusters": files, "clients": clients.tolist()}
    try:
        with store_errors(target):
            part.mkdir(parents=True)
            for cluster, arrays in models.items():
                write_bytes(part / files[str(cluster)], pack({name or "params": array for name, array in arrays.items()}))
            write_bytes(part / INDEX, json.dumps(index).encode())
            part.rename(target)
            sync_folder(target.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target
