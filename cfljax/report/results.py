"""The results of a folder with what its report says of them: `cfljax.load(DIR)` returns them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cfljax.errors import SpecError
from cfljax.report import report_data, write
from cfljax.report.choice import list_best
from cfljax.report.paper_table import COLUMN_WIDTH
from cfljax.report.table_files import to_frame
from cfljax.results import choices, result

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Results(result.Results):
    """The finished runs of a results folder, as `cfljax.load(DIR)`, `sweep` and `tune` return them.
    Records are read at once, arrays when they are asked for.

    The runs are the runs of the folder's plan, in its order, with `everything` also runs of an
    earlier spec. Their labels and the options that vary come from the plan's spec, not from what an
    earlier start has recorded. `target`: the accuracy to which rounds and bytes are counted.
    `sweep`: the sweep that a start has asked for (`Spec.describe_sweep`), instead of the folder's
    plan, which another start may have replaced since."""

    def best(self, by: str | None = None) -> Self:
        """Return the runs of the method and options with the highest mean over the seeds, on each
        data set: what the report marks as the best. One that lost runs (diverged or failed) is
        never the best.

        Args:
            by: a column of the report, as `"worst"` or `"ari_last"`. By default it is the accuracy
                at the best validation accuracy. For runs without validation samples it is that of
                the last ten evaluations, or of the last one: then the choice has seen test data,
                and an accuracy that you report of it is optimistic."""
        best = [unit.record for each in list_best(self, by) for unit in each.units]
        return self.select_rows(best)

    def table(self, columns: Sequence[str] = (), *, maximum: bool = False) -> pandas.DataFrame:
        """Return the comparison of the report: a row for each method with its options, with the
        unrounded numbers of `table.csv` (accuracies are fractions).

        Of a quantity such as `accuracy_last` there are `accuracy_last_mean`, `_std` (of a sample),
        `_n` (runs), `_low` and `_high` (the 95 % interval of the mean); against the best method on
        the same data `_best`, `_difference`, `_effect` (Hedges' g), `_p` and `_p_raw` (paired
        t-test, with and without Holm's correction), and `_difference_low` and `_difference_high`,
        an interval that agrees with `_p` and holds `_confidence`. A number that cannot be computed
        is NaN, such as an interval of fewer than three runs, or a test of fewer than five. The
        tests are of the column that methods are compared by, and of every other that has a best.

        If several settings (data sets and partitions) are compared, a method has in each of its
        rows `iqm` with `iqm_low` and `iqm_high`, the interquartile mean of all its runs;
        `better_here`, the probability that the best method is better on these settings (1 − p / 2,
        with Holm's p; five seeds at least); and `better_anywhere` and `equal_anywhere`, the
        probabilities that it is better by more than a point on a new setting, and that neither is
        (Bayesian signed-rank test; five settings at least).

        Args:
            columns: only these quantities, by their headings in the report, the first words of
                these, or their keys: `["last", "worst", "bytes_over_fedavg"]`.
            maximum: add the highest test accuracy of each run, which is optimistic."""
        names = [columns] if isinstance(columns, str) else list(columns)
        return to_frame(
            report_data.make_table(report_data.collect([self]), maximum, names, "columns")
        )

    def report(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        figures: bool = True,
        paper: bool = False,
        width: float | None = None,
    ) -> Path:
        """Write the report as `cfljax report` does, and return its page.

        Args:
            out: the folder for its files; by default `report` in the results folder.
            figures: write PNG and SVG files of all figures, too.
            paper: write `paper.tex`, a table that fits into a column, and the figures as PDF files,
                too.
            width: the width of figures, and of the column, in inches; by default 5.5, with `paper`
                3.3."""
        if out is None and self.chosen_from is not None:
            raise SpecError(
                f"report: {write.default_folder([self.store.folder])} is for all runs; give these "
                'a folder of their own, as in report("chosen")'
            )
        folder = write.default_folder([self.store.folder]) if out is None else out
        column = COLUMN_WIDTH if paper and width is None else width
        data = report_data.read([self], self.target)
        if paper:
            write.write_paper(data, folder, column, asked=False)
        return write.write(data, folder, figures, write.Format(width=column, pdf=paper))

    def plot(
        self,
        column: str = "accuracy",
        *,
        ax: Axes | None = None,
        methods: str | Sequence[str] | None = None,
        x: str = "round",
        kind: str = "accuracy",
    ) -> Figure:
        """Draw a figure of the report with matplotlib: the same numbers, names and colours. A
        method's curve is the mean over its seeds, with the standard deviation as a band. A run
        that `train.stop` has ended keeps its last value, and diverged runs are drawn only if none
        of the line is done. Of more than 24 settings the best are drawn.

        Args:
            column: a column of `history()`, or `bytes`, the sum of both directions.
            ax: axes of your own to draw in, instead of a new figure.
            methods: only these methods, by name or label, in this order.
            x: what curves are drawn over: `"round"`, `"bytes"` (sent and received by all clients)
                or `"seconds"` (of setting up, training and evaluating, without compiling).
            kind: `"accuracy"`: curves of the column; `"methods"`: the accuracy that methods are
                compared by, with a circle for each seed; `"assignment"`: the cluster of each client
                over the rounds, in the first run of each method."""
        from cfljax.report import plots

        # A notebook shows figures once pyplot and its own backend have been imported, which names
        # it to matplotlib by this variable
        importlib.import_module("matplotlib.pyplot")
        backend = os.environ.get("MPLBACKEND", "")
        if backend.startswith("module://"):
            importlib.import_module(backend.removeprefix("module://"))
        drawn = self
        if methods is not None:
            chosen = choices.choose_rows(self.rows, {"method": methods}, "plot: ")
            drawn = self.select_rows(chosen)
            drawn.ordered = True
        return plots.plot(drawn, column, ax, x, kind)
