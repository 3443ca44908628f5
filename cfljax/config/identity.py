"""What a newer version computes differently from an older one, and for which runs: those get another id, so that results of
two versions never mix. All other ids stay, and folders of older versions are found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

Config = Mapping[str, Any]
"""A resolved configuration, as `Run.resolved()` makes it and a record keeps it."""


class Change(NamedTuple):
    """Something that is computed differently since some version."""

    name: str
    """Part of the id of the runs that it concerns; never altered once released."""
    concerns: Callable[[Config], bool]
    """Whether runs of this configuration come out differently."""
    what: str
    """For users: what was computed before, and what now."""


CHANGES: tuple[Change, ...] = ()
"""In the order in which they were made."""


def changes_of(config: Config) -> tuple[str, ...]:
    """Names of the changes that concern a run of this configuration, in the order in which they were made."""
    return tuple(change.name for change in CHANGES if change.concerns(config))


def missing(config: Config, made_with: Collection[str]) -> list[Change]:
    """The changes that concern a record of this configuration and were not made yet when it was computed; `made_with`: the
    record's own `changes`."""
    return [change for change in CHANGES if change.name not in made_with and _concerned(change, config)]


def _concerned(change: Change, config: Config) -> bool:
    """Of a record, whose configuration may lack what a resolved one has: what does not say that it is concerned is not."""
    try:
        return change.concerns(config)
    except (KeyError, TypeError, AttributeError):
        return False
