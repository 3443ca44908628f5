"""What commands print with `--json`, errors included, and the JSON Schemas of it."""

from __future__ import annotations

import argparse
import json
import math

from cfljax.errors import CfljaxError
from cfljax.registry.options import Table

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_ANY_TEXT = {"type": ["string", "null"]}


def make_schema(**keys: Table) -> Table:
    """Make the schema of an object with these keys, or with an error in their place."""
    error = {
        "type": "object",
        "properties": {"message": _TEXT, "exit_code": {"type": "integer"}},
        "required": ["message", "exit_code"],
        "additionalProperties": False,
    }
    forms = [(keys, list(keys)), ({"error": error}, ["error"])]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "oneOf": [
            {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": False,
            }
            for properties, required in forms
        ],
    }


_OPTION = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "required": {"type": "boolean"},
        "default": True,
        "choices": {"type": ["array", "null"]},
        "help": _TEXT,
    },
    "required": ["name", "required", "default", "choices", "help"],
    "additionalProperties": False,
}
_METHOD = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "summary": _TEXT,
        "title": _ANY_TEXT,
        "family": {"enum": ["global", "clustered", "soft", "personal", None]},
        "published": _ANY_TEXT,
        "communication": _ANY_TEXT,
        "readings": {"type": "array", "items": _TEXT},
        "options": {"type": "array", "items": _OPTION},
    },
    "required": ["name", "summary", "title", "family", "published", "communication", "readings"]
    + ["options"],
    "additionalProperties": False,
}
_CLIENT = {
    "type": "object",
    "properties": {
        "training": _COUNT,
        "test": _COUNT,
        "group": {"type": ["integer", "null"]},
        # Training samples by label; test samples of a client that never trains
        "classes": {"type": "array", "items": _COUNT},
    },
    "required": ["training", "test", "group", "classes"],
    "additionalProperties": False,
}
_PLANNED = {
    "type": "object",
    "properties": {
        "data": _TEXT,
        "method": _TEXT,
        **dict.fromkeys(("runs", "batches", "programs", "memory"), _COUNT),
        **dict.fromkeys(("down", "up"), {"type": "number", "minimum": 0}),
        "seconds": {"type": ["number", "null"]},
    },
    "required": ["data", "method", "runs", "batches", "programs", "memory", "down", "up"]
    + ["seconds"],
    "additionalProperties": False,
}
_ROW = {
    "type": "object",
    "properties": {
        "folder": _TEXT,
        "method": _TEXT,
        "label": _TEXT,
        **dict.fromkeys(("done", "diverged", "failed"), {"type": "integer"}),
    },
    "required": ["folder", "method", "label", "done", "diverged", "failed"],
    # The numbers of table.csv, and the options that vary
    "additionalProperties": {"type": ["number", "string", "boolean", "null"]},
}
_CHECK = {
    "type": "object",
    "properties": {
        "subject": _TEXT,
        "property": _TEXT,
        "status": {"enum": ["passed", "failed", "skipped"]},
        "message": _TEXT,
    },
    "required": ["subject", "property", "status", "message"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, Table] = {
    "check": make_schema(checks={"type": "array", "items": _CHECK}),
    "methods": make_schema(methods={"type": "array", "items": _METHOD}),
    "describe": make_schema(
        data=_TEXT,
        training=_COUNT,
        test=_COUNT,
        shape={"type": "array", "items": _COUNT},
        dtype=_TEXT,
        classes=_COUNT,
        users={"type": ["integer", "null"]},
        partition=_TEXT,
        same_test={"type": "boolean"},
        clients={"type": "array", "items": _CLIENT},
    ),
    "sweep": make_schema(
        runs=_COUNT,
        batches=_COUNT,
        programs=_COUNT,
        rows={"type": "array", "items": _PLANNED},
        warnings={"type": "array", "items": _TEXT},
    ),
    "report": make_schema(
        rows={"type": "array", "items": _ROW},
        worth_a_look={"type": "array", "items": _TEXT},
        page=_ANY_TEXT,
        figures={"type": "array", "items": _TEXT},
        problems={"type": "array", "items": _TEXT},
    ),
}
"""Command (`describe` is `data describe`, `sweep` is `sweep --dry-run`) -> the schema of what it
prints with `--json`."""


def add_flag(flags: argparse.ArgumentParser, command: str, when: str = "") -> None:
    """Add the flag to a command. `when`: what its help begins with."""
    flags.add_argument(
        "--json",
        action="store_true",
        help=f"{when}print JSON, errors included, as `cfljax schema --of {command}` describes it",
    )


def write(value: object) -> str:
    """Write a value as JSON; numbers that are not finite become null."""
    return json.dumps(_clean(value), ensure_ascii=False, allow_nan=False, indent=1)


def write_error(error: CfljaxError, exit_code: int | None = None) -> str:
    """Write an error as JSON. `exit_code`: of the process, if it is not the error's own."""
    message = "\n".join(error.lines)
    code = error.exit_code if exit_code is None else exit_code
    return write({"error": {"message": message, "exit_code": code}})


def _clean(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _clean(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(each) for each in value]
    # NumPy's numbers become Python's
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
