"""Enters: a setting. Leaves: the specs of its methods, and why others cannot play it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cfljax.config import Run, read_spec
from cfljax.errors import SpecError
from cfljax.registry.options import Table
from experiments.board.space import read_settings, read_tiers


class Setting(NamedTuple):
    """A setting, with what its tier says."""

    name: str
    tier: str
    kind: str
    # A spec without methods
    spec: Table
    # Their options that are not tuned, by name
    methods: dict[str, Table]
    trials: int
    # Of the runs that are compared
    seeds: list[int]
    # Processor seconds that a method takes, on average over the tier; None: not measured
    price: float | None = None

    def make_method(self, name: str) -> Table:
        """Make the table of a method for a spec."""
        clients = self.spec["data"]["clients"]
        given = self.methods[name].items()
        return {"name": name} | {
            option: clients if value == "clients" else value for option, value in given
        }

    def make_search(self, methods: list[str]) -> Table:
        """Make the spec by which methods are tuned: all trials make all rounds."""
        rounds = self.spec["train"]["rounds"]
        tables = [self.make_method(name) for name in methods]
        return self.spec | {
            "method": tables,
            "samples": self.trials,
            "search": {"first": rounds},
        }

    def make_run(self, method: str, chosen: Table, seed: int) -> Table:
        """Make the spec of one run. `chosen`: dotted names of options -> their values."""
        train = dict(self.spec["train"])
        parts: dict[str, Table] = {"method": self.make_method(method), "train": train}
        for option, value in chosen.items():
            section, _, name = option.partition(".")
            parts[section][name] = value
        return self.spec | parts | {"method": [parts["method"]], "seeds": [seed]}


def list_settings() -> list[Setting]:
    """List the settings of both tiers."""
    tiers = read_tiers()
    found = []
    for each in read_settings():
        tier = tiers[each["tier"]]
        spec: Table = {part: dict(table) for part, table in tier["spec"].items()}
        spec["data"] |= each["data"]
        spec["train"] |= each["train"]
        if "model" in tier:
            spec["model"] = tier["model"][each["data"]["name"]]
        spec["name"] = f"board {each['name']}"
        shared = (tier["method"], tier["trials"], tier["seeds"], tier.get("price"))
        found.append(Setting(each["name"], each["tier"], each["kind"], spec, *shared))
    return found


def find_setting(name: str) -> Setting:
    """Return the setting of this name."""
    settings = {each.name: each for each in list_settings()}
    if name not in settings:
        raise SpecError(f"{name}: is no setting; there are 01 to {max(settings)}")
    return settings[name]


def find_settings(names: Sequence[str]) -> list[Setting]:
    """Return the settings of these names and of tiers of these names, each once."""
    found = {}
    for name in names:
        of_tier = [each for each in list_settings() if each.tier == name]
        for each in of_tier or [find_setting(name)]:
            found[each.name] = each
    return list(found.values())


def list_refusals(setting: Setting) -> dict[str, str]:
    """Map the methods that cannot play a setting to the reason. The data are read, and each method
    is made for them, but nothing is trained."""
    refused = {}
    for method in setting.methods:
        try:
            _make(read_spec(setting.make_search([method]), tuned=True).runs()[0])
        except SpecError as error:
            refused[method] = " ".join(str(error).split())
    return refused


def _make(run: Run) -> None:
    """Make a run's method; raise a SpecError if it cannot be."""
    from cfljax.devices.machine import describe_machine
    from cfljax.experiment.assemble import assemble, host_federation
    from cfljax.experiment.federations import check_clients

    check_clients(run, host_federation(run))
    assemble(run, 1, describe_machine())
