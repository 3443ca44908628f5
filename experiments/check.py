"""Run a number of ours again, and say whether it is the one of its record.

    python -m experiments.check --list FedGroup                      # claims, and what they are called
    CFLJAX_DATA=FOLDER python -m experiments.check "FedGroup Table 3"       # the first that fits
    CFLJAX_DATA=FOLDER python -m experiments.check joint_99 1 --rounds 12
    CFLJAX_DATA=FOLDER python -m experiments.check joint_99 1 --json        # for programs; --schema says what

A claim is called by the file of its numbers and its place in it, as on the pages; a number by words
of its paper, table and cell. The run is made for some rounds, as its record was: on as many
threads, by the same plan. Bits can be the same only with the same versions of JAX and on the same
kind of machine. Exits with 1 where a digit that the pages show differs, and with 2 for a mistake."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax.commands import as_json
from cfljax.config.flags import parse_value
from cfljax.devices import cores
from cfljax.errors import CfljaxError, SpecError
from cfljax.registry.gone import without_gone
from cfljax.registry.options import Table
from cfljax.results.result import Result, Results
from cfljax.store import provenance
from experiments.replication.measured import Section, section
from experiments.replication.published import Cell, Claim, Published, read_published
from experiments.replication.tables import format_ours, format_published
from experiments.replication.verdicts import NOT_RUN

HERE = Path(__file__).parent
UNLIKE = ("seconds",)
"""Words in the names of curves that no two runs share."""
ROUNDS = 5
MOST = 4
"""The most verdicts that are told of a number."""


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_ANY_TEXT = {"type": ["string", "null"]}
_NUMBER = {"type": ["number", "null"]}
_RUN = {
    "id": _TEXT,
    **dict.fromkeys(("seed", "round", "rounds"), _COUNT),
    "seconds": {"type": "number"},
    "curve": _ANY_TEXT,
    **dict.fromkeys(("now", "record", "digit"), _NUMBER),
}
_VERDICT = {"word": _TEXT, "claim": _TEXT}
_CLAIM = {"code": _TEXT, "about": _TEXT}


def _close(keys: Table) -> Table:
    """Make the schema of an object with these keys and no others."""
    return {
        "type": "object",
        "properties": keys,
        "required": list(keys),
        "additionalProperties": False,
    }


SCHEMA: Table = as_json.make_schema(
    **dict.fromkeys(("number", "paper", "table", "cell", "published", "ours"), _TEXT),
    ours_of_claim=_ANY_TEXT,
    column=_TEXT,
    seeds=_TEXT,
    run=_close(_RUN),
    agrees={"type": "boolean"},
    difference=_TEXT,
    verdicts={"type": "array", "items": _close(_VERDICT)},
    fitting=_COUNT,
)
"""Of what `--json` prints: a number, an error, or with `--list` the claims."""
SCHEMA["oneOf"].append(_close({"claims": {"type": "array", "items": _close(_CLAIM)}}))


class Number(NamedTuple):
    """A number of ours, and the claim that it is for."""

    name: str
    of: Published
    cell: Cell
    claim: Claim | None = None


class Again(NamedTuple):
    """A run of a record, and the same made now."""

    old: Result
    new: Result
    curve: str
    """The curve that the number is of, or "" for a number of the whole run."""
    then: float
    now: float
    """The number, in the last round that was run."""
    digit: float
    """The last digit of it that a page shows."""
    seconds: float

    @property
    def agrees(self) -> bool:
        """Whether the digits that a page shows are the same."""
        both_nan = np.isnan(self.then) and np.isnan(self.now)
        return bool(both_nan or abs(self.then - self.now) < self.digit or self.then == self.now)


def numbers(every: list[Published], words: str) -> list[Number]:
    """Return the numbers that these words fit: those of a claim by its code, or cells whose paper,
    table and name have all words; those with a published number first."""
    for of in every:
        for claim in of.claims:
            if words == of.code(claim):
                cells = [of.cell(name) for name in claim.cells]
                return [Number(words, of, cell, claim) for cell in cells]
    wanted, found = set(_split(words)), []
    for of in every:
        short = of.paper.partition(" (")[0]
        for cell in of.cells:
            name = f"{short} {of.title}: {cell.name}"
            if wanted <= set(_split(name)):
                found.append(Number(name, of, cell))
    exact = words.lower()
    return sorted(
        found, key=lambda each: (exact not in each.name.lower(), each.cell.published is None)
    )


def _split(words: str) -> list[str]:
    return [word for word in re.split(r"[\s,:;()]+", words.lower()) if word]


def list_claims(every: list[Published], words: str) -> list[Table]:
    """List the claims of papers that have all these words, each with what it is called."""
    wanted, claims = set(_split(words)), []
    for of in every:
        for claim in of.claims:
            about = f"{of.paper.partition(' (')[0]} {of.title}: {claim.text}"
            code = of.code(claim)
            if wanted <= {*_split(about), *_split(code)}:
                claims.append({"code": code, "about": about})
    return claims


def read_section(of: Published, records: Path) -> Section:
    """Measure a table on the records of its sweeps."""
    folders = [Results(path) for path in sorted(records.iterdir()) if path.is_dir()]
    return section(of, [each for each in folders if each.sweep.get("name") in (of.sweep, *of.also)])


def again(run: Result, rounds: int) -> Result:
    """Run it again for that many rounds, up to the next that it was evaluated in, by the plan and
    on as many threads as its record says."""
    config = without_gone(run.config)
    table: Table = {
        part: {k: v for k, v in config[part].items() if v is not None}
        for part in ("data", "model", "method", "train")
    }
    seen = run.history["round"]
    table["train"]["rounds"] = int(min(seen[seen >= rounds], default=seen[-1]))
    table |= {"seeds": [run.seed], "method": [table["method"]], "plugins": own_plugins(run)}
    return one_run_by_plan(table, str(run.record.get("plan") or ""))


def one_run_by_plan(table: Table, made: str) -> Result:
    """Run the run of a spec by a plan and on a number of threads.

    Args:
        table: the spec.
        made: the plan and the threads, as a record has them; "" of records that have none."""
    from cfljax.api import one_run

    plan, threads = re.match(r"\{.*\}", made), re.search(r"(\d+) threads?$", made)
    if plan:
        by_plan = {"quick": False} | parse_value(plan[0], "the plan of the record")
        table = table | {"train": table["train"] | {"plan": by_plan}}
    with _on_threads(int(threads[1]) if threads else 1):
        return one_run(table)


def own_plugins(run: Result) -> list[str]:
    """Return the plug-ins of a run: files of this folder, since a record may name any program."""
    named = [HERE.parent / name for name in run.config.get("plugins", [])]
    for file in named:
        if file.resolve().parent != HERE.resolve():
            raise SpecError(f"its plug-in {file} is no file of experiments/, and is not executed")
    return list(map(str, named))


@contextlib.contextmanager
def _on_threads(count: int) -> Iterator[None]:
    """Keep to that many processors. XLA has as many threads as there were when it began."""
    every = cores.list_cores()
    first = os.getpid() % len(every)
    cores.keep_to((every[first:] + every[:first])[:count])
    try:
        yield
    finally:
        cores.keep_to(every)


def run_again(of: Published, cell: Cell, run: Result, rounds: int) -> Again:
    """Run a run of a cell again, and compare the number."""
    begun = time.monotonic()
    new, take = again(run, rounds), cell.take
    scale = of.scale if take.fraction else 1.0
    whole = new.history["round"][-1] == run.history["round"][-1] or bool(take.diag)
    curve = "" if whole else _curve_of(cell, run)
    if curve:
        at = int(new.history["round"][-1])
        then, now = (
            scale * float(each.history[curve][each.history["round"] == at][0])
            for each in (run, new)
        )
    else:
        then, now = (scale * take.of(each, each) for each in (run, new))
    percent = of.unit == "%" and take.fraction
    digit = 0.1 if percent else 10.0 ** (np.floor(np.log10(abs(then) or 1.0)) - 2)
    return Again(run, new, curve, then, now, float(digit), time.monotonic() - begun)


def _curve_of(cell: Cell, run: Result) -> str:
    """Return the curve that a cell's quantity is taken from."""
    wanted = cell.take.history or cell.take.summary or "accuracy"
    fitting = [name for name in run.history if wanted == name or wanted.startswith(f"{name}_")]
    return max(fitting, key=len, default="accuracy")


