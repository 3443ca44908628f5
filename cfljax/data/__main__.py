"""`python -m cfljax.data`: what data there is, how a partition looks, and getting more."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import Any, NoReturn

from cfljax.errors import CfljaxError, SpecError

_EXAMPLES = """examples:
  python -m cfljax.data list
  python -m cfljax.data prepare mnist                     into $CFLJAX_DATA, else the cache
  python -m cfljax.data prepare emnist/balanced --dir ~/tfds
  python -m cfljax.data describe digits --set data.partition=rotated --set data.groups=4 --set data.clients=20
  python -m cfljax.data describe mnist --set data.partition=dirichlet --png who-holds-what.png

Data sets are looked for in $CFLJAX_DATA (NAME.npz, or a folder NAME/ with IDX, CIFAR or LEAF files), in $CFLJAX_CACHE, and
among what tensorflow-datasets has prepared."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SpecError(f"{message} (see python -m cfljax.data --help)")


def _parser() -> argparse.ArgumentParser:
    form: Any = argparse.RawDescriptionHelpFormatter
    parser = _Parser("python -m cfljax.data", description=__doc__, epilog=_EXAMPLES, formatter_class=form)
    commands = parser.add_subparsers(dest="command", required=True, metavar="list | prepare | describe")
    commands.add_parser("list", help="data sets that are here, and some that can be had", epilog=_EXAMPLES, formatter_class=form)
    prepare = commands.add_parser("prepare", help="download a data set", epilog=_EXAMPLES, formatter_class=form)
    prepare.add_argument("name", help="mnist, cifar10, … or any image classification set of tensorflow-datasets")
    prepare.add_argument("--dir", help="where to keep it (then set data.path to it)")
    describe = commands.add_parser("describe", help="how a partition looks", epilog=_EXAMPLES, formatter_class=form)
    describe.add_argument("name")
    describe.add_argument("--set", action="append", default=[], metavar="data.KEY=VALUE", help="as in a sweep")
    describe.add_argument("--png", metavar="FILE", help="draw who holds which classes")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command; the exit code."""
    try:
        arguments = _parser().parse_args(argv)
        _COMMANDS[arguments.command](arguments)
        sys.stdout.flush()
    except CfljaxError as error:
        if os.environ.get("CFLJAX_DEBUG") == "1":
            raise
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # `… | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def _list(_: argparse.Namespace) -> None:
    from cfljax.data import SOURCES
    from cfljax.data.files import folders, local_names, prepared_names
    from cfljax.data.prepare import COMMON

    print("built in")
    for name in SOURCES:
        print(f"  {name:<18} {SOURCES.entry(name).summary}")
    local, prepared = local_names(), prepared_names()
    print(f"files in {', '.join(map(str, folders(None)))}" + ("" if os.environ.get("CFLJAX_DATA") else "; CFLJAX_DATA is not set"))
    for name, place in local.items():
        print(f"  {name:<18} {place}")
    if not local:
        print("  none")
    print("tensorflow-datasets")
    for name in sorted({*COMMON, *prepared}):
        have = f"prepared in {prepared[name]}" if name in prepared else f"python -m cfljax.data prepare {name}"
        if name in prepared or name not in local:
            print(f"  {name:<18} {have}")


def _prepare(arguments: argparse.Namespace) -> None:
    from cfljax.data.prepare import prepare

    place = prepare(arguments.name, arguments.dir)
    print(f"{arguments.name} is in {place}" + (f'; use it with data.path = "{arguments.dir}"' if arguments.dir else ""))


def _describe(arguments: argparse.Namespace) -> None:
    from cfljax.data.describe import describe

    print(describe(arguments.name, arguments.set, arguments.png))


_COMMANDS = {"list": _list, "prepare": _prepare, "describe": _describe}

if __name__ == "__main__":
    sys.exit(main())
