"""Draw the methods by family × the kinds of differences, as SVG."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from experiments.board.results import Gain, format_points

# In pixels: a row, a column, the names of methods, and the names of kinds above
ROW = 16
COLUMN = 66
LEFT = 150
TOP = 44
FAMILY_GAP = 22
# Colours are full from so many points on
FULL = 15.0
BETTER = (33, 102, 172)
WORSE = (178, 24, 43)
WHITE = (255, 255, 255)


def draw(
    families: Mapping[str, Sequence[str]],
    titles: Mapping[str, str],
    kinds: Sequence[str],
    gains: Mapping[tuple[str, str], Gain | None],
) -> str:
    """Draw a cell for each method and kind.

    Args:
        families: family -> its methods, in their order.
        titles: method -> its name.
        kinds: the columns.
        gains: (method, kind) -> points over FedAvg; None: it has played no such setting."""
    parts = []
    for i, kind in enumerate(kinds):
        first, _, second = kind.partition(" ")
        x = LEFT + COLUMN * (i + 0.5)
        parts += [_write(x, TOP - 22, first), _write(x, TOP - 9, second)]
    y = TOP
    for family, methods in families.items():
        parts.append(_write(8, y + 13, family, "start", weight="bold"))
        y += FAMILY_GAP
        for method in methods:
            parts.append(_write(LEFT - 8, y + 12, titles[method], "end"))
            for i, kind in enumerate(kinds):
                parts += _draw_cell(LEFT + COLUMN * i, y, gains[method, kind])
            y += ROW
    width = LEFT + COLUMN * len(kinds) + 8
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 8}" width="{width}" '
        'font-family="sans-serif" font-size="11">'
    )
    return head + '<rect width="100%" height="100%" fill="#fff"/>' + "".join(parts) + "</svg>\n"


def _draw_cell(x: float, y: float, gain: Gain | None) -> list[str]:
    if gain is None:
        return [_write(x + COLUMN / 2, y + 12, "–")]
    points = 100 * gain.mean
    strength = min(1.0, abs(points) / FULL)
    end = BETTER if points > 0 else WORSE
    mixed = [round(w + strength * (c - w)) for w, c in zip(WHITE, end, strict=True)]
    fill = f"#{mixed[0]:02x}{mixed[1]:02x}{mixed[2]:02x}"
    box = f'<rect x="{x}" y="{y}" width="{COLUMN - 1}" height="{ROW - 1}" fill="{fill}"/>'
    colour = "#fff" if strength > 0.6 else "#000"
    return [box, _write(x + COLUMN / 2, y + 12, format_points(gain.mean), colour=colour)]


def _write(
    x: float,
    y: float,
    text: str,
    anchor: str = "middle",
    colour: str = "#000",
    weight: str = "normal",
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}" '
        f'font-weight="{weight}">{html.escape(text)}</text>'
    )
