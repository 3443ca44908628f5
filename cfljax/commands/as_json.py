"""What commands print with `--json`, errors included, and the JSON Schemas of it."""

from __future__ import annotations

import argparse
import json
import math

from cfljax.errors import CfljaxError
from cfljax.registry.options import Table

_TEXT = {"type": "string"}
_ANY_TEXT = {"type": ["string", "null"]}


def _make_schema(key: str, value: Table, **more: Table) -> Table:
    """Make the schema of an object with this key, or with an error in its place."""
    error = {
        "type": "object",
        "properties": {"message": _TEXT, "exit_code": {"type": "integer"}},
        "required": ["message", "exit_code"],
        "additionalProperties": False,
    }
    forms = [({key: value} | more, [key, *more]), ({"error": error}, ["error"])]
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
SCHEMAS: dict[str, Table] = {
    "methods": _make_schema("methods", {"type": "array", "items": _METHOD}),
    "report": _make_schema(
        "rows",
        {"type": "array", "items": _ROW},
        page=_ANY_TEXT,
        figures={"type": "array", "items": _TEXT},
        problems={"type": "array", "items": _TEXT},
    ),
}
"""Command -> the schema of what it prints with `--json`."""


def add_flag(flags: argparse.ArgumentParser, command: str) -> None:
    """Add the flag to a command."""
    flags.add_argument(
        "--json",
        action="store_true",
        help=f"print JSON, errors included, as `cfljax schema --of {command}` describes it",
    )


def write(value: object) -> str:
    """Write a value as JSON; numbers that are not finite become null."""
    return json.dumps(_clean(value), ensure_ascii=False, allow_nan=False, indent=1)


def write_error(error: CfljaxError) -> str:
    """Write an error as JSON."""
    message = " ".join(str(error).split())
    return write({"error": {"message": message, "exit_code": error.exit_code}})


def _clean(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _clean(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(each) for each in value]
    # NumPy's numbers become Python's
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
