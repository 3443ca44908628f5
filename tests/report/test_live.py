"""The page while a sweep is being computed."""

import json

import pytest

from cfljax.commands import cli, format_link
from cfljax.report import write
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
    assert (
        seen[0] == (0, True)
        and seen[1].startswith("file://")
        and seen[2][1]
        and seen[-1] == (2, False)
    )
    text = (tmp_path / "r" / "report" / "index.html").read_text()
    said = capsys.readouterr()
    assert "cfljax sweep --out r" in text and "train.rounds=1" in text and " UTC</dd>" in text
    assert (
        "Report: r/report/index.html" in said.out
        and "\033" not in said.out
        and "no browser" in said.err
    )


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
