"""What differs between the arrays of a spec as they were and as they are."""

import fnmatch
from typing import NamedTuple

import numpy as np

SHOWN = 4
"""The most arrays of a spec that its line names."""


class Difference(NamedTuple):
    """An array that differs."""

    array: str
    words: str
    size: float
    """How far numbers are off, absolute or relative, whichever is less; infinite where they cannot be compared."""
    pattern: str
    """What allows it of EXPECTED; "": nothing does."""


class Outcome(NamedTuple):
    """What became of a spec."""

    kind: str
    """same, expected, now works, refused (on both sides), or differs."""
    line: str = ""
    used: frozenset = frozenset()
    """The patterns of EXPECTED that were needed."""


def compare(name, old, new, expected):
    """Return the Outcome of a spec from its arrays on both sides. `expected`: as EXPECTED."""
    before, now = (next((kind for kind in ("refused", "failed") if kind in arrays), "") for arrays in (old, new))
    if before and not now:
        return Outcome("now works", f"{name}: now works, and {before} before: {old[before]}")
    if (before, now) in (("refused", "refused"), ("failed", "failed"), ("failed", "refused")):
        return Outcome("refused")
    if now:
        return Outcome("differs", f"{name}: {now} now, and {before or 'worked'} before: {new[now]}")
    found = differences(name, old, new, expected)
    if not found:
        return Outcome("same")
    wrong = [each for each in found if not each.pattern]
    words = [f"{each.array} {each.words}" for each in (wrong or found)]
    arrays = f"{name}: {len(found)} of {len(old)} arrays {'differ' if wrong else 'differ as expected'}"
    line = f"{arrays}: {'; '.join(words[:SHOWN])}{'; …' if len(words) > SHOWN else ''}"
    return Outcome("differs" if wrong else "expected", line, frozenset(each.pattern for each in found if each.pattern))


def differences(name, old, new, expected):
    """Return the Difference of each array that differs in a bit, the largest first."""
    found = []
    for array in sorted(old.keys() | new.keys()):
        if array in old and array in new:
            words, size = difference(old[array], new[array])
        else:
            words, size = "is missing" if array in old else "is new", np.inf
        if words:
            found.append(Difference(array, words, size, allowing(name, array, size, expected)))
    return sorted(found, key=lambda each: -each.size)


def difference(old, new):
    """Return (in words how two arrays differ, "" if they have the same bits; how far they are off)."""
    if old.dtype != new.dtype or old.shape != new.shape:
        return f"is {new.dtype}{list(new.shape)}, and was {old.dtype}{list(old.shape)}", np.inf
    if old.tobytes() == new.tobytes():
        return "", 0.0
    if old.dtype.kind not in "biuf":
        return f"is {new}, and was {old}"[:200], np.inf
    was, now = old.astype(np.float64), new.astype(np.float64)
    equal = (was == now) | (np.isnan(was) & np.isnan(now))
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(was - now)
        both = [np.where(equal, 0.0, np.where(np.isnan(each), np.inf, each)) for each in (off, off / np.abs(was))]
    return f"by {both[0].max():.2g}, relative {both[1].max():.2g}", float(np.minimum(*both).max())


def allowing(name, array, size, expected):
    """Return the first pattern of EXPECTED that allows this difference, or ""."""
    for pattern, (tolerance, _) in expected.items():
        spec, _, arrays = pattern.partition(" ")
        if fnmatch.fnmatchcase(name, spec) and fnmatch.fnmatchcase(array, arrays) and (tolerance is None or size <= tolerance):
            return pattern
    return ""
