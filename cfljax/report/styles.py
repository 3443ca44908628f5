"""Enters: configurations. Leaves: how the line of each looks: colour, dash and marker, the same in
all figures and on the page."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cfljax.methods import find_about
from cfljax.report.configurations import Configuration
from cfljax.round.about import Family

CLUSTER_COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#c4629b", "#dd9500", "#3fa7e0", "#882255", "#555c6b"),
)
"""The colours of the first clusters. The page has them as `--c0`, `--c1`, …"""
COLOURS = (*CLUSTER_COLOURS, "#1f3a7d", "#8f3f00", "#9a6fd0", "#0b5d46", "#98a1b0")
"""The colours of lines: those of clusters, then other shades of the hues of families."""
FAMILY_COLOURS: dict[Family | None, tuple[int, ...]] = {
    "global": (7, 12),
    "clustered": (0, 5, 8),
    "soft": (3, 6, 10),
    "personal": (1, 4, 9),
    None: (2, 11),
}
"""Family of methods -> shades of one hue, as indices into COLOURS: grey, blue, purple and orange;
of methods that no paper of this package describes (plug-ins): green."""
# The number of ways to dash a line, and of shapes of markers
DASHES = 4
MARKERS = 8


class Style(NamedTuple):
    """How a line looks. The fields are indices: of COLOURS, of a dash, and of a marker."""

    colour: int
    dash: int
    marker: int


def choose_styles(drawn: Sequence[Configuration]) -> list[Style]:
    """Choose the style of each configuration; no two are alike.

    A method has a shade of the hue of its family, another dash once all shades are taken, and a
    marker that no other of the family has, as far as there are enough. Its configurations differ in
    dash. If all are of one family, they have all colours of clusters."""
    labels: list[object] = [(each.folder, each.label) for each in drawn]
    if len(set(labels)) == 1:
        labels = list(range(len(drawn)))
    families = [_find_family(each) for each in drawn]
    hues = {family: FAMILY_COLOURS[family] for family in families}
    if len(hues) == 1:
        hues = {family: tuple(range(len(CLUSTER_COLOURS))) for family in families}
    free = set(_list_styles())
    first: dict[object, Style] = {}
    often: Counter[Family | None] = Counter()
    chosen = []
    for label, family in zip(labels, families, strict=True):
        shades = hues[family]
        at = often[family]
        dash = at // len(shades) % DASHES
        wanted = first.get(label, Style(shades[at % len(shades)], dash, at % MARKERS))
        style = min(free, key=functools.partial(_rank, wanted, shades, label in first))
        free.remove(style)
        chosen.append(style)
        if label not in first:
            first[label] = style
            often[family] += 1
    return chosen


def _list_styles() -> Iterator[Style]:
    return itertools.starmap(
        Style, itertools.product(range(len(COLOURS)), range(DASHES), range(MARKERS))
    )


def _rank(wanted: Style, shades: tuple[int, ...], again: bool, style: Style) -> tuple[object, ...]:
    """Rank a style by how far it is from the wanted one; `again`: of a method that has this one, so
    that another dash is nearer than another marker."""
    marker = (style.marker - wanted.marker) % MARKERS
    dash = (style.dash - wanted.dash) % DASHES
    nearest = (marker, dash) if again else (dash, marker)
    return (style.colour != wanted.colour, style.colour not in shades, *nearest, style)


def _find_family(configuration: Configuration) -> Family | None:
    known = find_about(configuration.method)
    return known.family if known else None
