"""Enters: the records that are there. Leaves: the board's page and pictures; and, once enough
settings have been played, README's picture and the chart of "Which method when"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cfljax.commands.methods import describe
from cfljax.registry.options import Table
from cfljax.report import over_settings, profile_picture
from cfljax.report.critical_difference import svg
from experiments.board import heatmap
from experiments.board.play import RECORDS, read_records
from experiments.board.results import (
    BASE,
    Gain,
    Played,
    compare_everywhere,
    format_points,
    match_records,
    measure_cost,
    measure_gain,
)
from experiments.board.settings import list_settings
from experiments.board.space import KINDS, NUMBER, SEED
from experiments.replication.tables import table

ROOT = Path(__file__).parent.parent.parent
BOARD = Path("docs", "board")
PAGE = BOARD / "settings.md"
HEATMAP = BOARD / "heatmap.svg"
PROFILE = BOARD / "profile.svg"
ENOUGH = 8
"""The settings of tier one from which on README and "Which method when" show this board."""
BEST = 5
REFERENCE = "oracle"
"""Nobody can begin with the true groups: it is a reference, and not in the chart."""
TIERS = {"one": "digits, all methods", "two": "MNIST, FashionMNIST, EMNIST and CIFAR-10"}
FAMILIES = ("global", "clustered", "soft", "personal")
WORDS = {
    "rotated": "groups see their inputs differently, as by another sensor",
    "swapped labels": "groups disagree on a few labels",
    "permuted labels": "groups disagree on all labels",
    "Dirichlet 0.1": "each has its own mix of classes, mostly one or two",
    "Dirichlet 0.5": "each has its own mix of classes, several of them",
    "classes per client": "each has a few classes only",
    "two shifts crossed": "they differ in two ways at once",
    "unequal sizes": "some have many times the data of others",
    "drift": "their data change during training",
}
"""Kind of difference -> what somebody may know of the clients."""
PROFILE_COLOURS = (
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf",
)  # fmt: skip


def make_pages(root: Path = ROOT, records: Path = RECORDS) -> dict[Path, str]:
    """File -> its text, of all that is made from the records."""
    known = read_records(records)
    found = {root / PAGE: _write_page(known)}
    first = match_records(known, "one")
    if first:
        found[root / HEATMAP] = _draw_heatmap(first)
    over = compare_everywhere(first, _list_methods(first))
    if over is not None:
        found[root / PROFILE] = _draw_profile(over)
    if len(first) >= ENOUGH:
        for file, text in (
            (root / "README.md", _write_picture(first)),
            (root / "docs" / "which.md", _write_chart(first)),
        ):
            found[file] = _replace_part(file.read_text(encoding="utf-8"), text)
    return found


def _replace_part(page: str, text: str) -> str:
    """Put a text between the marks of a page."""
    return re.sub(
        r"(<!-- board:[^>]*-->\n).*?(?=<!-- /board -->)",
        lambda match: f"{match[1]}\n{text}\n\n",
        page,
        flags=re.DOTALL,
    )


def _write_page(records: Sequence[Table]) -> str:
    parts = [
        "# The board",
        "Which methods are good at which differences between clients. Two tiers of 32 settings are "
        f"drawn from a stated space with the seed {SEED}, before anything runs "
        "(`experiments/board/space.py`, `settings.toml`). Each method tries nine settings of the "
        "ranges that its options declare, chosen by validation on a draw of the data of its own; "
        "the best one runs with five other seeds, each with its own draw. A method that fine-tunes "
        "at the end is tuned and scored after that. All methods make 20 rounds on the digits, and "
        "40 on the other data sets (`tiers.toml`).",
        "<!-- test: skip takes long -->\n"
        "```bash\npython -m experiments.board play 07 --dry-run  # who plays, who cannot, and why\n"
        "python -m experiments.board play 07 08\n"
        "python -m experiments.board play one           # the settings of a tier\n"
        "python -m experiments.board check RUN          # one run again, by its id\n"
        "python -m experiments.board pages --write\n```",
    ]
    for tier in TIERS:
        parts += _write_tier(tier, match_records(records, tier))
    return "\n\n".join(parts) + "\n"


def _write_tier(tier: str, played: list[Played]) -> list[str]:
    """Write what there is of a tier."""
    parts = [f"## Tier {tier}: {TIERS[tier]}", f"{_count(played)} have been played."]
    if played:
        seconds = sum(each.record["processor_seconds"] for each in played)
        commits = {str(each.record["commit"])[:12]: None for each in played}
        parts[1] += (
            f" They took {seconds / 3600:.1f} hours of a processor, at {', '.join(commits)}."
        )
        if tier == "one":
            parts.append(f"![Points over FedAvg by kind of difference]({HEATMAP.name})")
            parts.append(_write_caption(played))
        parts += ["### The best of each kind", _write_best(played)]
        parts += _write_tests(tier, played)
        parts += ["### Cost and gain of all methods", _write_methods(played)]
        parts += ["### Who cannot play", _write_refusals(played) or "Nobody."]
    return [*parts, "### The settings", _write_settings(tier, played)]


def _count(played: Sequence[Played]) -> str:
    return f"{len(played)} of {NUMBER} settings"


def _write_caption(played: Sequence[Played]) -> str:
    return (
        f"Points of test accuracy over FedAvg, after tuning, from {_count(played)}: means over the "
        "settings of a kind and five seeds, each client scored by its own model. –: no such "
        "setting yet, or the method cannot play it."
    )


def _list_methods(played: Sequence[Played]) -> list[str]:
    return list(dict.fromkeys(name for each in played for name in each.setting.methods))


def _title(method: str) -> str:
    about = describe(method).about
    return about.title if about else method


def _family(method: str) -> str:
    about = describe(method).about
    return about.family if about else FAMILIES[0]


def _by_kind(played: Sequence[Played]) -> dict[str, list[Played]]:
    """Kind -> the settings of it that have been played; without kinds of which none has been."""
    kinds = {kind: [each for each in played if each.setting.kind == kind] for kind in KINDS}
    return {kind: each for kind, each in kinds.items() if each}


def _rank(played: Sequence[Played]) -> list[tuple[str, Gain]]:
    """List the methods that have played all these settings, the best first."""
    gains = {name: measure_gain(played, name) for name in _list_methods(played)}
    whole = [(n, gain) for n, gain in gains.items() if gain and gain.settings == len(played)]
    return sorted(whole, key=lambda each: -each[1].mean)


def _format_gain(gain: Gain) -> str:
    text = format_points(gain.mean)
    if gain.interval is None:
        return text
    return f"{text} [{', '.join(map(format_points, gain.interval))}]"


def _format_costs(played: Sequence[Played], method: str) -> list[str]:
    costs = [measure_cost(played, method, quantity) for quantity in ("bytes", "seconds")]
    return ["–" if cost is None else f"{cost:.2g}" for cost in costs]


def _write_best(played: Sequence[Played]) -> str:
    """Write a table of the best methods of each kind."""
    rows = []
    for kind, settings in _by_kind(played).items():
        for method, gain in _rank(settings)[:BEST]:
            cells = [f"`{method}`", _format_gain(gain), *_format_costs(settings, method)]
            rows.append([f"{kind} ({len(settings)})", *cells])
    return table(
        ["kind (settings)", "method", "points over FedAvg", "× its bytes", "× its seconds"], rows
    )


def _write_tests(tier: str, played: Sequence[Played]) -> list[str]:
    """Write the comparison over all settings."""
    over = compare_everywhere(played, _list_methods(played))
    if over is None:
        return []
    lines = "\n".join(over_settings.markdown(over)).strip()
    said = over_settings.summarise(over)
    parts = ["### On these settings, and on a new one", *([f"{said}."] if said else []), lines]
    picture = f"![On which share of the settings a method is close to the best one]({PROFILE.name})"
    return [*parts, picture] if tier == "one" else parts


def _write_methods(played: Sequence[Played]) -> str:
    rows = []
    for method in _list_methods(played):
        gain = measure_gain(played, method)
        if gain is not None:
            cells = [_format_gain(gain), *_format_costs(played, method), str(gain.settings)]
            rows.append((gain.mean, [f"`{method}`", _family(method), *cells]))
    rows.sort(key=lambda row: -row[0])
    heads = ["method", "family", "points over FedAvg", "× its bytes", "× its seconds", "settings"]
    return table(heads, [cells for _, cells in rows])


def _write_refusals(played: Sequence[Played]) -> str:
    """Write a row for each method and reason, with the settings; "" if there are none."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in played:
        for method, why in each.record["refused"].items():
            found.setdefault((method, why), []).append(each.setting.name)
        for method in each.record["methods"]:
            if method not in each.record["refused"] and not each.list_runs(method):
                found.setdefault((method, "diverged in a seed"), []).append(each.setting.name)
    rows = [[f"`{method}`", ", ".join(names), why] for (method, why), names in found.items()]
    return table(["method", "settings", "why"], sorted(rows)) if rows else ""


