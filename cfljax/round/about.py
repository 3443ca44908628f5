"""What a method's file says about its method, as data: the paper, what participants send, and how
the paper is read. Help, pages and reports are made from it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Family = Literal["global", "clustered", "soft", "personal"]


class About(NamedTuple):
    """A method's name, paper and traffic: `ABOUT` of its file."""

    # The name in figures, and in tables for papers
    title: str
    # What a client ends with: one model for all, its cluster's, a mixture of the clusters', its own
    family: Family
    authors: str = ""
    year: int | None = None
    # The title of the paper
    paper: str = ""
    venue: str = ""
    # "": none is known for certain
    link: str = ""
    # The models that a participant receives and sends in a round, in short; "": one down, one up
    models: str = ""
    # What travels per participant and round
    communication: str = "one model down, one update up"

    @property
    def cited(self) -> str:
        """The paper with its link, in a line of text; "" where there is none."""
        parts = (f"{self.authors} {self.year}", f"“{self.paper}”", self.venue, self.link)
        return ", ".join(part for part in parts if part) if self.paper else ""


class Reading(NamedTuple):
    """A passage of a paper that is unclear, incomplete, or not what its program does: an item of
    `READINGS` of a method's file."""

    point: str
    # What the paper says
    paper: str
    # What is done here by default
    here: str = "the same"
    # The options that change it: each a key, or a line of a spec such as `average = "uniform"`
    option: str | tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """The options that change it, as a tuple."""
        return (self.option,) if isinstance(self.option, str) else self.option

    @property
    def follows_paper(self) -> bool:
        """Whether nothing else is done than what the paper says."""
        return self.here == "the same"

    @property
    def text(self) -> str:
        """The reading as sentences: its point, the paper, what is done here, and the options."""
        options = ", ".join(f"`{each}`" for each in self.options)
        changed = f" Option: {options}." if options else ""
        return f"{self.point}. Paper: {self.paper}. Here: {self.here}.{changed}"


# Readings that several methods share
BY_SAMPLES = Reading("Weights of the mean", paper="by samples", option="average")
BY_SAMPLES_UNLIKE_PROGRAM = Reading(
    "Weights of the mean",
    paper="by samples; its program's are equal",
    here="by samples",
    option='average = "uniform"',
)
UNIFORM_UNLIKE_PROGRAM = Reading(
    "Weights of the mean",
    paper="uniform; its program weights by samples",
    here="uniform",
    option='average = "samples"',
)
CLUSTERS_FROM_W0 = Reading("Start of the clusters", paper="not said", here="w_0")
