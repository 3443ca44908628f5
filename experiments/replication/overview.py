"""Enters: Sections. Leaves: the claims at a glance in Markdown: what holds of each paper, and a line for each claim."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from experiments.replication.measured import Section, with_draws
from experiments.replication.published import Claim, Page
from experiments.replication.tables import table
from experiments.replication.verdicts import (
    AGAIN,
    AT_SIZE,
    DIRECTION,
    FAILS,
    NO_TEST,
    NOT_RUN,
    PART,
    REPRODUCES,
    UNDECIDED,
    WORDS,
    Verdict,
)

PLURAL = {
    "reproduces": "reproduce",
    "reproduces in direction": "in direction",
    "less than half of the effect": "with less than half of the effect",
    "does not reproduce": "do not reproduce",
}
"""Words after a number of claims, where they are not those of one."""
HEAD = ["claim", "published", "ours", "verdict", "runs", "why"]
BEST = (REPRODUCES, DIRECTION, UNDECIDED, AT_SIZE, PART, FAILS, AGAIN, NO_TEST, NOT_RUN)
"""Of several settings of an "up to": the word that counts before the next ones."""


class Line(NamedTuple):
    """A claim of a paper, which counts once."""

    section: Section
    claim: Claim
    verdict: Verdict
    others: list[tuple[str, str]]
    """(Word, setting) of the same claim in the other settings in which it was tried."""


def lines(sections: Iterable[Section]) -> list[Line]:
    """Return the claims that papers make, in order. Of a claim that was tried in several settings it is the first that was run, or
    the best where the paper says "up to"; nothing refutes that as long as settings were not run."""
    found: dict[object, Line] = {}
    for section in sections:
        for claim, verdict in zip(section.published.claims, section.verdicts, strict=True):
            if claim.ours:
                continue
            key = (section.published.paper, claim.search) if claim.search else id(claim)
            line = found.setdefault(key, Line(section, claim, verdict, []))
            if line.claim is claim:
                continue
            better = BEST.index(verdict.word) < BEST.index(line.verdict.word)
            if better and (claim.up_to or line.verdict.word == NOT_RUN):
                found[key] = Line(section, claim, verdict, [*line.others, (line.verdict.word, line.claim.setting)])
            else:
                line.others.append((verdict.word, claim.setting))
    return [_open(line) for line in found.values()]


def _open(line: Line) -> Line:
    """Return an "up to" as not decided where it is refuted in the settings that were run, and there are others."""
    left = sum(word == NOT_RUN for word, _ in line.others)
    if not (line.claim.up_to and left and line.verdict.word in (PART, FAILS)):
        return line
    why = f"{line.verdict.word} in the settings that were run; {left} of {len(line.others) + 1} were not"
    return line._replace(verdict=line.verdict._replace(word=UNDECIDED, why=why))


def papers(sections: Iterable[Section]) -> dict[str, list[Section]]:
    """Name of the paper -> its sections, in order."""
    found: dict[str, list[Section]] = {}
    for section in sections:
        found.setdefault(section.published.paper, []).append(section)
    return found


def at_a_glance(page: Page, sections: list[Section], to: str) -> str:
    """A row for each paper with claims: what holds of it, and how many of its claims have which verdict. `to`: where the papers'
    pages are, `{file}` and `{anchor}` stand for what they are called."""
    rows = []
    for name, own in papers(sections).items():
        paper, counted = page.paper(name), Counter(line.verdict.word for line in lines(own))
        said = _counted(counted)
        if said or paper.says:
            rows.append([_link(name, to, paper.file, _anchor(name)), paper.says, said])
    return table(["paper", "what holds", "its claims"], rows)


def claims(page: Page, sections: list[Section], to: str) -> str:
    """Return a table for each paper, with a line for each of its claims and an anchor for each table of the paper."""
    parts = []
    for name, own in papers(sections).items():
        rows = [row for section in own for row in _rows(section, lines(own), page, to)]
        parts.append(f"## {name}")
        parts += [table(HEAD, rows)] if rows else []
        if bare := [_titled(section, page, to) for section in own if not _own(section, lines(own))]:
            parts.append(f"{'Also, without' if rows else 'Without'} a claim that counts: {', '.join(bare)}.")
    return "\n\n".join(parts)


def _own(section: Section, every: list[Line]) -> list[Line]:
    return [line for line in every if line.section is section]


def _titled(section: Section, page: Page, to: str) -> str:
    """The title of a section as a link to its details, with an anchor of its own."""
    title, file = section.published.title, page.paper(section.published.paper).file
    return f'<a id="{_anchor(title)}"></a>' + _link(title, to, file, _anchor(title))


def _rows(section: Section, every: list[Line], page: Page, to: str) -> Iterator[list[str]]:
    """The rows of a section: its title, then its claims; none without claims."""
    for at, line in enumerate(_own(section, every)):
        if at == 0:
            yield [f"**{_titled(section, page, to)}**", *[""] * (len(HEAD) - 1)]
        decided = line.verdict
        ours = re.sub(r"; last ten .*", "", decided.ours)
        runs = ", ".join(part for part in (_size(line), _seeds(line)) if part)
        yield [line.claim.text, decided.published, ours, f"**{decided.word}**", runs, _why(line)]


def _counted(words: Counter[str]) -> str:
    return ", ".join(f"{words[word]} {PLURAL.get(word, word) if words[word] > 1 else word}" for word in WORDS if words[word])


def _why(line: Line) -> str:
    """Return what the verdict rests on beside the numbers, in some words."""
    if line.verdict.word == NOT_RUN:
        return ""
    others = [(word, setting) for word, setting in line.others if word != NOT_RUN]
    if others and line.claim.setting and all(setting for _, setting in others):
        words = [word for word in WORDS if any(word == other for other, _ in others)]
        named = [f"{word}: {' / '.join(setting for other, setting in others if other == word)}" for word in words]
        more = "; ".join([f"this is {line.claim.setting}", *named])
    else:
        more = f"in {len(others)} other settings: {_counted(Counter(word for word, _ in others))}" if others else ""
    return "; ".join(part for part in (line.verdict.why, line.claim.small, line.verdict.cost, more) if part)


def _size(line: Line) -> str:
    if line.verdict.word == NOT_RUN:
        return ""
    return "small" if line.claim.small or any(line.section.small.get(name) for name in line.claim.cells) else "full"


def _seeds(line: Line) -> str:
    """The fewest seeds of its cells, and how many draws of the data they have."""
    run = [name for name in line.claim.cells if line.section.measured[name].values]
    if not run or line.verdict.word == NOT_RUN:
        return ""
    fewest = min(len(line.section.measured[name].values) for name in run)
    said = with_draws(fewest, min(line.section.draws[name] for name in run))
    return said.replace(f"{fewest}", f"{fewest} seed{'s' if fewest > 1 else ''}", 1)


def _link(text: str, to: str, file: str, anchor: str) -> str:
    return f"[{text}]({to.format(file=file, anchor=anchor)})"


def _anchor(heading: str) -> str:
    """The anchor that GitHub and the documentation give a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\- ]", "", heading.lower())).strip("-")
