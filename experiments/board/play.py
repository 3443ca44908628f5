"""Enters: a setting. Leaves: its record, after each method has been tuned and its best trial has
run on fresh seeds; and a cell of a record, run again."""

from __future__ import annotations

import json
import math
import time
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


def play(setting: Setting, out: Path, records: Path = RECORDS) -> Path:
    """Play a setting, or go on with it, and write its record.

    Args:
        setting: what is played.
        out: the folder of the results folders, with one for each setting.
        records: where its record is written, whose path is returned."""
    folder = out / setting.name
    refused = list_refusals(setting)
    methods = [name for name in setting.methods if name not in refused]
    begun = time.process_time()
    try:
        results = cfljax.tune(setting.make_search(methods), folder, then_compare=setting.seeds)
    finally:
        # Of all sessions together
        seconds = _read_seconds(folder) + time.process_time() - begun
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / SECONDS, f"{seconds:.0f}\n".encode())
    file = name_record(setting.name, records)
    search = read_search(Store(folder, read_only=True))
    assert search is not None
    record = make_record(setting, results, search, refused, seconds)
    write_bytes(file, write_record(record).encode())
    return file


def _read_seconds(folder: Path) -> float:
    file = folder / SECONDS
    return float(file.read_text(encoding="utf-8")) if file.is_file() else 0.0


def name_record(setting: str, records: Path = RECORDS) -> Path:
    """Return the file of a setting's record."""
    return records / f"board_{setting}.json"


def make_record(
    setting: Setting, results: Results, search: Table, refused: dict[str, str], seconds: float
) -> Table:
    """Make the record of a setting that has been played.

    Args:
        setting: which one.
        results: the compared runs.
        search: the record of the tuning.
        refused: the methods that have not played, and why.
        seconds: of all processors."""
    methods = {group["label"]: _describe_tuning(group, search) for group in search["groups"]}
    runs = []
    for record in results.records.values():
        if record["status"] == "failed":
            refused = refused | {record["method"]: f"failed: {record['error']}"}
            continue
        chosen = _read_chosen(record)
        methods[record["method"]] |= {"chosen": chosen, "plan": record["plan"]}
        runs.append(_describe_run(record))
    for method, found in methods.items():
        if found["chosen"] is None:
            refused = {method: "failed: no trial came to the end"} | refused
    made = provenance()
    return {
        "setting": setting.name,
        "commit": (made["git"] or {}).get("commit"),
        "versions": made["versions"],
        "device": made["device"],
        "processor_seconds": round(seconds),
        "refused": refused,
        "methods": methods,
        "runs": runs,
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
