"""The check command: what must hold of a method or a model of one's own."""

from __future__ import annotations

import argparse

from cfljax.commands import as_json, parser_of


def parser(prog: str = "python -m cfljax.check") -> argparse.ArgumentParser:
    """Make the parser."""
    flags = parser_of("check", prog)
    flags.add_argument(
        "name", metavar="FILE.py", help="a file with methods or models, or the name of one"
    )
    flags.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option, other data or another model, as method.mine.clusters=3 or model=mlp",
    )
    as_json.add_flag(flags, "check")
    return flags


def run(flags: argparse.Namespace) -> int:
    """Check, print a line for each property, and return 1 if one does not hold."""
    from cfljax.api import check

    checks = check(flags.name, flags.set)
    failed = sum(each.status == "failed" for each in checks)
    if flags.json:
        print(as_json.write({"checks": [each._asdict() for each in checks]}))
        return int(failed > 0)
    subject = ""
    for each in checks:
        if each.subject != subject:
            print(subject := each.subject)
        print(f"  {each}")
    passed = sum(each.status == "passed" for each in checks)
    skipped = len(checks) - passed - failed
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0)