def _write_settings(tier: str, played: Sequence[Played]) -> str:
    """Write a row for each setting of a tier."""
    done = {each.setting.name for each in played}
    rows = []
    for each in list_settings():
        if each.tier == tier:
            data, train = each.spec["data"], each.spec["train"]
            of_data = [] if tier == "one" else [data["name"]]
            cells = [data["clients"], data["samples_per_client"]]
            cells += [train["participation"], train["epochs"]]
            status = "played" if each.name in done else ""
            rows.append([each.name, *of_data, each.kind, *map(str, cells), status])
    heads = ["setting", *([] if tier == "one" else ["data"]), "kind", "clients", "samples"]
    return table([*heads, "participation", "epochs", ""], rows)


def _draw_heatmap(played: Sequence[Played]) -> str:
    kinds = _by_kind(played)
    methods = [name for name in _list_methods(played) if name != BASE]
    overall = {name: measure_gain(played, name) for name in methods}
    shown = [name for name in methods if overall[name] is not None]
    shown.sort(key=lambda name: -(overall[name] or Gain(0.0, None, 0)).mean)
    families = {family: [n for n in shown if _family(n) == family] for family in FAMILIES}
    gains = {
        (name, kind): measure_gain(settings, name)
        for name in shown
        for kind, settings in kinds.items()
    }
    return heatmap.draw(families, {name: _title(name) for name in shown}, list(kinds), gains)


