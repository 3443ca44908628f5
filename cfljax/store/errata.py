"""Faults that changed results in silence, and are mended: which records they concern.

`errata.toml` has the faults in the order in which they were entered. Its keys:

- `id`, `title`: the name of the erratum, and a sentence;
- `what`, `off`: what was wrong, and how far off results were;
- `until`: the last version of cfljax that has the fault; `mended`: the commit that mended it;
- `revision`: what the ids of mended runs have, if they have a word for it
  (`cfljax.config.revisions`);
- `where`: tables of conditions on the configuration of a run, as its record has it. The fault
  concerns a run if all conditions of one table hold. A condition is a dotted key and: a list (the
  value is one of these; of a list or a table of options, one of its values or its name), true (the
  key has a value), false (it has none), or `{ above = … }`, `{ below = … }`, `{ not = […] }`.
  Without `where`, records do not tell whether the fault concerns them.
"""

from __future__ import annotations

import functools
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cfljax.registry.options import Table, Value

RECORD_KEY = "errata"
"""The key of a record: how many errata of the table were mended when the run was computed."""
ERRATA_PAGE = "docs/errata.md"


class ErrataWarning(UserWarning):
    """Runs of a results folder may be wrong, because an earlier version computed them."""


class Erratum(NamedTuple):
    """A fault that is mended."""

    # Its position in the table, from 1
    number: int
    id: str
    title: str
    what: str
    off: str
    until: str
    mended: str
    revision: str
    where: tuple[Table, ...]

    def fits(self, config: Table) -> bool:
        """Return whether the fault concerns runs of this configuration."""
        return any(
            all(_holds(_look_up(config, key), wanted) for key, wanted in conditions.items())
            for conditions in self.where
        )

    def concerns(self, record: Table) -> bool:
        """Return whether the run of a record was computed with the fault."""
        mended = record.get(RECORD_KEY)
        versions = record.get("versions")
        if isinstance(mended, int) and mended >= self.number:
            return False
        version = versions.get("cfljax") if isinstance(versions, dict) else None
        return _parse_version(str(version)) <= _parse_version(self.until) and self.fits(
            record["config"]
        )


@functools.cache
def read_errata() -> tuple[Erratum, ...]:
    """Read the table."""
    text = (Path(__file__).parent / "errata.toml").read_text(encoding="utf-8")
    return tuple(
        Erratum(
            number,
            each["id"],
            each["title"],
            each["what"],
            each["off"],
            each["until"],
            each["mended"],
            each.get("revision", ""),
            tuple(each.get("where", ())),
        )
        for number, each in enumerate(tomllib.loads(text)["erratum"], 1)
    )


def describe_errata(folder: object, records: Iterable[Table]) -> str:
    """Return the line on the runs of a folder that may be wrong; "" if there are none."""
    every = list(records)
    found = [[e for e in read_errata() if e.concerns(record)] for record in every]
    if not any(found):
        return ""
    counts = Counter(erratum.id for each in found for erratum in each)
    named = ", ".join(f"{name} ({count})" for name, count in counts.items())
    runs = f"{sum(map(bool, found))} of {len(every)} runs"
    return (
        f"{folder}: {runs} may be wrong, because an earlier version of cfljax computed them: "
        f"{named}; {ERRATA_PAGE} says what was wrong and how far off"
    )


def _look_up(config: Table, key: str) -> Value:
    """Return the value at a dotted key of a configuration; None if it has none."""
    value: Value = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _holds(value: Value, wanted: Value) -> bool:
    """Return whether a condition holds for the value of its key, None if it has none."""
    names = [_get_name(each) for each in (value if isinstance(value, list) else [value])]
    if isinstance(wanted, list):
        return any(name in wanted for name in names)
    if isinstance(wanted, bool):
        return wanted == (value not in (None, [], "none"))
    given = [name for name in names if name is not None]
    if "not" in wanted:
        return any(name not in wanted["not"] for name in given)
    numbers = [n for n in given if isinstance(n, (int, float)) and not isinstance(n, bool)]
    if "above" in wanted:
        return any(number > wanted["above"] for number in numbers)
    return any(isinstance(number, float) and number < wanted["below"] for number in numbers)


def _get_name(value: Value) -> Value:
    """Return the name of a table of options, and other values as they are."""
    return value.get("name") if isinstance(value, dict) else value


def _parse_version(version: str) -> tuple[int, ...]:
    """Return a version as numbers; an unknown one counts as the first."""
    parts = version.split(".")[:3]
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()
