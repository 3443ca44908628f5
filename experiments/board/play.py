"""Enters: settings. Leaves: their records, after each method has been tuned and its best trial has
run on fresh seeds; and a cell of a record, run again.

The data of a tier's settings have the same shapes (`train.plan` of tiers.toml), so that they share
compiled programs. To make use of it, a method plays all settings that share them before the next
method does."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import cfljax
from cfljax.config import read_spec
from cfljax.config.trials import list_searched
from cfljax.errors import DataError, SpecError
from cfljax.registry.options import Table
from cfljax.results.advice import find_best
from cfljax.results.result import Results
from cfljax.store import Store, provenance
from cfljax.store.atomic import write_bytes
from cfljax.store.quantities import number
from cfljax.store.units import read_search
from experiments.board.settings import Setting, find_setting, list_refusals

RECORDS = Path(__file__).parent.parent / "records"
NUMBERS = {
    "ari": "ari_last",
    "clusters": "clusters_last",
    "bytes_up": "bytes_up",
    "bytes_down": "bytes_down",
    # Simulated, by train.clock of tiers.toml
    "seconds": "clock_s",
}
"""What a record has of each run beside its accuracies -> the quantity of its summary."""
SECONDS = "processor_seconds.txt"
PLAYED = "played.json"
"""The part of a record that a method has, in the folder of its runs."""


def play(settings: Sequence[Setting], out: Path, records: Path = RECORDS) -> Iterator[Path]:
    """Play settings, or go on with them, and yield the files of their records as they are written.

    Args:
        settings: what is played.
        out: the folder of the results folders, with one for each method of each setting.
        records: where the records are written."""
    for group in group_by_programs(settings):
        refusals = {setting.name: list_refusals(setting) for setting in group}
        for method in dict.fromkeys(name for setting in group for name in setting.methods):
            for setting in group:
                folder = out / setting.name / method
                can_play = method in setting.methods and method not in refusals[setting.name]
                if can_play and not (folder / PLAYED).is_file():
                    play_method(setting, method, folder)
        for setting in group:
            record = make_record(setting, out / setting.name, refusals[setting.name])
            file = name_record(setting.name, records)
            write_bytes(file, write_record(record).encode())
            yield file


def group_by_programs(settings: Sequence[Setting]) -> list[list[Setting]]:
    """Group settings that share programs, the largest group first: where `train.plan` gives all
    data the same shapes, they are those of a tier whose clients do as many epochs."""
    groups: dict[tuple[str, int], list[Setting]] = {}
    for setting in settings:
        epochs = setting.spec["train"].get("epochs", 1)
        groups.setdefault((setting.tier, epochs), []).append(setting)
    return sorted(groups.values(), key=len, reverse=True)


def play_method(setting: Setting, method: str, folder: Path) -> None:
    """Tune a method on a setting, compare its best trial on the seeds, and write what the record
    has of it. `folder`: of its runs."""
    begun = time.process_time()
    results = None
    try:
        results = cfljax.tune(
            setting.make_search([method]), folder, then_compare=setting.seeds, quiet=True
        )
    except SpecError:
        # A tuning without a finite score leaves nothing to compare
        search = read_search(Store(folder, read_only=True))
        if search is None or find_best(search["groups"][0], search) is not None:
            raise
    finally:
        # Of all sessions together
        seconds = _read_seconds(folder) + time.process_time() - begun
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / SECONDS, f"{seconds:.2f}\n".encode())
    search = read_search(Store(folder, read_only=True))
    assert search is not None
    played = describe_method(_describe_tuning(search["groups"][0], search), results)
    write_bytes(folder / PLAYED, json.dumps(played).encode())


def _read_seconds(folder: Path) -> float:
    file = folder / SECONDS
    return float(file.read_text(encoding="utf-8")) if file.is_file() else 0.0


def name_record(setting: str, records: Path = RECORDS) -> Path:
    """Return the file of a setting's record."""
    return records / f"board_{setting}.json"


def describe_method(tuned: Table, results: Results | None) -> Table:
    """Describe what a method has played.

    Args:
        tuned: its tuning.
        results: the compared runs; None: there are none."""
    runs = []
    failed = "no trial came to the end" if results is None else ""
    for record in () if results is None else results.records.values():
        if record["status"] == "failed":
            failed = record["error"]
            continue
        tuned = tuned | {"chosen": _read_chosen(record), "plan": record["plan"]}
        runs.append(_describe_run(record))
    return {"tuned": tuned, "runs": runs, "failed": failed}


