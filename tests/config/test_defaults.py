"""A default that changes, changes what users' specs mean: it has to be changed here, too, on purpose.

    python -m tests.config.test_defaults    # writes defaults.json anew
"""

import dataclasses
import json
from pathlib import Path

from cfljax.config.train import Train
from cfljax.data import SOURCES
from cfljax.data.files import FileOptions
from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.models import MODELS

FILE = Path(__file__).with_name("defaults.json")
REGISTRIES = {"data": SOURCES, "partition": PARTITIONS, "model": MODELS, "method": METHODS}


def options_of(kind):
    fields = [field for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING]
    return {field.name: json.loads(json.dumps(field.default, default=str)) for field in fields}


def found():
    """Of everything that comes with the package; other tests register things of their own."""
    ours = {kind: [name for name in registry if registry.origin(name) is None] for kind, registry in REGISTRIES.items()}
    tables = {kind: {name: options_of(REGISTRIES[kind].entry(name).options) for name in names} for kind, names in ours.items()}
    return {**tables, "file": options_of(FileOptions), "train": options_of(Train)}


def test_defaults_are_what_they_were():
    assert found() == json.loads(FILE.read_text())


if __name__ == "__main__":
    FILE.write_text(json.dumps(found(), indent=1) + "\n")
