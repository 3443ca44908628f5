"""Draw the settings of the board, play them, and make its pages from their records.

    python -m experiments.board draw               # write settings.toml again
    python -m experiments.board play 07 08         # tune and compare on settings; goes on if it was stopped
    python -m experiments.board play one           # on all settings of a tier
    python -m experiments.board play 07 --dry-run  # who plays it, who cannot and why, and what it costs
    python -m experiments.board check RUN          # run a run of a record again, by its id
    python -m experiments.board pages --write      # write the pages from the records

Settings 33 to 64 need the data sets of CFLJAX_DATA."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cfljax.errors import CfljaxError
from experiments.board import space
from experiments.board.pages import list_differing, make_pages
from experiments.board.play import check_cell, play
from experiments.board.settings import Setting, find_settings, list_refusals


def dry_run(setting: Setting) -> str:
    """Say who plays a setting, who cannot, and how many runs that are."""
    refused = list_refusals(setting)
    playing = len(setting.methods) - len(refused)
    each = setting.trials + len(setting.seeds)
    rounds = setting.spec["train"]["rounds"]
    lines = [
        f"board {setting.name}, {setting.kind}: {playing} methods, each with {setting.trials} "
        f"trials and {len(setting.seeds)} seeds: {playing * each} runs of {rounds} rounds, "
        f"{format_price(setting, playing)}",
        *(f"cannot play: {method}: {why}" for method, why in refused.items()),
    ]
    return "\n".join(lines)


def format_price(setting: Setting, methods: int) -> str:
    """Say what a setting costs."""
    if setting.price is None:
        return "which nobody has measured"
    return f"about {methods * setting.price:.0f} processor seconds"


def write_pages(write: bool) -> int:
    """Write the pages that differ from the records, or name them; 1 if some differ and are not
    written."""
    found = make_pages()
    differing = list_differing(found)
    for path in differing:
        if write:
            path.write_text(found[path], encoding="utf-8")
        print(f"{path}: {'written' if write else 'differs from the records'}")
    return 1 if differing and not write else 0


def main(words: list[str] | None = None) -> int:
    """Run the command."""
    flags = argparse.ArgumentParser(
        prog="python -m experiments.board",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    commands = flags.add_subparsers(dest="command", required=True)
    commands.add_parser("draw", help="write settings.toml")
    player = commands.add_parser("play", help="tune and compare the methods on settings")
    player.add_argument("settings", nargs="+", metavar="SETTING", help="as 07, or a tier")
    player.add_argument("--dry-run", action="store_true", help="train nothing")
    player.add_argument(
        "--out", type=Path, default=Path("results/board"), help="where results folders go"
    )
    checker = commands.add_parser("check", help="run a run of a record again")
    checker.add_argument("run", metavar="RUN", help="its id")
    writer = commands.add_parser("pages", help="say which pages differ from the records")
    writer.add_argument("--write", action="store_true", help="write them")
    given = flags.parse_args(words)
    try:
        if given.command == "draw":
            text = space.write_settings(space.draw_settings())
            space.SETTINGS.write_text(text, encoding="utf-8")
            print(f"written: {space.SETTINGS}")
        elif given.command == "play":
            settings = find_settings(given.settings)
            for setting in settings:
                print(dry_run(setting), flush=True)
            if not given.dry_run:
                for file in play(settings, given.out):
                    print(f"record: {file}", flush=True)
        elif given.command == "check":
            print(check_cell(given.run))
        else:
            return write_pages(given.write)
    except CfljaxError as error:
        print(f"experiments.board: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
