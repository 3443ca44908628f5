import math

import numpy as np
import pytest
from scipy.stats import f, friedmanchisquare, t

from cfljax.methods import find_about
from cfljax.report import page_data, table_files, tables, tested, tuning, write
from cfljax.report.comparison import headline, rows
from cfljax.report.configurations import collect
from cfljax.report.critical_difference import MAX_DRAWN_METHODS, WIDTH, picture, svg
from cfljax.report.notes import list_notes
from cfljax.report.report_data import read
from cfljax.results.statistics import difference, interval, mean_and_deviation, ranks
from cfljax.store import Store
from tests.report import synthetic

METHODS = {"fedavg": 0.5, "ifca": 0.7, "ocfl": 0.72, "local": 0.4}


def grid(folder, seeds=3, data=("digits", "blobs", "synthetic"), follow=False):
    """Every method on every data set: a plan whose runs' data follow their seeds, or share one
    partition."""
    store, rng, names = Store(folder), np.random.default_rng(0), []
    for name in data:
        for method, level in METHODS.items():
            for seed in range(seeds):
                names.append(f"{method}-{name}-{seed}")
                varies = {"data.name": name, "data.seed": seed if follow else 0}
                accuracy = level + 0.02 * rng.standard_normal()
                record = synthetic.record_of(
                    names[-1],
                    seed,
                    {},
                    method=method,
                    timings={},
                    summary={"accuracy_last": accuracy},
                )
                record["config"]["data"] |= {
                    key.removeprefix("data."): value for key, value in varies.items()
                }
                store.write(names[-1], record, {})
    label = [
        {
            "label": m,
            "data_seed": "run" if follow else None,
            "units": [n for n in names if n.startswith(m)],
        }
        for m in METHODS
    ]
    store.write_plan({"name": "grid", "units": names, "labels": label})
    return rows(collect([folder]).configurations)


def test_few_seeds_have_students_interval_and_two_have_none():
    values = [0.90, 0.93, 0.91]
    half = t.ppf(0.975, 2) * np.std(values, ddof=1) / math.sqrt(3)
    assert interval(values) == pytest.approx((np.mean(values) - half, np.mean(values) + half))
    assert interval(values[:2]) is None


def test_the_deviation_is_that_of_a_sample():
    values = [0.90, 0.93, 0.91]
    assert mean_and_deviation(values) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert mean_and_deviation(values[:1]) == (0.90, None)


def test_the_bootstrap_draws_the_same_with_each_version():
    """Intervals in a paper can be computed again."""
    values = [0.50, 0.52, 0.49, 0.55, 0.61, 0.50, 0.47, 0.58, 0.53, 0.56]
    assert interval(values) == pytest.approx((0.501, 0.5625021603949608), abs=1e-12)


@pytest.mark.parametrize("n", [5, 10])
def test_the_bootstrap_covers_the_mean_about_as_often_as_it_says(n):
    rng, hit = np.random.default_rng(0), 0
    for _ in range(400):
        low, high = interval(rng.standard_normal(n))
        hit += low <= 0 <= high
    assert 0.90 <= hit / 400 <= 0.98  # plain percentiles: 0.85 and 0.91


def test_intervals_are_the_same_every_time_and_move_with_the_numbers():
    values = np.random.default_rng(1).standard_normal(7)
    low, high = interval(values)
    assert (low, high) == interval(values)
    assert interval(values + 1) == pytest.approx((low + 1, high + 1))


def test_a_paired_difference_ignores_what_both_share():
    shared = np.random.default_rng(0).normal(0, 10, 8)
    own = np.random.default_rng(1).normal(1, 0.1, 8)
    found = difference(shared + own, shared)
    assert found.low < found.mean < found.high and found.high - found.low < 0.5
    assert found.mean == pytest.approx(own.mean()) and found.n == 8
    assert found.effect == pytest.approx(own.mean() / own.std(ddof=1) * (1 - 3 / 27))
    assert (
        difference([1, 2, 3], [0, 1, 2]).effect == math.inf
        and difference([1, 2, 3], [1, 2, 3]).effect == 0
    )


@pytest.mark.parametrize(
    ("effect", "text"),
    [
        (0.5, "+0.50"),
        (100, "+100.00"),
        (-100, "-100.00"),
        (100.5, "> 100"),
        (-100.5, "< -100"),
        (math.inf, "> 100"),
    ],
)
def test_effects_beyond_100_are_said_to_be_so(effect, text):
    assert tested.format_effect(difference([1, 2, 3], [0, 1, 2])._replace(effect=effect)) == text


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_critical_differences_are_those_of_demsars_table(k, q):
    found = ranks([str(i) for i in range(k)], np.random.default_rng(k).random((14, k)))
    assert found.distance == pytest.approx(q * math.sqrt(k * (k + 1) / (6 * 14)), rel=1e-3)


