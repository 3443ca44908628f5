"""Results of older versions: shown as they are, named in one line, and never mixed with what today's version computes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from cfljax.config import changes
from cfljax.config.changes import missing
from cfljax.errors import StoreError
from cfljax.registry.options import Value
from cfljax.store.folder import Folder

NAMED = 3
"""Changes that the line names; of more, how many there are."""
_FLAG = re.compile(r"# (--set|--plugin) (.+)")


class OlderWarning(UserWarning):
    """Some runs were computed by an older version, which computed them differently."""


def shown(store: Folder, records: Mapping[str, Mapping[str, Value]]) -> str:
    """One line about the records of older versions among those that are shown, and how to compute them again; "" without any."""
    count, why = _older(records.values())
    if not count:
        return ""
    return (
        f"{store.folder}: {count} of {len(records)} run{_s(len(records))} {_were(count)} computed by an older version ({why}); "
        f"compute {'it' if count == 1 else 'them'} again with: {again(store)}"
    )


def left(store: Folder, records: Iterable[Mapping[str, Value]]) -> str:
    """One line about the records of older versions that a start leaves out from now on; "" without any."""
    count, why = _older(records)
    if not count:
        return ""
    return (
        f"{store.folder}: {count} run{_s(count)} there {_were(count)} computed by an older version ({why}); "
        f"{'it stays' if count == 1 else 'they stay'} there and {'is' if count == 1 else 'are'} not mixed in, "
        "and what the spec asks for is computed anew"
    )


def again(store: Folder) -> str:
    """The command that computes the folder's sweep again."""
    try:
        spec = store.read_spec()
    except StoreError:
        spec = None
    if spec is None:
        return f"the same sweep, started again on {store.folder}"
    flags = dict.fromkeys(match.groups() for line in spec.splitlines() if (match := _FLAG.fullmatch(line)))
    words = [word for flag in flags for word in flag]
    return shlex.join(["python", "-m", "cfljax.sweep", str(store.folder / "spec.toml"), *words, "--out", str(store.folder)])


def _older(records: Iterable[Mapping[str, Value]]) -> tuple[int, str]:
    """(how many records are of older versions, what has changed since)."""
    lacking = [missing(record["config"], record.get("changes", ())) for record in records]
    names = {change.name for concerned in lacking for change in concerned}
    named = [change.what for change in changes.CHANGES if change.name in names]
    more = [f"and {len(named) - NAMED} more change{_s(len(named) - NAMED)}"] if len(named) > NAMED else []
    return sum(map(bool, lacking)), "; ".join([*named[:NAMED], *more])


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
