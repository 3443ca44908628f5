"""The page while a sweep is being computed."""

import json

import pytest

from cfljax.commands import cli, format_link
from cfljax.report import live, write
from cfljax.report.page import page as page_of
from cfljax.report.report_data import read
from cfljax.results.result import Results
from cfljax.store import Store, count_busy_seconds
from tests.report import synthetic

REFRESH = 'http-equiv="refresh"'


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The page of a folder, and the seconds that a clock shows."""
    synthetic.everything(tmp_path / "a")
    clock = [100.0]
    monkeypatch.setattr("cfljax.report.write.time.monotonic", lambda: clock[0])
    return write.LivePage(tmp_path / "a", Store(tmp_path / "a").read_plan(), None, False), clock


def test_it_is_written_at_once_and_then_every_ten_seconds(page):
    page, clock = page
    assert REFRESH in page.path.read_text()
    page.path.unlink()
    clock[0] += 9
    page.write()
    assert not page.path.exists()
    clock[0] += 2
    page.write()
    assert REFRESH in page.path.read_text()
    write.report(page.folder)
    assert REFRESH not in page.path.read_text()


def test_what_it_costs_is_bounded_and_an_error_is_no_error_of_the_sweep(page, monkeypatch):
    page, clock = page

    def slow(*_, **__):
        clock[0] += 4
        raise ValueError("a page that cannot be written")

    monkeypatch.setattr("cfljax.report.write.write", slow)
    clock[0] += 11
    page.write()
    assert page.next == clock[0] + 50 * 4


def test_a_sweep_writes_it_as_runs_end_and_leaves_a_finished_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cfljax.report.write.REWRITE_SECONDS", 0.0)
    seen, whole = [], write.page
    monkeypatch.setattr(
        "cfljax.report.write.page",
        lambda data, live: seen.append((len(data.table), live)) or whole(data, live),
    )
    monkeypatch.setattr(
        "cfljax.report.write.webbrowser.open_new_tab", lambda address: seen.append(address) or False
    )
    flags = ["method=fedavg,local", "train.rounds=1", "seeds=0:1", "data.clients=4"]
    sets = [word for flag in flags for word in ("--set", flag)]
    assert cli.main(["sweep", *sets, "--out", "r", "--workers", "1", "--open", "--quiet"]) == 0
    assert seen[0][0] == 0 and seen[0][1].state == "0 of 2 runs" and seen[0][1].share == 0
    assert seen[1].startswith("file://") and seen[-1] == (2, None)
    states = [live.state for _, live in seen[2:-1]]
    assert any(state.startswith("1 of 2 runs") for state in states)
    shares = [live.share for _, live in seen[2:-1]]
    assert shares == sorted(shares) and shares[-1] > 0
    assert {label for _, live in seen[2:-1] for label in live.running} <= {"fedavg", "local"}
    text = (tmp_path / "r" / "report" / "index.html").read_text()
    said = capsys.readouterr()
    assert "cfljax sweep --out r" in text and "train.rounds=1" in text and " UTC</dd>" in text
    assert (
        "Report: r/report/index.html" in said.out
        and "\033" not in said.out
        and "no browser" in said.err
    )


PLAN = {"fedavg": [0.1, 0.1], "ifca": [0.1, 0.2], "fesem": [0.1, 0.1]}


@pytest.fixture
def half(tmp_path):
    """A report's data and how far its sweep is: two methods of three are computed, with five seeds
    of six. Of one of them, one of two settings."""
    store = Store(tmp_path / "a")
    labels = []
    for label, rates in PLAN.items():
        units = [f"{label}-{rate}-{seed}" for rate in dict.fromkeys(rates) for seed in range(6)]
        varies = [{"train.lr": rate} for rate in dict.fromkeys(rates) for _ in range(6)]
        labels.append({"label": label, "units": units, "varies": varies})
        for unit in units[: 0 if label == "fesem" else 5]:
            level = {"fedavg": 0.3, "ifca": 0.8}[label]
            synthetic.add(store, unit, int(unit[-1]), level, method=label, varies={"train.lr": 0.1})
    sweep = {
        "name": "half",
        "units": [unit for each in labels for unit in each["units"]],
        "labels": labels,
    }
    data = read([Results(tmp_path / "a", sweep=sweep)])
    return data, live.start_live(sweep, data.collected)


def test_nothing_is_tested_or_ranked_before_the_end(half):
    data, now = half
    finished = page_of(data)
    assert "For a paper" in finished and "class=best" in finished and "Best accuracy" in finished
    running = page_of(data, now)
    for word in ("For a paper", "class=best", "≈", "Best accuracy", "Holm", "tests.tex", "Bold:"):
        assert word not in running.partition("<script")[0], word


def test_all_planned_rows_are_there_and_say_what_they_wait_for(half):
    data, now = half
    assert now.state == "10 of 24 runs" and now.share == 10 / 24
    names = [(planned.name, len(planned.units)) for planned in now.planned]
    assert names == [("FedAvg", 6), ("IFCA lr=0.1", 6), ("IFCA lr=0.2", 6), ("FeSEM", 6)]
    waiting = live.list_waiting(now._replace(running=frozenset({"fesem"})), data.table)
    assert [(p.name, doing) for p, doing in waiting] == [
        ("IFCA lr=0.2", "waiting"),
        ("FeSEM", "running"),
    ]
    assert [live.count_planned(now, row) for row in data.table] == [6, 6]
    text = page_of(data, now)
    assert text.count("5 of 6") == 2 and text.count('<tr class="waiting">') == 2
    assert '<progress max="1" value="0.4167">42 %' in text and "2 of 3" in text


def test_time_is_as_waited(tmp_path):
    store = Store(tmp_path / "a")
    for event, batch, at in (
        ("begin", "x", 0),
        ("begin", "y", 5),
        ("done", "x", 10),
        ("done", "y", 12),
        ("begin", "z", 20),
    ):
        store.log({"event": event, "batch": batch, "time": float(at)})
    with (tmp_path / "a" / "log.jsonl").open("a") as file:
        file.write(json.dumps({"event": "done", "batch": "z", "time": 25.0}) + '\n{"event": "beg')
    assert count_busy_seconds([store]) == 12 + 5


def test_a_path_is_a_link_in_a_terminal_only(tmp_path, monkeypatch):
    assert format_link(tmp_path / "a b") == str(tmp_path / "a b")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert (
        format_link(tmp_path / "a b")
        == f"\033]8;;file://{tmp_path}/a%20b\033\\{tmp_path}/a b\033]8;;\033\\"
    )