def test_ranks_with_ties_are_those_of_friedmans_test():
    scores = np.round(np.random.default_rng(0).random((14, 4)) + [0, 0.1, 0.2, 0.5], 1)
    scores[3] = 1.0  # all are equal: rank 2.5 each
    found = ranks(list("abcd"), scores)
    square = friedmanchisquare(*scores.T).statistic
    assert (
        found.statistic == pytest.approx(13 * square / (14 * 3 - square)) and found.data_sets == 14
    )
    plain = {
        name: np.mean([1 + sum(row > row[i]) + (sum(row == row[i]) - 1) / 2 for row in scores])
        for i, name in enumerate("abcd")
    }
    assert (
        dict(zip(found.names, found.means, strict=True)) == pytest.approx(plain)
        and found.names[0] == "d"
    )
    assert found.means == sorted(found.means)
    assert found.p == pytest.approx(f.sf(found.statistic, 3, 39))


def test_bars_join_what_does_not_differ():
    found = ranks(["a", "b", "c"], np.array([[0.3, 0.2, 0.1]] * 12))._replace(distance=1.5)
    assert found.level_groups == [(0, 1), (1, 2)]
    assert found._replace(distance=0.5).level_groups == []
    assert found._replace(p=0.2).level_groups == [(0, 2)]


def test_the_picture_has_every_name_and_stays_inside():
    found = ranks([f"m{i}" for i in range(9)], np.random.default_rng(0).random((5, 9)))
    drawn = picture(found)
    assert sum(word.text.startswith("m") for word in drawn.words) == 9
    assert all(
        0 <= s.x1 <= WIDTH and 0 <= s.x2 <= WIDTH and 0 < s.y2 < drawn.height for s in drawn.strokes
    )
    assert svg(picture(found._replace(names=["<b>", *found.names[1:]]))).count("&lt;b&gt;") == 1


@pytest.mark.parametrize("methods", [33, MAX_DRAWN_METHODS, MAX_DRAWN_METHODS + 7])
def test_a_picture_of_many_methods_says_what_it_leaves_out_and_no_number_of_its_axis_hides_another(
    methods,
):
    drawn = picture(
        ranks([f"m{i}" for i in range(methods)], np.random.default_rng(1).random((5, methods)))
    )
    assert sum(word.text.startswith("m") for word in drawn.words) == min(methods, MAX_DRAWN_METHODS)
    assert [word.text for word in drawn.words if "the best" in word.text] == [
        f"the best {MAX_DRAWN_METHODS} of {methods}"
    ] * (methods > MAX_DRAWN_METHODS)
    ticks = sorted(word.x for word in drawn.words if word.text.isdigit())
    assert min(np.diff(ticks)) > 16 and str(methods) in {word.text for word in drawn.words}
    assert all(0 < word.y <= drawn.height for word in drawn.words)


def test_one_partition_of_the_data_is_told_from_a_draw_per_seed(tmp_path):
    shared, drawn = (
        grid(tmp_path / str(follow), seeds=5, follow=follow) for follow in (False, True)
    )
    assert any("cover seeds only" in note for note in list_notes(shared, "*", "≈"))
    assert any('data.seed = "run"' in note for note in list_notes(drawn, "*", "≈"))
    assert "share one partition" in tested.write_paragraph(
        shared
    ) and "Each seed draws the partition" in tested.write_paragraph(drawn)
    assert len(drawn) == 12 and {row.cells["accuracy_last"].n for row in drawn} == {5}


def test_the_sentence_has_the_numbers_of_the_table(tmp_path):
    table = grid(tmp_path, seeds=5, data=("digits",))
    said = tested.write_paragraph(table)
    cell = {row.configuration.title: row.cells["accuracy_last"] for row in table}
    best = max(cell, key=lambda name: cell[name].mean)
    worst = cell["Local only"]
    assert (
        f"{best} is significantly better than" in said
        and "5 runs" in said
        and "3 comparisons" in said
    )
    assert (
        f"Local only (by {-100 * worst.behind.mean:.1f} points, "
        f"{100 * worst.behind.confidence:.4g} % CI {-100 * worst.behind.high:.1f}" in said
    )
    assert worst.p_raw < worst.p and said.count("(uncorrected ") == 3
    assert f"g = {-worst.behind.effect:+.2f}" in said and said.count(", n = 5)") == 3
    assert said.endswith(".") and said.count("  ") == 0


def test_all_forms_have_intervals_and_tests(tmp_path):
    table = grid(tmp_path, seeds=5)
    low, high = table[0].cells["accuracy_last"].interval
    assert headline(table).key == "accuracy_last"
    shown = f"[{100 * low:.1f}, {100 * high:.1f}]"
    for form in (tables.to_terminal, table_files.to_markdown, table_files.to_latex):
        assert shown in form(table)
    compared = [row.cells["accuracy_last"] for row in table if row.cells["accuracy_last"].p]
    apart = sum(not cell.tied for cell in compared)
    assert len(compared) == 9 and 0 < apart < 9
    assert f"{apart} of the 9 differences are significant" in tested.write_paragraph(table)
    page, over = page_data.tests(table), tested.compute_mean_ranks(table)
    assert over.names[-1] == "Local only" and over.data_sets == 3
    assert "fig-ranks" in page and "Friedman" in page and "Hedges" in page
    latex = tested.latex(table)
    assert latex.count(r"\midrule") == 4 and all(ord(c) < 128 for c in latex)
    assert (
        tested.markdown([]) == "" and page_data.tests([]) == "" and tested.write_paragraph([]) == ""
    )


