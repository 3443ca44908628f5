"""Methods over several settings: whether the best is better on these, and would be on a new one;
and that too few seeds are not tested anywhere."""

import csv
import io
import math

import numpy as np
import pytest
from scipy.stats import trim_mean, ttest_rel, wilcoxon

from cfljax.commands import report as command
from cfljax.report import page_data, table_files, tables, tested
from cfljax.report.over_settings import compare_over_settings
from cfljax.report.profile_picture import MAX_DRAWN_PROFILES, picture
from cfljax.report.report_data import collect, make_table
from cfljax.report.results import Results
from cfljax.results.statistics import (
    EQUIVALENT,
    LEVEL,
    difference,
    expect_on_new_setting,
    holm,
    holm_levels,
    interquartile_mean,
    paired_t,
    performance_profile,
)
from cfljax.store import Store
from tests.report import synthetic

METHODS = {"fedavg": 0.5, "ifca": 0.7, "ocfl": 0.702, "local": 0.4}
DATA = tuple(f"d{i}" for i in range(6))


def write_runs(folder, methods=METHODS, data=DATA, seeds=5):
    """Runs of every method on every data set, and their accuracies f64[methods, data, seeds]."""
    random = np.random.default_rng(3)
    store, names = Store(folder), []
    values = np.empty((len(methods), len(data), seeds))
    for i, (method, level) in enumerate(methods.items()):
        for j, name in enumerate(data):
            for seed in range(seeds):
                values[i, j, seed] = level + 0.02 * random.standard_normal()
                summary = {"accuracy_last": values[i, j, seed]}
                names.append(f"{method}-{name}-{seed}")
                record = synthetic.record_of(
                    names[-1],
                    seed,
                    {},
                    method=method,
                    timings={},
                    summary=summary,
                    varies={"data.name": name},
                )
                record["config"]["data"]["name"] = name
                store.write(names[-1], record, {})
    store.write_plan({"name": "grid", "units": names})
    return make_table(collect([folder])), values


def test_below_five_seeds_nothing_is_tested_in_any_form(tmp_path):
    table, _ = write_runs(tmp_path, data=("digits",), seeds=4)
    cells = [cell for row in table for cell in row.cells.values()]
    assert all(cell.p is None and cell.behind is None and not cell.tied for cell in cells)
    forms = [tables.to_terminal(table), table_files.to_markdown(table), table_files.to_latex(table)]
    forms.append(page_data.tests(table))
    assert all("4 seeds: too few to test" in form for form in forms)
    assert not any("≈" in form or "approx" in form for form in forms)
    assert tested.write_paragraph(table) == tested.summarise(table) == tested.markdown(table) == ""
    assert tested.latex(table).startswith("% 4 seeds: too few to test")
    assert "for a paper" not in tested.latex(table) and "For a paper" not in forms[-1]
    frame = Results(tmp_path).table()
    assert frame.filter(regex="_p$|_p_raw$|_difference|_effect").isna().all(axis=None)
    assert frame.accuracy_last_best.tolist() == [row.cells["accuracy_last"].best for row in table]


def test_five_seeds_are_tested(tmp_path):
    table, values = write_runs(tmp_path, data=("digits",))
    assert "too few to test" not in tables.to_terminal(table) + page_data.tests(table)
    frame = Results(tmp_path).table().set_index("method")
    best = list(METHODS)[values[:, 0].mean(axis=1).argmax()]
    others = [name for name in METHODS if name != best]
    at = {name: values[i, 0] for i, name in enumerate(METHODS)}
    raw = [ttest_rel(at[name], at[best]).pvalue for name in others]
    assert frame.accuracy_last_p_raw[others].tolist() == pytest.approx(raw)
    assert frame.accuracy_last_p[others].tolist() == pytest.approx(holm(raw))
    shown = tested.markdown(table)
    assert all(f"{p:.3f}" in shown for p in [*raw, *holm(raw)] if p >= 0.001)


