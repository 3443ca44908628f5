"""The record of a unit: JSON whose last line is the SHA-256 of all the bytes before it."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np

from cfljax.errors import StoreError
from cfljax.registry.options import Table, Value
from cfljax.store.arrays import Damaged

SCHEMA = 1
STATUSES = ("done", "diverged", "failed")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+=-]{0,120}")
_TAIL = ',\n "sha256": "%s"\n}\n'
_TAIL_LENGTH = len(_TAIL % ("0" * 64))

RECORD_SCHEMA: dict[str, str] = {
    "id": "the unit: letters, digits, _ . + = -; the name of its files",
    "method": "registry name of the method",
    "label": "what tables and legends call it",
    "seed": "integer seed of the run",
    "status": "done, diverged or failed",
    "config": "the resolved configuration, nested tables",
    "contents": "what the run read (data, partition, model.weights, …) -> SHA-256; empty where "
    "options "
    "and seed decide all",
    "varies": "dotted name -> value of the options that varied in the start that computed it; "
    "tables "
    "look at what varies now",
    "left_out": "dotted name -> value of the options that the spec gives and the method refuses "
    '(train.refused = "drop"), in the start that computed it; missing: none',
    "diverged_at": "round at which a value became infinite or NaN, or null",
    "score": "what stands for accuracy in the names of its columns (`model.loss`); missing: "
    "accuracy",
    "stopped_at": "round in which a callback has ended the run; missing: none has",
    "state": "what belongs to the arrays `state/…`, from which a longer run continues; missing: "
    "they are not kept (--keep state)",
    "error": "one line, or null",
    "versions": "of cfljax, and what decides the bits: cfljax.software.software()",
    "device": "kind of the device (provenance())",
    "git": "commit and dirty, or null (provenance())",
    "errata": "how many entries of errata.toml were mended (provenance()); missing: none of them",
    "plan": "the execution plan it ran under, in words, or null (for a failed run)",
    "timings": "seconds: compile, train, eval",
    "summary": "what summarise() returns",
    "schema, arrays": "added by Store.write: 1; bytes, SHA-256 and names of the array file",
}
"""The keys of a record, and what they hold; a writer may add others."""
REQUIRED = ("id", "method", "seed", "status", "config", "varies", "timings", "summary")


def is_id(name: object) -> bool:
    """Return whether the name may be a unit's: safe as a file name."""
    return isinstance(name, str) and _ID.fullmatch(name) is not None and ".." not in name


def check_id(name: str) -> str:
    """Return the name; raise a StoreError if it is invalid."""
    if not is_id(name):
        raise StoreError(f"unit id {name!r}: letters, digits and _ . + = - only, at most 121")
    return name


def check_record(record: Table) -> None:
    """Raise a ValueError for a record that lacks a key that readers need, or has it in another
    type."""
    missing = [key for key in REQUIRED if key not in record]
    if missing:
        raise ValueError(f"record of {record.get('id')}: no {', '.join(missing)}")
    if record["status"] not in STATUSES:
        raise ValueError(
            f"record of {record['id']}: status {record['status']!r} must be one of "
            f"{', '.join(STATUSES)}"
        )
    for key in ("config", "varies", "timings", "summary"):
        if not isinstance(record[key], dict):
            raise ValueError(f"record of {record['id']}: {key} is not a table")
    contents = record.get("contents", {})
    if not isinstance(contents, dict) or not all(
        isinstance(checksum, str) for checksum in contents.values()
    ):
        raise ValueError(f"record of {record['id']}: contents is not a table of checksums")
    if not isinstance(record["method"], str) or not isinstance(record["seed"], (int, np.integer)):
        raise ValueError(f"record of {record['id']}: method is a name and seed an integer")
    for key in ("timings", "summary"):
        for name, value in record[key].items():
            if value is not None and not isinstance(value, (int, float, np.number)):
                raise ValueError(f"record of {record['id']}: {key}.{name} must be a number")


def _fits_units(units: list[str], varies: object) -> bool:
    """Return whether this is a table for each unit; None: a start before 0.3.0 wrote none."""
    if varies is None:
        return True
    return (
        isinstance(varies, list)
        and all(isinstance(each, dict) for each in varies)
        and len(varies) == len(units)
    )


def check_plan(plan: Table) -> Table:
    """Return the contents of plan.json; raise Damaged if a sweep cannot have written them."""

    def are_ids(value: object) -> bool:
        """Return whether the value is a list of ids."""
        return isinstance(value, list) and all(map(is_id, value))

    if not are_ids(plan.get("units", [])):
        raise Damaged("units is not a list of ids")
    labels = plan.get("labels", [])
    if not isinstance(labels, list) or not all(
        isinstance(each, dict)
        and isinstance(each.get("label"), str)
        and each["label"]
        and are_ids(each.get("units"))
        and _fits_units(each["units"], each.get("varies"))
        for each in labels
    ):
        raise Damaged("labels is no list of labels and their runs")
    batches = plan.get("batches", [])
    threads = plan.get("threads")
    if not isinstance(batches, list):
        raise Damaged("batches is no list")
    for entry in batches:
        if (
            not isinstance(entry, dict)
            or not are_ids(entry.get("runs"))
            or not entry["runs"]
            or not _is_count(entry.get("width"))
        ):
            raise Damaged("a batch is not a list of runs and a width")
    if threads is not None and not _is_count(threads):
        raise Damaged("threads is no number of threads")
    return plan


def _is_count(value: object) -> bool:
    """Return whether the value is a number of runs or threads."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1 << 20


def encode(content: Table, compact: bool = False) -> bytes:
    """Seal JSON in the order of keys, NaN written as Python does. `compact`: each key has one
    line."""
    if not content:
        raise ValueError("an empty record")
    if compact:
        lines = (
            f" {json.dumps(key)}: {json.dumps(v, default=_to_plain, separators=(',', ':'))}"
            for key, v in content.items()
        )
        body = "{\n" + ",\n".join(lines)
    else:
        body = json.dumps(content, default=_to_plain, ensure_ascii=True, indent=1)[: -len("\n}")]
    return (body + _TAIL % hashlib.sha256(body.encode()).hexdigest()).encode()


def decode(data: bytes) -> Table:
    """Return the content of sealed JSON; raise Damaged if a single bit differs from what was
    written."""
    body = data[:-_TAIL_LENGTH]
    tail = data[-_TAIL_LENGTH:]
    if tail != (_TAIL % hashlib.sha256(body).hexdigest()).encode():
        raise Damaged("its SHA-256 does not match")
    try:
        content = json.loads(body + b"\n}")
    except (ValueError, RecursionError) as error:
        raise Damaged(f"not JSON ({error})") from error
    if not isinstance(content, dict):
        raise Damaged("not a table")
    return content


def _to_plain(value: object) -> Value:
    """Convert numpy and JAX values to Python's; dataclasses and sets are the caller's to
    convert."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    array = np.asarray(value)
    if array.dtype.kind not in "biufU":
        raise TypeError(f"a record cannot hold {type(value).__name__}")
    return array.tolist()
