"""`python -m cfljax.data`: list, download, import, describe and deal data sets."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys

from cfljax.commands import add_plugin_flag, as_json, parser_of
from cfljax.errors import SpecError
from cfljax.registry.options import Value, show


def parser(prog: str = "python -m cfljax.data") -> argparse.ArgumentParser:
    """Make the parser of the data command and of its actions."""
    whole = parser_of("data", prog)
    actions = whole.add_subparsers(
        dest="action", required=True, metavar="list | prepare | import | describe | deal"
    )

    def action(name: str, about: str) -> argparse.ArgumentParser:
        return actions.add_parser(
            name, help=about, epilog=whole.epilog, formatter_class=whole.formatter_class
        )

    action("list", "list data sets on this machine, and some that can be downloaded")
    prepare = action("prepare", "download a data set")
    prepare.add_argument(
        "name",
        help="mnist, cifar10, office_home, … or any image classification set of "
        "tensorflow-datasets",
    )
    prepare.add_argument("--dir", help="folder for the data (then set data.path to it)")
    add_import_flags(action("import", "import your own data"))
    describe = action("describe", "how a partition divides a data set")
    describe.add_argument("name", help="a data set")
    describe.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="data.KEY=VALUE",
        help="override, as in a sweep",
    )
    add_plugin_flag(describe, "load your own sources and partitions")
    describe.add_argument("--png", metavar="FILE", help="draw which classes each client holds")
    describe.add_argument(
        "--draw", metavar="FILE", help="draw samples of each true group, as its clients see them"
    )
    as_json.add_flag(describe, "describe")
    deal = action("deal", "write which rows each client of a spec holds")
    deal.add_argument("spec", metavar="SPEC.toml", help="a spec")
    deal.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help='.json, .csv or .npz, which partition = "file" reads',
    )
    deal.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override, as in a sweep"
    )
    add_plugin_flag(deal, "load your own sources and partitions")
    return whole


def add_import_flags(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Add the flags of an import to a parser. `--help` lists them in this order."""
    _add_flags_of_the_source(parser, nargs)
    _add_flags_of_columns(parser)
    _add_flags_of_samples(parser)
    _add_flags_of_text(parser)
    _add_flag_of_the_target(parser)
    _add_flags_of_the_test_part(parser)
    add = parser.add_argument
    add("--dir", help="folder for the data (default: $CFLJAX_DATA, else the cache)")
    add("--replace", action="store_true", help="replace an earlier import of that name")


def _add_flags_of_the_source(parser: argparse.ArgumentParser, nargs: str | None) -> None:
    """Add what is imported, and under which name."""
    add = parser.add_argument
    kinds_of_data = (
        "images or sounds in folders by class, CSV, Parquet, LEAF, NumPy, a saved Hugging Face "
        "data set, or hf:OWNER/NAME"
    )
    add("source", nargs=nargs, help=kinds_of_data)
    add("--name", help="name in specs (default: the name of the file or folder)")
    kinds = ("images", "sounds", "csv", "parquet", "datasets", "numpy", "leaf")
    add("--kind", choices=kinds, help="kind of the source, if its files leave it open")


