"""Enters: Sections. Leaves: the claims at a glance in Markdown: what holds of each paper, and a
line for each claim."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from cfljax.errors import SpecError
from experiments.replication.measured import Section, with_draws
from experiments.replication.papers import Page
from experiments.replication.published import PAGE, Claim
from experiments.replication.tables import table
from experiments.replication.verdicts import (
    AGAIN,
    AT_SIZE,
    DECIDED,
    DIRECTION,
    FAILS,
    LARGER,
    NO_TEST,
    NOT_RUN,
    PART,
    REPRODUCES,
    UNDECIDED,
    WORDS,
    Verdict,
)
from experiments.todo import Hours, time_of

PLURAL = {
    "reproduces": "reproduce",
    "reproduces in direction": "in direction",
    "larger than published": "larger",
    "less than half of the effect": "with less than half of the effect",
    "does not reproduce": "do not reproduce",
}
"""Words after a number of claims, where they differ from the words after one."""
HEAD = ["claim", "published", "ours", "verdict", "runs", "why", "check"]
WITH = {
    REPRODUCES: "holds with",
    DIRECTION: "in direction with",
    LARGER: "larger with",
    PART: "less than half with",
    FAILS: "not with",
    UNDECIDED: "not decided with",
    AGAIN: "to be run again with",
    NO_TEST: "no test with",
}
"""Words before the settings in which a claim has a verdict."""
OPEN = (UNDECIDED, AT_SIZE, AGAIN, NOT_RUN)
"""Verdicts that more runs could change."""
BEST = (REPRODUCES, DIRECTION, LARGER, UNDECIDED, AT_SIZE, PART, FAILS, AGAIN, NO_TEST, NOT_RUN)
"""Of several settings of an "up to": the word that counts before the next ones."""


class Line(NamedTuple):
    """A claim of a paper, which counts once."""

    section: Section
    claim: Claim
    verdict: Verdict
    others: list[tuple[Verdict, Claim]]
    """The same claim in the other settings in which it was tried."""

    @property
    def reading(self) -> tuple[Verdict, Claim] | None:
        """Of readings of a paper's words: the literal one, where another counts; else the best,
        where it is better than the literal one, which counts."""
        literal = next((other for other in self.others if other[1].literal), None)
        if literal or not self.claim.literal:
            return literal
        best = min(self.others, key=lambda other: BEST.index(other[0].word), default=None)
        if best is None or BEST.index(best[0].word) >= BEST.index(self.verdict.word):
            return None
        return best if best[0].word in (REPRODUCES, DIRECTION) else None


def lines(sections: Iterable[Section]) -> list[Line]:
    """Return the claims that papers make, in order. Of a claim that was tried in several settings
    it is the one that counts; or the best where the paper says "up to", and nothing refutes that as
    long as settings were not run."""
    tried: dict[object, list[Line]] = {}
    for section in sections:
        for claim, verdict in zip(section.published.claims, section.verdicts, strict=True):
            if not claim.ours:
                key = (section.published.paper, claim.search) if claim.search else id(claim)
                tried.setdefault(key, []).append(Line(section, claim, verdict, []))
    return [_reopen(_choose(settings)) for settings in tried.values()]


def _choose(settings: list[Line]) -> Line:
    """Return the setting of a claim that counts, with the others beside it."""
    if any(line.claim.up_to for line in settings):
        chosen = min(settings, key=lambda line: BEST.index(line.verdict.word))
    else:
        chosen = next((line for line in settings if line.claim.counts), settings[0])
    others = [(line.verdict, line.claim) for line in settings if line is not chosen]
    return chosen._replace(others=others)


def _reopen(line: Line) -> Line:
    """Return an "up to" as not decided where it is refuted in the settings that were run, and there
    are others."""
    left = sum(verdict.word == NOT_RUN for verdict, _ in line.others)
    if not (line.claim.up_to and left and line.verdict.word in (PART, FAILS)):
        return line
    why = (
        f"{line.verdict.word} in the settings that were run; {left} of {len(line.others) + 1} "
        "were not"
    )
    return line._replace(verdict=line.verdict._replace(word=UNDECIDED, why=why))


def papers(sections: Iterable[Section]) -> dict[str, list[Section]]:
    """Name of the paper -> its sections, in order."""
    found: dict[str, list[Section]] = {}
    for section in sections:
        found.setdefault(section.published.paper, []).append(section)
    return found


def at_a_glance(page: Page, sections: list[Section], to: str, left: Hours) -> str:
    """Write a row for each paper with claims: what holds of it, how many of its claims have which
    verdict, and what the open ones would take. `to`: where the papers' pages are, `{file}` stands
    for what they are called."""
    rows = []
    for name, own in papers(sections).items():
        paper, every = page.paper(name), lines(own)
        said, more = _count_both(every), hours(every, left)
        if said or paper.says:
            rows.append(
                [_link(name, to, paper.file), paper.says, said, time_of(more) if more else ""]
            )
    return table(["paper", "what holds", "its claims", "compute still needed"], rows)


SUMMARY = [
    "decided",
    "reproduces",
    "does not",
    "seen, but not counted",
    "to decide the rest, on two CPU cores",
]
"""The heads of what is said of a paper in one line."""
FITTING = {
    "holds": (REPRODUCES, DIRECTION, LARGER),
    "fails": (PART, FAILS),
    "seen": (*OPEN, *DECIDED),
}
"""Of a phrase: the verdicts that its claims may have."""


def what_reproduces(page: Page, sections: list[Section], to: str, left: Hours) -> str:
    """Write a table with a line for each paper whose claims were tried."""
    rows = []
    for name, own in papers(sections).items():
        paper = page.paper(name)
        if paper.holds or paper.fails or paper.seen:
            rows.append([_link(paper.short, to, paper.file), *summary(page, own, left)])
    return table(["paper", *SUMMARY], rows)


def summary(page: Page, own: list[Section], left: Hours) -> list[str]:
    """Return what is said of a paper under the heads of SUMMARY. *Decided* is of the claims that
    the data can test. SpecError where a phrase is not what the verdicts on its claims say."""
    paper, every = page.paper(own[0].published.paper), lines(own)
    words = Counter(line.verdict.word for line in every)
    decided, testable = sum(words[word] for word in DECIDED), words.total() - words[NO_TEST]
    verdicts = {
        each.published.code(claim): verdict.word
        for each in own
        for claim, verdict in zip(each.published.claims, each.verdicts, strict=True)
    }
    told = []
    for key, fitting in FITTING.items():
        for phrase in getattr(paper, key):
            for code in phrase.claims:
                if verdicts.get(code) not in fitting:
                    raise SpecError(
                        f"{PAGE}: {paper.name}: {key}: {phrase.text!r}: {code} is "
                        f"{verdicts.get(code, 'no claim of the paper')!r}"
                    )
        told.append("; ".join(phrase.text for phrase in getattr(paper, key)) or "–")
    return [f"{decided} of {testable}", *told, _list_jobs(every, left)]


def _list_jobs(every: list[Line], left: Hours) -> str:
    """List the jobs that would decide what is open, with their minutes."""
    jobs = dict.fromkeys(line.claim.job for line in every if line.verdict.word in OPEN)
    return ", ".join(f"{job}: {time_of(left[job])}" for job in jobs if job in left) or "–"


def hours(every: Iterable[Line], left: Hours) -> float:
    """Sum the hours of the jobs that would decide the claims that are open."""
    return sum(
        left.get(job, 0.0)
        for job in {line.claim.job for line in every if line.verdict.word in OPEN}
    )


def claims(page: Page, sections: list[Section], to: str, left: Hours) -> str:
    """Return a table for each paper, with a line for each of its claims, below the table or figure
    of the paper that has it."""
    parts = []
    for name, own in papers(sections).items():
        every, rows = lines(own), []
        for section in own:
            mine = [_write_row(line, left) for line in every if line.section is section]
            rows += [[f"**{section.published.title}**"], *mine] if mine else []
        parts += [f"## {_link(name, to, page.paper(name).file)}", table(HEAD, rows)] if rows else []
    return "\n\n".join(parts)


def short_table(every: list[Line], left: Hours) -> str:
    """Write a table of some claims of a paper, each with its table or figure. It leaves out what
    the page's figure shows."""
    rows = [(line, _write_row(_without_panel(line), left)) for line in every]
    return table(
        HEAD,
        [
            [f"{line.section.published.title.partition(': ')[0]}: {text}", *rest]
            for line, (text, *rest) in rows
        ],
    )