def _draw_profile(over: over_settings.OverSettings) -> str:
    head, inside = svg(profile_picture.picture(over), "performance profiles").split(">", 1)
    # The page of a report has these colours in its style sheet, a file of its own has none
    for i, colour in enumerate(PROFILE_COLOURS):
        inside = inside.replace(f"var(--c{i})", colour)
    own = '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" color="#000" '
    head = head.replace("<svg ", own, 1)
    return f'{head}><rect width="100%" height="100%" fill="#fff"/>{inside}\n'


def _write_picture(played: Sequence[Played]) -> str:
    """Write README's part."""
    return (
        f"![Points over FedAvg by kind of difference]({HEATMAP.as_posix()})\n\n"
        f"{_write_caption(played)} [The board]({PAGE.as_posix()}) has intervals, tests and costs; "
        "[which method when](docs/which.md) helps to choose."
    )


def _write_chart(played: Sequence[Played]) -> str:
    """Write the decision chart."""
    rows = []
    for kind, settings in _by_kind(played).items():
        ranked = [each for each in _rank(settings) if each[0] != REFERENCE][:BEST]
        names = ", ".join(f"`{method}`" for method, _ in ranked)
        method, gain = ranked[0]
        bytes_sent, seconds = _format_costs(settings, method)
        rows.append(
            [WORDS[kind], names, _format_gain(gain), f"{bytes_sent} ×, {seconds} ×"],
        )
    heads = ["what do you know about your clients?", "the best five", "the first over FedAvg"]
    chart = table([*heads, "its bytes and seconds beside FedAvg's"], rows)
    return (
        f"{chart}\n\nFrom {_count(played)} of small digits, each method tuned alike; in brackets 95 % "
        "intervals over five seeds. [The board](board/settings.md) has all methods, and the tests."
    )


def list_differing(found: dict[Path, str]) -> list[Path]:
    """List the files that are not as the records have them."""
    return [
        path
        for path, text in found.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
