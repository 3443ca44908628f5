"""Enters: what is said of papers by hand. Leaves: Page, which knows what is said of each."""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Phrase:
    """Some words on a paper, and the claims whose verdicts they sum up."""

    text: str
    claims: tuple[str, ...]
    """What the claims are called: their file, and their place there."""


@dataclasses.dataclass(frozen=True)
class Paper:
    """What is said of a paper by hand."""

    name: str
    """As `paper` of its files has it."""
    file: str
    """The name of its page, without `.md`."""
    holds: tuple[Phrase, ...] = ()
    """What reproduces, with its condition."""
    fails: tuple[Phrase, ...] = ()
    """What does not."""
    seen: tuple[Phrase, ...] = ()
    """What runs show that do not count: too few seeds, a smaller network."""
    says: str = ""
    """What holds, in a sentence."""
    findings: str = ""

    @property
    def short(self) -> str:
        """Its name without the authors."""
        return self.name.partition(" (")[0]


@dataclasses.dataclass(frozen=True)
class Page:
    """The title and the text of the page, the order of the files in a folder of them, and the
    papers."""

    title: str
    text: str
    files: tuple[str, ...] = ()
    papers: tuple[Paper, ...] = ()

    def paper(self, name: str) -> Paper:
        """Return the paper of that name; one without words if nothing is said of it."""
        plain = re.sub(r"\W+", "_", name.split(" (")[0].lower()).strip("_")
        return next((paper for paper in self.papers if paper.name == name), Paper(name, plain))
