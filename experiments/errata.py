"""Which committed records a mended fault concerns: python -m experiments.errata [FOLDER]

A record names the commit that computed it. A fault concerns the record if its options fit and that
commit does not have the mend."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import Counter
from pathlib import Path

from cfljax.registry.options import Table
from cfljax.store import Store
from cfljax.store.errata import Erratum, read_errata

RECORDS = Path(__file__).parent / "records"


@functools.cache
def has_mend(commit: str, mended: str) -> bool:
    """Return whether a commit of this repository comes after the one that mended a fault."""
    words = ["git", "merge-base", "--is-ancestor", mended, commit]
    code = subprocess.run(words, cwd=RECORDS, check=False, capture_output=True).returncode
    if code > 1:
        raise LookupError(f"{mended} or {commit}: is no commit of this repository")
    return code == 0


def concerns(erratum: Erratum, record: Table) -> bool:
    """Return whether a record was computed with the fault."""
    commit = (record.get("git") or {}).get("commit")
    if not erratum.concerns(record) or commit is None:
        return erratum.concerns(record)
    return not has_mend(commit, erratum.mended)


def find_errata(records: Path = RECORDS) -> dict[str, Counter[str]]:
    """Return folder -> erratum -> the number of its records that the fault concerns."""
    found: dict[str, Counter[str]] = {}
    for folder in sorted(path for path in records.iterdir() if path.is_dir()):
        every = Store(folder, read_only=True).records().values()
        counts = Counter(e.id for record in every for e in read_errata() if concerns(e, record))
        if counts:
            found[folder.name] = counts
    return found


def main(words: list[str]) -> int:
    """Print a line for each folder with such records; 1 if there are any."""
    found = find_errata(Path(words[0]) if words else RECORDS)
    for folder, counts in found.items():
        print(f"{folder}: {', '.join(f'{name} ({count})' for name, count in counts.items())}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
