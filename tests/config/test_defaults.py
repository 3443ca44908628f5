"""A default that changes, changes what users' specs mean, and a bound which of them are refused: both have to be changed here,
too, on purpose.

    python -m tests.config.test_defaults    # writes defaults.json anew
"""

import dataclasses
import json
from pathlib import Path

from cfljax.config.train import Train
from cfljax.data import SOURCES, FileOptions
from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.models import MODELS

FILE = Path(__file__).with_name("defaults.json")
REGISTRIES = {"data": SOURCES, "partition": PARTITIONS, "model": MODELS, "method": METHODS}
BOUNDS = ("low", "high", "above", "choices", "nan", "traced", "later")


def told(field):
    """The default, and what bounds the option has: `default = 0.1; low = 0.0`."""
    known = {} if field.default is dataclasses.MISSING else {"default": field.default}
    bounds = {name: field.metadata.get(name) for name in BOUNDS}
    known |= {name: bound for name, bound in bounds.items() if bound is not None and bound is not False}
    return "; ".join(f"{name} = {value!r}" for name, value in known.items())


def options_of(kind):
    return {field.name: told(field) for field in dataclasses.fields(kind)}


def found():
    """Of everything that comes with the package; other tests register things of their own."""
    ours = {kind: [name for name in registry if registry.origin(name) is None] for kind, registry in REGISTRIES.items()}
    tables = {kind: {name: options_of(REGISTRIES[kind].entry(name).options) for name in names} for kind, names in ours.items()}
    return {**tables, "file": options_of(FileOptions), "train": options_of(Train)}


def test_defaults_and_bounds_are_what_they_were():
    assert found() == json.loads(FILE.read_text())


if __name__ == "__main__":
    FILE.write_text(json.dumps(found(), indent=1) + "\n")