def compared(old: Result, new: Result) -> tuple[int, int, float, str, int]:
    """Return how many curves of how many are the same, over the rounds that both runs have, and
    the largest difference, with its curve and round."""
    rounds = np.intersect1d(old.history["round"], new.history["round"])
    worst = []
    for name in old.history:
        if name not in new.history or name == "round" or any(word in name for word in UNLIKE):
            continue
        one, other = (
            run.history[name][np.isin(run.history["round"], rounds)] for run in (old, new)
        )
        apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
        apart[np.isnan(one) & np.isnan(other)] = 0.0
        at = int(np.argmax(np.nan_to_num(apart, nan=np.inf)))
        worst.append((float(np.nan_to_num(apart, nan=np.inf)[at]), name, int(rounds[at])))
    return sum(apart == 0 for apart, _, _ in worst), len(worst), *max(worst)


def same_kind(record: Table) -> str:
    """Return "" where bits can be the same as those of the record, else what differs."""
    now = provenance()
    then, here = (
        {name: each["versions"].get(name) for name in ("jax", "jaxlib")} for each in (record, now)
    )
    if then != here:
        return f"made with JAX {then['jax']}, here is {here['jax']}"
    kinds = [str(each.get("device")).partition(",")[0] for each in (record, now)]
    return "" if kinds[0] == kinds[1] else f"made on {kinds[0]}, here is {kinds[1]}"


