"""Small plots for notebooks as inline SVG, readable on light and dark pages."""

from __future__ import annotations

import html
from collections.abc import Mapping

import numpy as np

WIDTH, HEIGHT, EDGE = 220, 90, 6
COLOURS = ("#3b6fb6", "#d1722b", "#3f9151", "#b8404d", "#7d5fb2", "#8a6a4f", "#c26fa8", "#7f7f7f")
SHOWN = ("accuracy", "loss", "ari")
_MOST = 12


def plots(curves: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """A small plot for each of accuracy, loss and ARI over the rounds; `curves`: name -> history."""
    chosen = dict(list(curves.items())[:_MOST])
    drawn = [plot(quantity, {name: history for name, history in chosen.items() if quantity in history}) for quantity in SHOWN]
    marks = (f'<span style="color:{COLOURS[i % len(COLOURS)]}">&#9632;</span>' for i in range(len(chosen)))
    legend = "".join(f"{mark} {html.escape(name)} &nbsp;" for mark, name in zip(marks, chosen, strict=True))
    more = f"and {len(curves) - _MOST} more" if len(curves) > _MOST else ""
    return f"<div>{''.join(drawn)}</div>" + (f"<div>{legend}{more}</div>" if any(chosen) and len(chosen) > 1 else "")


def plot(quantity: str, curves: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """One plot as HTML; "" if no number is finite."""
    pairs = {name: (np.asarray(h["round"], float), np.asarray(h[quantity], float)) for name, h in curves.items()}
    values = np.concatenate([y[np.isfinite(y)] for _, y in pairs.values()] or [np.zeros(0)])
    if not len(values):
        return ""
    low, high, last = values.min(), values.max(), max(max(x.max(initial=0) for x, _ in pairs.values()), 1)
    lines = []
    for i, (x, y) in enumerate(pairs.values()):
        ok = np.isfinite(y)
        right = EDGE + x[ok] / last * (WIDTH - 2 * EDGE)
        down = HEIGHT - EDGE - (y[ok] - low) / max(high - low, 1e-12) * (HEIGHT - 2 * EDGE)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(right, down, strict=True))
        lines.append(f'<polyline fill="none" stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="1.5" points="{points}"/>')
    picture = f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{quantity} over the rounds">{"".join(lines)}</svg>'
    words = f"{quantity}, {low:.3g} to {high:.3g}, {last:.0f} rounds"
    return f'<figure style="display:inline-block;margin:4px">{picture}<figcaption><small>{words}</small></figcaption></figure>'