def test_validation_is_the_headline_where_there_is_one(tmp_path):
    store = Store(tmp_path)
    for seed in range(5):
        summary = {"accuracy_last": 0.5, "accuracy_at_best_val": 0.6 + seed / 100}
        store.write(
            f"a-{seed}", synthetic.record_of(f"a-{seed}", seed, {}, timings={}, summary=summary), {}
        )
    table = rows(collect([tmp_path]).configurations)
    assert headline(
        table
    ).key == "accuracy_at_best_val" and "best validation" in tables.to_terminal(table)
    assert "round of the best validation" in tested.write_paragraph(table)


def test_the_figure_and_the_files_are_written(tmp_path):
    grid(tmp_path / "a", seeds=5)
    page = write.write(read([tmp_path / "a"]), tmp_path / "out")
    assert "Critical differences" in page.read_text(encoding="utf-8")
    assert (tmp_path / "out/figures/critical_difference.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "out/figures/performance_profile.png").read_bytes()[:4] == b"\x89PNG"
    assert "tabular" in (tmp_path / "out/tests.tex").read_text()


def survivors(folder, data=("digits", "blobs", "synthetic")):
    """The grid, in which half of the best method's runs on the first data set diverged."""
    best = max(METHODS, key=METHODS.get)
    table, store = grid(folder, seeds=6, data=data), Store(folder)
    for seed in range(1, 6, 2):
        name = f"{best}-{data[0]}-{seed}"
        record, arrays = store.read(name)
        store.write(
            name, record | {"status": "diverged", "summary": {"accuracy_last": 0.1}}, arrays
        )
    return best, table, rows(collect([folder]).configurations)


def test_a_row_of_which_runs_diverged_has_no_star_no_rank_and_a_word_in_every_form(tmp_path):
    best, whole, table = survivors(tmp_path)
    (row,) = (row for row in table if row.configuration.lost)
    cell = row.cells["accuracy_last"]
    assert (
        row.configuration.label == best
        and cell.n == 3
        and not cell.best
        and cell.p is None
        and cell.behind is None
    )
    assert row.configuration.display_name in tested.compute_mean_ranks(whole).names
    assert (
        tested.compute_mean_ranks(table) is None
        or row.configuration.display_name not in tested.compute_mean_ranks(table).names
    )
    words = "3 diverged of 6 runs"
    assert words in tested.write_paragraph(table) and words not in tested.write_paragraph(whole)
    assert (
        words in tested.markdown(table)
        and words in tested.latex(table)
        and words in page_data.tests(table)
    )
    assert "not compared: 1 of" in tables.to_terminal(
        table
    ) and "not compared: 1 of" in table_files.to_markdown(table)
    assert sum(row.cells["accuracy_last"].best for row in table) == 3


def test_the_sentence_names_no_survivor_as_the_best(tmp_path):
    best, _, table = survivors(tmp_path, ("digits",))
    said, best = tested.write_paragraph(table), find_about(best).title
    assert (
        f"{best} is significantly better" not in said and f"{best} (3 diverged of 6 runs)" in said
    )
    assert f'">{best}' not in page_data.tests(table)


def test_rows_that_all_lost_runs_are_not_compared(tmp_path):
    store = synthetic.sweep(tmp_path, methods=(("fedavg", 0.5), ("ifca", 0.8)), seeds=6)
    for name in ("fedavg-0", "ifca-1"):
        record, arrays = store.read(name)
        store.write(name, record | {"status": "diverged"}, arrays)
    table = rows(collect([tmp_path]).configurations)
    assert "*" not in tables.to_terminal(
        table
    ) and "not compared: 2 of 2 rows" in tables.to_terminal(table)
    assert "is significantly" not in tested.write_paragraph(
        table
    ) and "1 diverged of 6 runs" in tested.write_paragraph(table)


def test_the_end_of_an_interval_keeps_its_sign():
    assert [tested._format_signed(value) for value in (-0.04, 0.04, 0.0, -0.0, -0.65)] == [
        "-0.0",
        "+0.0",
        "+0.0",
        "+0.0",
        "-0.7",
    ]


def test_a_search_in_which_all_settings_diverged_has_no_best_setting():
    ended = {
        "varies": {"train.lr": 9.0},
        "runs": ["a"],
        "scores": [0.5, None],
        "rounds": [1],
        "values": [0.5],
        "ended": "lost",
    }
    group = {"label": "fedavg", "settings": [ended]}
    table = {"groups": [group], "rungs": [1, 2], "metric": "val_loss", "reduce": 2, "seeds": [0]}
    assert "none reached the end" in tuning.text(table) and "lr=9" not in tuning.text(table)
    page = tuning.section(table)
    assert "none reached the end" in page and "class=best" not in page and "chosen" not in page