def _say(found: Again) -> str:
    """Return what is said of the difference."""
    same, curves, most, name, at = compared(found.old, found.new)
    other = same_kind(found.old.record)
    if most == 0 and not other:
        return f"none: the same bits in all {curves} curves"
    shown = f"the pages show {found.digit:g}"
    if most == 0:
        return f"none in {curves} curves ({other})"
    said = f"{abs(found.then - found.now):.2g}, where {shown}; the largest is {most:.2g}, of {name} in round {at}"
    return f"{said}; {same} of {curves} curves are the same" + (f" ({other})" if other else "")


def describe(number: Number, fitting: int, table: Section, found: Again) -> Table:
    """Describe a number that was run again, for `--json` and for the screen. `fitting`: how many
    numbers the words have fitted."""
    of, cell = number.of, number.cell
    decided = [
        (claim, verdict)
        for claim, verdict in zip(of.claims, table.verdicts, strict=True)
        if (cell.name in claim.cells if number.claim is None else claim is number.claim)
    ]
    published = format_published(cell, of)
    if number.claim is not None:
        published = decided[0][1].published or published
    return {
        "number": number.name,
        "paper": of.paper,
        "table": of.title,
        "cell": cell.name,
        "published": published,
        "ours": format_ours(table.measured[cell.name], cell, of),
        "ours_of_claim": None if number.claim is None else decided[0][1].ours,
        "column": cell.take.summary or cell.take.history or cell.take.diag,
        "seeds": table.seeds(cell.name),
        "run": {
            "id": found.old.record["id"],
            "seed": found.old.seed,
            "round": int(found.new.history["round"][-1]),
            "rounds": int(found.old.history["round"][-1]),
            "seconds": found.seconds,
            "curve": found.curve or None,
            "now": found.now,
            "record": found.then,
            "digit": found.digit,
        },
        "agrees": found.agrees,
        "difference": _say(found),
        "verdicts": [{"word": verdict.word, "claim": claim.text} for claim, verdict in decided],
        "fitting": fitting,
    }


