"""What the numbers of a report are called: as the engine and the methods declare them."""

from __future__ import annotations

from collections.abc import Iterable

from cfljax.engine.quantities import DIAGNOSTICS, HISTORY
from cfljax.methods import METHODS
from cfljax.quantity import Quantity


def describe_history(name: str, scores: Iterable[str] = ()) -> Quantity:
    """Return what a column of the history is; a user's metric is called by its name. `scores`: what
    runs have in the place of accuracy."""
    for score in scores:
        for key, each in HISTORY.items():
            if "accuracy" in key and name == key.replace("accuracy", score):
                return each._replace(label=each.label.replace("accuracy", score))
    return HISTORY.get(name) or _by_name(name)


def describe_diagnostic(method: str, name: str) -> Quantity:
    """Return what a diagnostic of a method is. A method that this process does not know, or that
    does not say it, leaves the name."""
    declared: dict[str, Quantity] = {}
    if method in METHODS:
        declared = getattr(METHODS.entry(method).options, "diagnostics", {})
    return declared.get(name) or DIAGNOSTICS.get(name) or _by_name(name)


def key_diagnostics(found: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the key of each (method, diagnostic): its name, with the method where another method
    has another quantity of that name."""
    pairs = list(dict.fromkeys(found))
    meanings: dict[str, set[Quantity]] = {}
    for method, name in pairs:
        meanings.setdefault(name, set()).add(describe_diagnostic(method, name))
    return {
        (method, name): name if len(meanings[name]) == 1 else f"{name} ({method})"
        for method, name in pairs
    }


def _by_name(name: str) -> Quantity:
    return Quantity(name.replace("_", " "), "share" if name.startswith("accuracy") else "")