def test_the_interval_of_a_difference_agrees_with_the_corrected_p():
    random = np.random.default_rng(0)
    apart = 0
    for _ in range(300):
        pairs = [(random.normal(m, 1, 6), np.zeros(6)) for m in random.uniform(0, 2.5, 4)]
        raw = [paired_t(*pair) for pair in pairs]
        for pair, p, level in zip(pairs, holm(raw), holm_levels(raw), strict=True):
            found = difference(*pair, level)
            apart += p < LEVEL
            assert (p < LEVEL) == (not found.low <= 0 <= found.high)
            assert found.confidence == 1 - level and LEVEL / 4 <= level <= LEVEL
    assert 100 < apart < 1100


def test_levels_are_those_of_holms_steps():
    # 0.01 < 0.05 / 3 and 0.02 < 0.05 / 2, but 0.06 > 0.05; then with 0.03 the second step fails
    assert holm_levels([0.02, 0.06, 0.01]) == pytest.approx([0.025, 0.05, 0.05 / 3])
    assert holm_levels([0.03, 0.04, 0.01]) == pytest.approx([0.025, 0.025, 0.05 / 3])
    assert holm_levels([0.001, 0.002]) == pytest.approx([0.025, 0.05])
    assert holm_levels([]) == []


def test_on_these_settings_the_seeds_are_the_sample(tmp_path):
    table, values = write_runs(tmp_path)
    over = compare_over_settings(table)
    means = dict(zip(("FedAvg", "IFCA", "OCFL", "Local only"), values.mean(axis=1), strict=True))
    order = sorted(means, key=lambda name: -means[name].mean())
    assert [method.name for method in over.methods] == order and over.settings == 6
    raw = [ttest_rel(means[name], means[order[0]]).pvalue for name in order[1:]]
    assert [method.here.p_raw for method in over.methods[1:]] == pytest.approx(raw)
    assert [method.here.p for method in over.methods[1:]] == pytest.approx(holm(raw))
    assert [m.better_here for m in over.methods[1:]] == pytest.approx(
        [1 - p / 2 for p in holm(raw)]
    )
    assert over.methods[0].here is None and math.isnan(over.methods[0].better_here)


def test_on_a_new_setting_the_settings_are_the_sample(tmp_path):
    table, _ = write_runs(tmp_path)
    first, second, *others = compare_over_settings(table).methods
    assert {first.name, second.name} == {"IFCA", "OCFL"} and first.anywhere is None
    assert second.anywhere.equal > 0.5 and second.better_anywhere < 0.5
    assert all(method.better_anywhere > 0.99 for method in others)
    few, _ = write_runs(tmp_path / "few", data=DATA[:4])
    assert all(method.anywhere is None for method in compare_over_settings(few).methods)
    assert "too few settings to test" in tables.to_terminal(few)


def test_the_signed_rank_test_agrees_with_wilcoxons_in_direction_and_knows_equivalence():
    random = np.random.default_rng(1)
    for mean in (0.05, -0.05):
        each = random.normal(mean, 0.02, 12)
        found = expect_on_new_setting(each)
        assert sum(found) == pytest.approx(1) and wilcoxon(each).pvalue < 0.01
        assert (found.better if mean > 0 else found.worse) > 0.99
    # A difference that Wilcoxon's test finds and that does not matter
    each = random.normal(0.004, 0.002, 30)
    assert wilcoxon(each).pvalue < 0.01 and expect_on_new_setting(each).equal > 0.99
    assert expect_on_new_setting(each) == expect_on_new_setting(each)
    better, equal, worse = expect_on_new_setting([0.05, 0.04, -0.02, 0.03, 0.0, -0.04])
    assert expect_on_new_setting([-0.05, -0.04, 0.02, -0.03, 0.0, 0.04]) == pytest.approx(
        (worse, equal, better), abs=0.03
    )


def test_a_method_that_is_no_better_is_called_better_as_rarely_as_it_says():
    """Two methods that are the same in the middle of all settings."""
    random = np.random.default_rng(5)
    wrong = [
        max(expect_on_new_setting(random.normal(0, 0.05, 12))[::2]) > 1 - LEVEL for _ in range(200)
    ]
    assert np.mean(wrong) <= 0.10


