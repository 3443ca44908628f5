"""Enters: results folders and files of published numbers. Leaves: Markdown pages with our numbers
beside the published ones: all on one page, or a page of claims and a page for each paper, with its
figures."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cfljax.results.result import Results
from experiments.replication import overview
from experiments.replication.effects import effects, panels
from experiments.replication.measured import Section, section
from experiments.replication.paper_figures import colours_of, picture
from experiments.replication.papers import Page
from experiments.replication.published import read_published
from experiments.replication.tables import not_run, section_text
from experiments.todo import Hours, hours_left

Paths = Sequence[str | os.PathLike[str]]
ALL = ""
"""The name of the page of claims in what `replication_pages` returns: it is written elsewhere."""
SPREAD = (
    "± is the standard deviation over seeds, [a, b] a 95 % interval of the mean. They leave "
    "out what all seeds share: the draw of "
    "who holds which data, unless several draws stand beside the number of seeds, and the "
    "choice of numbers such as the step size. "
    "Where only some seeds share a draw, an interval counts draws and not seeds."
)
BRIEF = (
    "± is the standard deviation over seeds, [a, b] a 95 % interval of the mean. Neither "
    "includes what all seeds share, often the "
    "draw of the data and the step size. `CFLJAX_DATA` is the folder of data files."
)
"""The same on the page of a paper."""


def read_sections(folders: Paths, published: Paths) -> tuple[Page, list[Section]]:
    """Read what is written by hand, and measure each table."""
    page, files = read_published(published)
    by_sweep: dict[str, list[Results]] = {}
    for folder in folders:
        results = Results(folder)
        name = results.sweep.get("name") or results.store.folder.absolute().name
        by_sweep.setdefault(str(name), []).append(results)
    return page, [
        section(
            file, [each for name in (file.sweep, *file.also) for each in by_sweep.get(name, [])]
        )
        for file in files
    ]


def replication_page(folders: Paths, published: Paths) -> str:
    """One page with everything but figures."""
    page, sections = read_sections(folders, published)
    parts = [
        f"# {page.title}",
        page.text.strip(),
        overview.at_a_glance(page, sections, "", {}),
        SPREAD,
    ]
    for name, own in overview.papers(sections).items():
        parts += [f"## {name}", page.paper(name).findings.strip()]
        parts += [f"### {each.published.title}\n\n{section_text(each)}" for each in own]
    return _join(parts)


def replication_pages(folders: Paths, published: Paths, to: str = "") -> dict[str, str]:
    """Name of a file -> its text: the page of claims (`ALL`, with links to pages at `to`, a folder
    relative to it), a page for each paper, and its figures as SVG."""
    return made_of(*read_sections(folders, published), to)


def made_of(page: Page, sections: list[Section], to: str) -> dict[str, str]:
    """Write the pages of measured tables, as `replication_pages` does."""
    left = list_hours(sections)
    found = {ALL: _write_claims(page, sections, f"{to}{{file}}.md", left)}
    for name, own in overview.papers(sections).items():
        found |= _write_paper(page, name, own, left)
    return found


def list_hours(sections: list[Section]) -> Hours:
    """Name of a job -> its hours, of those that would decide a claim of these tables."""
    return hours_left({claim.job for each in sections for claim in each.published.claims})


def _write_paper(page: Page, name: str, own: list[Section], left: Hours) -> dict[str, str]:
    """Write the page of a paper and its figures: a sentence, a figure and the main claims on one
    screen, and all else folded."""
    paper, every, shown = page.paper(name), overview.lines(own), panels(own)
    found = {f"{paper.file}.svg": effects(shown)} if shown else {}
    parts = [
        f"# {name}",
        *([_write_summary(page, own, left)] if every else []),
        paper.says,
        *[f"![Our seeds beside the published numbers]({image})" for image in found],
    ]
    if every:
        chosen = [line for line in every if line.claim.main] or every
        parts += [overview.short_table(chosen, left)]
        parts += [
            f"[All {len(every)} claims, and how verdicts are found](../../experiments/README.md)."
        ]
    parts += [
        BRIEF,
        *([folded("What we found", paper.findings.strip())] if paper.findings.strip() else []),
    ]
    colours, known = colours_of(own), dict[str, str]()
    for at, each in enumerate(own, 1):
        images = {
            f"{paper.file}-{at}-{i}.svg": number
            for i, number in enumerate(range(len(each.published.figures)), 1)
        }
        images = {image: number for image, number in images.items() if any(each.drawn_runs[number])}
        found |= {image: picture(each, number, colours) for image, number in images.items()}
        pictures = "\n".join(
            f"![{each.published.figures[number].title}]({image})"
            for image, number in images.items()
        )
        if each.units:
            parts.append(folded(each.published.title, section_text(each, pictures, known)))
            known.setdefault(each.published.sweep, each.published.title)
    waiting = [
        f"- {each.published.title}: {not_run(each.published, left)}"
        for each in own
        if not each.units
    ]
    parts += [folded("Not run yet", "\n".join(waiting))] if waiting else []
    return found | {f"{paper.file}.md": _join(parts)}


def _write_summary(page: Page, own: list[Section], left: Hours) -> str:
    """Write the line of README on a paper as a list."""
    told = zip(overview.SUMMARY, overview.summary(page, own, left), strict=True)
    return "\n".join(f"- **{head}**: {text}" for head, text in told if text != "–")


def folded(title: str, text: str) -> str:
    """Write a part of a page that opens with a click. Its anchor is what GitHub and the
    documentation would make of the title."""
    anchor = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\- ]", "", title.lower())).strip("-")
    return (
        f'<details id="{anchor}" '
        f'markdown="1">\n<summary>{html.escape(title, quote=False)}</summary>\n\n{text}\n\n</details>'
    )


def unused_figures(folder: Path, pages: Mapping[str, str]) -> list[Path]:
    """List the figures of these papers' pages that an earlier call has written there and none of
    the pages has now."""
    papers = {name.removesuffix(".md") for name in pages if name.endswith(".md")}
    found = [
        (path, re.fullmatch(r"(.+?)(?:-\d+-\d+)?\.svg", path.name))
        for path in sorted(folder.iterdir())
    ]
    return [
        path for path, match in found if match and match[1] in papers and path.name not in pages
    ]


def _write_claims(page: Page, sections: list[Section], to: str, left: Hours) -> str:
    parts = [
        f"# {page.title}",
        overview.at_a_glance(page, sections, to, left),
        page.text.strip(),
        SPREAD,
    ]
    return _join([*parts, overview.claims(page, sections, to, left)])


def _join(parts: list[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