def _add_flags_of_columns(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say what the columns of a table are."""
    add = parser.add_argument
    add(
        "--label",
        metavar="COLUMN",
        help="column of the labels (default: label, class, target or y)",
    )
    add(
        "--user",
        metavar="COLUMN",
        help="column that says which user a sample belongs to (default: user or client)",
    )
    add(
        "--coarse",
        metavar="COLUMN",
        help="column of coarse labels (default: coarse_label or y_coarse)",
    )
    add(
        "--x",
        type=_parse_words,
        metavar="COLUMNS",
        default="",
        help="columns of features, separated by commas (default: all others)",
    )
    add(
        "--drop",
        type=_parse_words,
        metavar="COLUMNS",
        default="",
        help="columns, or classes of sounds, to leave out",
    )
    add(
        "--one-hot",
        type=_parse_words,
        metavar="COLUMNS",
        default="",
        help="categorical columns, such as cities",
    )


def _add_flags_of_samples(parser: argparse.ArgumentParser) -> None:
    """Add the flags of images and sounds, and of how folders name classes and users."""
    add = parser.add_argument
    shape = "shape of a sample: images are resized, numbers reshaped"
    add("--shape", type=_parse_shape, metavar="32x32", default="", help=shape)
    add("--grey", action="store_true", help="convert all images to one channel")
    add(
        "--by-user",
        action="store_true",
        help="folders are USER/CLASS/image.png or USER/CLASS/sound.wav",
    )
    add(
        "--by-domain",
        action="store_true",
        help="images: folders are DOMAIN/CLASS/image.png, or DOMAIN/train/CLASS/image.png",
    )
    named = (
        "sounds: pattern of file names with the user, * matches anything, as in '{user}_nohash_*'"
    )
    add("--user-in-name", metavar="PATTERN", help=named)
    add(
        "--seconds",
        type=float,
        metavar="S",
        help="sounds: length in seconds, trimmed or padded (default: the longest)",
    )
    add(
        "--log-mel",
        type=int,
        default=0,
        metavar="BANDS",
        help="sounds: use log-mel features with this number of bands",
    )


def _add_flags_of_text(parser: argparse.ArgumentParser) -> None:
    """Add the flags of texts, which become tokens."""
    add = parser.add_argument
    add(
        "--text",
        metavar="COLUMN",
        help="column of texts, which become tokens; without labels, the label is the next token",
    )
    add("--tokens", choices=("characters", "words"), default="", help="kind of tokens")
    add("--length", type=int, metavar="N", help="number of tokens of a sample (80)")
    add("--vocabulary", type=int, metavar="N", help="largest number of tokens (1000; 10000 words)")
    add(
        "--vectors",
        type=int,
        default=0,
        metavar="N",
        help="a fixed random vector of N numbers per token, for the model lstm",
    )
    add(
        "--next-token",
        action="store_true",
        help="use the next token as the label, even if there are labels",
    )


def _add_flag_of_the_target(parser: argparse.ArgumentParser) -> None:
    """Add the flag that says what the label is."""
    parser.add_argument(
        "--continuous",
        action="store_true",
        help="the label is a number to predict, not a class (model.loss = mse)",
    )


def _add_flags_of_the_test_part(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say which samples are for testing."""
    add = parser.add_argument
    add(
        "--test",
        metavar="PLACE",
        help="test samples (default: a test folder or split, else a share of each user's samples)",
    )
    add(
        "--test-fraction",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="share for testing if there is no test part (0.2)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Carry out what the flags ask for."""
    _ACTIONS[arguments.action](arguments)
    sys.stdout.flush()
    return 0


def _list(_: argparse.Namespace) -> None:
    """Print the data sets that are built in, in files, and to download."""
    from cfljax.data import SOURCES, reads_files
    from cfljax.data.files import folders, local_names, prepared_names
    from cfljax.data.prepare import COMMON_SETS, HUB_SETS

    print("built in")
    for name in SOURCES:
        print(f"  {name:<18} {SOURCES.entry(name).summary}")
    local = local_names()
    prepared = prepared_names()
    print(
        f"files in {', '.join(map(str, folders(None)))}"
        + ("" if os.environ.get("CFLJAX_DATA") else "; CFLJAX_DATA is not set")
    )
    for name, path in local.items():
        print(
            f"  {name:<18} {path}"
            + (
                ""
                if reads_files(name)
                else " (hidden by the built-in data set of this name; rename it)"
            )
        )
    if not local:
        print("  none")
    print("to download, and any of tensorflow-datasets")
    for name in sorted({*COMMON_SETS, *HUB_SETS, *prepared}):
        have = (
            f"prepared in {prepared[name]}"
            if name in prepared
            else f"python -m cfljax.data prepare {name}"
        )
        if name in prepared or name not in local:
            print(f"  {name:<18} {have}")


def _prepare(arguments: argparse.Namespace) -> None:
    """Download a data set and convert it."""
    from cfljax.data.prepare import prepare

    path = prepare(arguments.name, arguments.dir)
    print(
        f"{arguments.name} is in {path}"
        + (f'; use it with data.path = "{arguments.dir}"' if arguments.dir else "")
    )


def _import(arguments: argparse.Namespace) -> None:
    table = import_files(arguments)
    print(f"use it with: data = {show(table)}")


def import_files(arguments: argparse.Namespace) -> dict[str, Value]:
    """Import the files, print what they hold, and return the table of a spec that uses them."""
    from cfljax.commands.describe import describe_target
    from cfljax.data.given import suggest_table
    from cfljax.data.importing import import_data
    from cfljax.data.mapped import read
    from cfljax.data.parts import Wanted

    wanted = Wanted(
        **{field.name: getattr(arguments, field.name) for field in dataclasses.fields(Wanted)}
    )
    path = import_data(
        arguments.source, arguments.name, arguments.kind, wanted, arguments.dir, arguments.replace
    )
    name = arguments.name or (arguments.source if arguments.source.startswith("hf:") else path.name)
    source = read(name, path)
    what = "domains" if wanted.by_domain else "users"
    users = "" if source.user_train is None else f", {len(set(source.user_train.tolist()))} {what}"
    print(
        f"{name}: {len(source.y_train)} training and {len(source.y_test)} test samples of shape "
        f"{list(source.x_train.shape[1:])} ({source.x_train.dtype}), "
        f"{describe_target(source)}{users}, in {path}"
    )
    return suggest_table(source, wanted.by_domain) | ({"path": str(path)} if arguments.dir else {})


def _parse_words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _parse_shape(text: str) -> tuple[int, ...]:
    parts = text.lower().replace("×", "x").split("x") if text else []
    if not all(part.isascii() and part.isdigit() and len(part) < 6 and int(part) for part in parts):
        raise SpecError(f"--shape {text}: must be numbers with x between them, as in 32x32")
    if len(parts) not in (0, 2, 3):
        raise SpecError(f"--shape {text}: must be height x width, or height x width x channels")
    return tuple(map(int, parts))


def _describe(arguments: argparse.Namespace) -> None:
    from cfljax.commands.describe import describe, to_table
    from cfljax.config.plugins import load

    load(arguments.plugin)
    if arguments.json:
        for flag in ("png", "draw"):
            if getattr(arguments, flag):
                raise SpecError(f"--{flag}: draws nothing with --json; leave one of the two out")
        print(as_json.write(to_table(arguments.name, arguments.set)))
        return
    print(describe(arguments.name, arguments.set, arguments.png, arguments.draw))


def _deal(arguments: argparse.Namespace) -> None:
    """Write who holds which rows, and say how a spec uses the file."""
    from cfljax.commands.deal import deal

    print(deal(arguments.spec, arguments.set, arguments.plugin, arguments.out))


_ACTIONS = {
    "list": _list,
    "prepare": _prepare,
    "import": _import,
    "describe": _describe,
    "deal": _deal,
}