def test_the_interquartile_mean_leaves_the_outer_quarters_out_and_its_interval_covers_it():
    assert interquartile_mean([[0.0, 0.5, 0.6, 9.0], [0.4, 0.7, -5.0, 1.0]]).mean == pytest.approx(
        (0.4 + 0.5 + 0.6 + 0.7) / 4
    )
    assert interquartile_mean([[0.1] * 4, [0.2] * 5]).interval is None
    random, hits = np.random.default_rng(2), 0
    levels = np.linspace(0.3, 0.9, 8)
    # What the interquartile mean of very many runs on these settings is
    many = np.concatenate([random.normal(level, 0.02, 4000) for level in levels])
    truth = trim_mean(many, 0.25)
    for _ in range(50):
        found = interquartile_mean([random.normal(level, 0.02, 10) for level in levels])
        hits += found.interval[0] <= truth <= found.interval[1]
    assert 0.85 <= hits / 50 <= 1.0


def test_the_profile_is_the_share_of_settings_within_a_gap():
    scores = np.array([[0.9, 0.89, 0.5], [0.8, 0.7, 0.81]])
    found = performance_profile(scores, np.array([0.0, EQUIVALENT, 0.5]))
    assert found.tolist() == [[0.5, 0.0, 0.5], [1.0, 0.5, 0.5], [1.0, 1.0, 1.0]]


def test_all_forms_have_the_two_questions(tmp_path):
    table, _ = write_runs(tmp_path)
    page = page_data.tests(table)
    forms = [tables.to_terminal(table), tested.markdown(table), tested.latex(table), page]
    for words in ("better on these settings", "better on a new setting", "interquartile mean"):
        assert all(words in form for form in forms)
    assert 'id="fig-profiles"' in page and "var(--c0)" in page
    said = tested.write_paragraph(table)
    assert "over these 6 settings" in said and "On a new setting" in said
    frame = Results(tmp_path).table()
    alone = {"iqm", "better_here", "better_anywhere", "equal_anywhere"}
    assert alone < set(frame) and frame.groupby("method").iqm.nunique().eq(1).all()
    lines = list(csv.DictReader(io.StringIO(table_files.to_csv(table))))
    assert [float(line["iqm"]) for line in lines] == pytest.approx(frame.iqm.tolist())
    assert {line["better_here"] == "" for line in lines} == {True, False}
    one, _ = write_runs(tmp_path / "one", data=("digits",))
    assert not alone & set(Results(tmp_path / "one").table())
    assert "better on" not in tables.to_terminal(one) and compare_over_settings(one) is None


def test_a_method_that_lacks_a_setting_has_no_place_over_the_settings(tmp_path):
    write_runs(tmp_path)
    store = Store(tmp_path)
    record, arrays = store.read("ocfl-d0-1")
    store.write("ocfl-d0-1", record | {"status": "diverged"}, arrays)
    over = compare_over_settings(make_table(collect([tmp_path])))
    assert [method.name for method in over.methods] == ["IFCA", "FedAvg", "Local only"]
    assert sum(row is None for row in over.rows) == 6
    frame = Results(tmp_path).table().set_index("method")
    assert frame.loc["ocfl"].iqm.isna().all() and frame.loc["fedavg"].iqm.notna().all()


def test_the_picture_has_the_best_methods_and_stays_inside(tmp_path):
    methods = {f"m{i}": 0.3 + i / 20 for i in range(MAX_DRAWN_PROFILES + 2)}
    table, _ = write_runs(tmp_path, methods, DATA[:3], seeds=1)
    drawn = picture(compare_over_settings(table))
    assert {stroke.colour for stroke in drawn.strokes} == {None, *range(MAX_DRAWN_PROFILES)}
    assert sum(word.text.startswith("m") for word in drawn.words) == MAX_DRAWN_PROFILES
    assert any(word.text == "the best 8 of 10" for word in drawn.words)
    assert all(0 < s.y2 < drawn.height and s.x2 > 0 for s in drawn.strokes)


def test_json_has_the_numbers_of_the_table(tmp_path, capsys):
    write_runs(tmp_path)
    flags = command.parser().parse_args([str(tmp_path), "--json", "--no-figures"])
    assert command.run(flags) == 0
    printed = capsys.readouterr().out
    assert '"better_anywhere"' in printed and '"accuracy_last_p_raw"' in printed