def _without_panel(line: Line) -> Line:
    """Return the line without the settings that the figure of the page shows."""
    if not line.claim.panel:
        return line
    return line._replace(others=[line.reading] if line.reading is not None else [])


def _write_row(line: Line, left: Hours) -> list[str]:
    runs = ", ".join(part for part in (_name_size(line), _count_seeds(line)) if part)
    ours, word = _shorten(line.verdict.ours), f"**{line.verdict.word}**"
    if line.reading is not None:
        other, claim = line.reading
        how = "read literally" if claim.literal else "in the best reading"
        ours = (
            f"{line.claim.setting}: {ours or 'not run'}<br>{claim.setting}: {_shorten(other.ours)}"
        )
        word += f"<br>{how}: {other.word}"
    code = "" if line.verdict.word == NOT_RUN else f"`{line.section.published.code(line.claim)}`"
    return [line.claim.text, line.verdict.published, ours, word, runs, _explain(line, left), code]


def _shorten(ours: str) -> str:
    """Leave out of our numbers what a line has no room for."""
    return re.sub(
        r"; last ten .*|; rank correlation [^;]*| \(\d+ of \d+ seeds (fewer|less)\)", "", ours
    )


def _count_both(every: list[Line]) -> str:
    """Count the verdicts of a paper; twice where readings of its words differ."""
    literal, best = Counter[str](), Counter[str]()
    for line in every:
        other = line.verdict if line.reading is None else line.reading[0]
        is_literal = line.reading is not None and line.reading[1].literal
        literal[other.word if is_literal else line.verdict.word] += 1
        best[min(line.verdict.word, other.word, key=BEST.index)] += 1
    if literal == best:
        return _count(best)
    return f"read literally: {_count(literal)}<br>in the best reading: {_count(best)}"


