"""The picture of the README, from a results folder: python docs/gallery/picture.py results/groups
docs/gallery/picture.png"""

import sys

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from cfljax.report import figure_panels, figures
from cfljax.report.report_data import read
from cfljax.report.styles import COLOURS, choose_styles


def draw(folder, out):
    """Accuracy against bytes sent (pre-training included), and which client is in which cluster."""
    data = read([folder])
    with matplotlib.rc_context(figures.STYLE):
        figure = Figure(figsize=(8.4, 2.6))
        curves, *panels = figure.subplots(1, 4, width_ratios=(2.1, 1, 1, 1))
        for configuration, each, style in zip(
            data.drawn, data.curves, choose_styles(data.drawn), strict=True
        ):
            (sent, band), colour = figures.over_bytes(each, "accuracy"), COLOURS[style.colour]
            curves.plot(
                sent,
                100 * band.mean,
                color=colour,
                linestyle=figures.DASHES[style.dash],
                marker=figures.MARKERS[style.marker],
                markevery=max(1, len(sent) // figures.FEW_MARKERS),
                label=configuration.legend,
            )
            low, high = (
                100 * (band.mean - np.nan_to_num(band.std)),
                100 * (band.mean + np.nan_to_num(band.std)),
            )
            curves.fill_between(sent, low, high, color=colour, alpha=0.14, linewidth=0)
        curves.set(xlabel="sent by and to all clients, MB", title="accuracy, %")
        curves.legend(loc="lower right")
        shown = [
            (c.legend, p.assignment)
            for c, p in zip(data.drawn, data.pictures, strict=True)
            if p and p.assignment
        ]
        for axes, (name, picture) in zip(
            panels, [each for each in shown if each[0] != "FedGroup"], strict=False
        ):
            axes.set_title(f"{name}: clusters")
            axes.grid(False)
            figure_panels._draw_strips(axes, picture)
        figure.savefig(out, dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    draw(*sys.argv[1:])