def make_record(setting: Setting, folder: Path, refused: dict[str, str]) -> Table:
    """Make the record of a setting whose methods have all played.

    Args:
        setting: which one.
        folder: of the folders of its methods.
        refused: the methods that cannot play it, and why."""
    methods = [name for name in setting.methods if name not in refused]
    played = {
        name: json.loads((folder / name / PLAYED).read_text(encoding="utf-8")) for name in methods
    }
    failed = {name: f"failed: {each['failed']}" for name, each in played.items() if each["failed"]}
    made = provenance()
    return {
        "setting": setting.name,
        "commit": (made["git"] or {}).get("commit"),
        "versions": made["versions"],
        "device": made["device"],
        "processor_seconds": round(math.fsum(_read_seconds(folder / name) for name in methods)),
        "refused": refused | failed,
        "methods": {name: each["tuned"] for name, each in played.items()},
        "runs": [run for each in played.values() for run in each["runs"]],
    }


def _describe_tuning(group: Table, search: Table) -> Table:
    """Describe the trials of a method, with their validation accuracy, and the chosen one."""
    best = find_best(group, search)
    trials = [
        each["varies"] | {"val_accuracy": _round(each["scores"][-1] if each["scores"] else None)}
        for each in group["settings"]
    ]
    return {
        "chosen": None if best is None else best["varies"],
        "at_edge": [each["option"] for each in group["at_edge"]],
        "trials": trials,
    }


def _read_chosen(record: Table) -> Table:
    """Return the options that were tuned, with their values in a run. What a search says is not
    enough: it leaves out what all trials had in common."""
    searched = (option.partition(".") for option in list_searched(record["method"]))
    return {f"{section}.{name}": record["config"][section][name] for section, _, name in searched}


def _describe_run(record: Table) -> Table:
    """Describe a run: a method that fine-tunes at the end is scored after that."""
    summary = record["summary"]
    accuracy, worst = summary["accuracy_last"], summary["accuracy_worst10"]
    if "accuracy_finetuned" in summary:
        accuracy = summary["accuracy_finetuned"]
        worst = summary["accuracy_worst10_finetuned"]
    facts = {key: record[key] for key in ("method", "seed", "id", "status")}
    scores = {"accuracy": _round(accuracy), "worst_tenth": _round(worst)}
    return facts | scores | {key: _round(summary.get(name)) for key, name in NUMBERS.items()}


def _round(value: object) -> float | None:
    """Round to six digits; None for what is no finite number."""
    found = number(value)
    return float(f"{found:.6g}") if math.isfinite(found) else None


def write_record(record: Table) -> str:
    """Write a record as JSON, with a line for each method and each run."""
    parts = []
    for key, value in record.items():
        if isinstance(value, dict):
            lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            value = f"{{\n{lines}\n }}"
        elif isinstance(value, list):
            value = "[\n" + ",\n".join(f"  {json.dumps(each)}" for each in value) + "\n ]"
        else:
            value = json.dumps(value)
        parts.append(f" {json.dumps(key)}: {value}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read_records(records: Path = RECORDS) -> list[Table]:
    """Read the records that are there, in the order of the settings."""
    return [
        json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(records.glob("board_*.json"))
    ]


class Cell(NamedTuple):
    """A run of a record."""

    setting: Setting
    run: Table
    # How its method was tuned
    tuned: Table

    def make_spec(self) -> Table:
        """Make the spec of the run."""
        return self.setting.make_run(self.run["method"], self.tuned["chosen"], self.run["seed"])


def find_cell(run: str, records: Path = RECORDS) -> Cell:
    """Return the run of this id."""
    for record in read_records(records):
        for each in record["runs"]:
            if each["id"] == run:
                tuned = record["methods"][each["method"]]
                return Cell(find_setting(record["setting"]), each, tuned)
    raise SpecError(f"{run}: is the id of no run of the board; its records are in {records}")


def check_cell(run: str, records: Path = RECORDS) -> str:
    """Run a run of a record again, and say what comes out. Raise a DataError if the run has another
    id today, or another accuracy."""
    from experiments.check import one_run_by_plan

    cell = find_cell(run, records)
    spec = cell.make_spec()
    (today,) = read_spec(spec).runs()
    if today.id != run:
        raise DataError(f"{run}: is {today.id} today: what it depends on has changed")
    now = _describe_run(one_run_by_plan(spec, cell.tuned["plan"]).record)
    then = cell.run
    said = (
        f"board {cell.setting.name}, {cell.setting.kind}: {then['method']}, seed {then['seed']}: "
        f"accuracy {now['accuracy']:.4f}, in the record {then['accuracy']:.4f}"
    )
    if abs(now["accuracy"] - then["accuracy"]) >= 0.001:
        raise DataError(f"{said}: they differ")
    return said