def _count(words: Counter[str]) -> str:
    return ", ".join(
        f"{words[word]} {PLURAL.get(word, word) if words[word] > 1 else word}"
        for word in WORDS
        if words[word]
    )


def _explain(line: Line, left: Hours) -> str:
    """Return what the verdict rests on beside the numbers, in some words, and what more runs would
    take."""
    told = line.reading
    others = [each for each in line.others if each[0].word != NOT_RUN and each != told]
    own = [(line.verdict, line.claim)] if line.verdict.word != NOT_RUN else []
    more = ""
    if others and line.claim.setting and all(claim.setting for _, claim in others):
        named: dict[str, list[str]] = {}
        for verdict, claim in sorted(
            [*([] if told else own), *others],
            key=lambda tried: WORDS.index(tried[0].word),
        ):
            word = (
                f"{verdict.why.partition(',')[0]} with"
                if verdict.word == AT_SIZE
                else WITH[verdict.word]
            )
            named.setdefault(word, []).append(claim.setting)
        more = "; ".join(f"{word} {' / '.join(settings)}" for word, settings in named.items())
    elif others:
        words = Counter(verdict.word for verdict, _ in others)
        more = f"in {len(others)} other setting{'s' if len(others) > 1 else ''}: {_count(words)}"
    needs = (
        time_of(left[line.claim.job])
        if line.verdict.word in OPEN and line.claim.job in left
        else ""
    )
    why = "" if line.verdict.word == NOT_RUN else line.verdict.why
    parts = (why, line.claim.small, line.verdict.cost, more, f"decided in {needs}" if needs else "")
    return "; ".join(part for part in parts if part)


def _name_size(line: Line) -> str:
    if line.verdict.word == NOT_RUN:
        return ""
    return (
        "small"
        if line.claim.small or any(line.section.small.get(name) for name in line.claim.cells)
        else "full"
    )


def _count_seeds(line: Line) -> str:
    """Count the fewest seeds of its cells, and their draws of the data."""
    run = [name for name in line.claim.cells if line.section.measured[name].values]
    if not run or line.verdict.word == NOT_RUN:
        return ""
    fewest = min(len(line.section.measured[name].values) for name in run)
    said = with_draws(fewest, min(line.section.draws[name] for name in run))
    return said.replace(f"{fewest}", f"{fewest} seed{'s' if fewest > 1 else ''}", 1)


def _link(name: str, to: str, file: str) -> str:
    return f"[{name}]({to.format(file=file)})" if to else name