def write_screen(said: Table) -> str:
    """Write the screen for a number that was run again, of what `describe` returns."""
    run, claim = said["run"], said["ours_of_claim"]
    what = f"{run['curve']} in round {run['round']}" if run["curve"] else "the number"
    digits = f".{max(0, -int(np.floor(np.log10(run['digit']))))}f"
    ours = f"{said['ours']} ({said['column']}, seeds: {said['seeds']})"
    of_paper = "" if claim is None else f": {said['paper']}, {said['table']}"
    rows = [
        ("", said["number"] + of_paper),
        ("published", said["published"]),
        ("ours", ours if claim is None else f"{claim}; {said['cell']}: {ours}"),
        (
            "this run",
            f"{said['cell']}, seed {run['seed']}, {run['round']} of {run['rounds']} "
            f"rounds in {run['seconds']:.0f} s: {what} {run['now']:{digits}}, in the record "
            f"{run['record']:{digits}}",
        ),
        ("difference", said["difference"]),
        *[
            ("" if i else "verdict", f"{verdict['word']}: {verdict['claim']}")
            for i, verdict in enumerate(said["verdicts"][:MOST])
        ],
    ]
    if said["fitting"] > 1 and claim is None:
        rows.append(("", f"the first of {said['fitting']} that fit"))
    return "\n".join(
        f"{head:<12} {text}" if head or i else text for i, (head, text) in enumerate(rows)
    )


def check(words: str, rounds: int, seed: int | None, published: Path, records: Path) -> Table:
    """Run a number again, and describe it and whether it agrees."""
    every = read_published([published])[1]
    found = numbers(every, words)
    if not found:
        known = [f"{of.paper.partition(' (')[0]} {of.title}" for of in every]
        near = difflib.get_close_matches(words, known, 3, 0.3)
        raise SpecError(
            f"{words!r} fits no number"
            + (f"; the nearest tables: {'; '.join(near)}" if near else "; --list has them")
        )
    tables: dict[str, Section] = {}
    for number in found:
        table = tables.setdefault(number.of.file, read_section(number.of, records))
        if runs := table.runs[number.cell.name]:
            break
    else:
        raise SpecError(f"{words!r}: {found[0].cell.name} was {NOT_RUN}")
    chosen = sorted((run for run in runs if seed in (None, run.seed)), key=lambda run: run.seed)
    if not chosen:
        seeds = sorted({run.seed for run in runs})
        raise SpecError(f"--seed {seed}: has {', '.join(map(str, seeds))}")
    old = Result(*chosen[0].store.read(chosen[0].id))
    again = run_again(number.of, number.cell, old, rounds)
    return describe(number, len(found), table, again)


def main(
    words: list[str] | None = None,
    records: Path = HERE / "records",
    published: Path = HERE / "published",
) -> int:
    """Run the command; 0 where the digits that pages show are the same."""
    flags = argparse.ArgumentParser(
        prog="python -m experiments.check",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    flags.add_argument("name", nargs="*", help="a claim's file and place, or words")
    flags.add_argument("--list", action="store_true", help="list the claims that the words fit")
    flags.add_argument("--json", action="store_true", help="print JSON, errors included")
    flags.add_argument("--schema", action="store_true", help="print the JSON Schema of --json")
    flags.add_argument("--rounds", type=int, default=ROUNDS, help="how many are run (default 5)")
    flags.add_argument("--seed", type=int, help="of the run (default: the first)")
    given = flags.parse_args(words)
    name = " ".join(given.name)
    if given.schema:
        print(json.dumps(SCHEMA, indent=1))
        return 0
    try:
        if given.list:
            claims = list_claims(read_published([published])[1], name)
            lines = [f"{each['code']:<36} {each['about']}" for each in claims]
            print(as_json.write({"claims": claims}) if given.json else "\n".join(lines))
            return 0
        if not name:
            raise SpecError("name: give a claim's file and place, or words; --list has them")
        said = check(name, given.rounds, given.seed, published, records)
    except CfljaxError as error:
        if given.json:
            print(as_json.write_error(error, exit_code=2))
        print(f"check: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(as_json.write(said) if given.json else write_screen(said))
    return 0 if said["agrees"] else 1


if __name__ == "__main__":
    sys.exit(main())
