"""Play the specs on both sides, and compare every array."""

import argparse
import collections
import fnmatch
import os
import sys
import tempfile
from pathlib import Path

from tests.bits import EXPECTED
from tests.bits.compare import compare
from tests.bits.sides import COMMIT, ROOT, Unplayable, package_before, play, read, reference_file, reference_folder
from tests.bits.specs import all_specs


def main(arguments=None):
    """Compare, print a line for each spec that differs, and return the exit code."""
    flags = _parser().parse_args(arguments)
    specs = {name: spec for name, spec in all_specs().items() if fnmatch.fnmatchcase(name, flags.only)}
    specs = {name: spec for name, spec in specs.items() if spec["quick"] or not flags.quick}
    first, step = map(int, flags.part.split("/"))
    specs = dict(list(specs.items())[first::step])
    if flags.list or not specs:
        print("\n".join([*specs, f"{len(specs)} specs"]))
        return 0 if specs else 2
    try:
        with tempfile.TemporaryDirectory(prefix="bits-") as folder:
            references = record(specs, flags.cache, Path(folder))
            outcomes = {
                name: compare(name, old, new, EXPECTED) for name, old, new in played(specs, references, flags.cache, folder)
            }
    except Unplayable as error:
        print(f"tests.bits: {error}", file=sys.stderr)
        return 1
    print("\n".join(summary(outcomes, whole=not flags.quick and flags.only == "*" and step == 1)))
    return 1 if any(each.kind == "differs" for each in outcomes.values()) else 0


def _parser():
    flags = argparse.ArgumentParser("python -m tests.bits", description=__doc__)
    named = os.environ.get("CFLJAX_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "cfljax")
    flags.add_argument("--quick", action="store_true", help="only those specs that CI plays")
    flags.add_argument("--only", default="*", metavar="PATTERN", help='only specs with such names, as in "plain/*" or "*/ifca"')
    flags.add_argument("--part", default="0/1", metavar="K/N", help="of these every Nth, from the Kth on")
    flags.add_argument("--list", action="store_true", help="print the names of the specs")
    flags.add_argument("--cache", type=lambda text: Path(text).expanduser().resolve(), default=str(named), metavar="DIR")
    return flags


def record(specs, cache, folder):
    """Play what is not recorded yet with the package of COMMIT, and return {name: file of its reference arrays}."""
    every, place = all_specs(), reference_folder(cache)
    like = {name: spec.get("like", name) for name, spec in specs.items()}
    files = {name: reference_file(place, every[other]) for name, other in like.items()}
    missing = {like[name]: every[like[name]] | {"file": str(file)} for name, file in files.items() if not file.exists()}
    if missing:
        place.mkdir(parents=True, exist_ok=True)
        (folder / "before").mkdir()
        dead = play(package_before(folder / "before"), missing, cache, COMMIT)
        if dead:
            raise Unplayable(f"{len(dead)} specs cannot be played with {COMMIT}: {'; '.join(map(': '.join, dead.items()))}")
    return files


def played(specs, references, cache, folder):
    """Play the specs with the working tree's package, and yield (name, arrays before, arrays now)."""
    files = {name: Path(folder, f"{number}.npz") for number, name in enumerate(specs)}
    dead = play(ROOT, {name: spec | {"file": str(files[name])} for name, spec in specs.items()}, cache, "working tree")
    for name in specs:
        yield name, read(references[name]), {"failed": dead[name]} if name in dead else read(files[name])


def summary(outcomes, whole):
    """Return the lines to print. `whole`: all specs were played."""
    count = collections.Counter(each.kind for each in outcomes.values())
    lines = [each.line for each in outcomes.values() if each.line]
    if whole:
        idle = set(EXPECTED).difference(*(each.used for each in outcomes.values()))
        lines += [f'EXPECTED["{pattern}"] allows nothing that differs: remove it' for pattern in sorted(idle)]
    both = {"expected": "differ as EXPECTED allows", "now works": "now work", "refused": "are refused on both sides"}
    rest = "".join(f"; {count[kind]} {words}" for kind, words in both.items() if count[kind])
    same = f"{count['same']} specs: same bits"
    return [*lines, f"{count['differs']} of {len(outcomes)} specs differ; {same}{rest}" if count["differs"] else f"{same}{rest}"]


if __name__ == "__main__":
    sys.exit(main())
