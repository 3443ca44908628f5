"""Progress: a display in a terminal and in a notebook, plain lines elsewhere, and the time left."""

import io
import os
import pty
import re
import subprocess
import sys
import termios
import threading
from types import SimpleNamespace

import pytest

from cfljax.launch import display, progress
from cfljax.launch.progress import Progress, format_seconds
from cfljax.launch.time_left import Line, Seen, Work
from tests.patience import PATIENCE

SHOW = """
from cfljax.launch import progress
from cfljax.launch.progress import Progress
from cfljax.launch.time_left import Work
progress.REFRESH_SECONDS = 0.0
with Progress(Work({"fedavg": 10, "ifca": 10}, runs=2, before=3, batches=2), lines=2) as p:
    progress.REFRESH_SECONDS = 60.0
    p.start("fedavg (seed 0)", 10, "fedavg", 0)
    p.start("ifca (seed 1)", 10, "ifca", 1)
    for i in range(10):
        p.update(1, i / 10, line=0)
    p.finish("done")
    p.say("a word in between")
    END
"""


def in_terminal(rows, columns, end="", code=0, **environment):
    """What a process shows on a terminal of that size."""
    main, side = pty.openpty()
    termios.tcsetwinsize(side, (rows, columns))
    process = subprocess.Popen(
        [sys.executable, "-c", SHOW.replace("END", end)],
        stderr=side,
        stdout=side,
        stdin=side,
        env=os.environ | {"TERM": "xterm", **environment},
    )
    os.close(side)
    seen = bytearray()

    def read():
        try:
            while part := os.read(main, 4096):
                seen.extend(part)
        except OSError:
            pass

    reader = threading.Thread(target=read)
    reader.start()
    assert process.wait(PATIENCE) == code
    reader.join(PATIENCE)
    return seen.decode()


def replay(shown):
    """The lines of a terminal after it has got these bytes. It knows what a display uses."""
    lines, at = [""], 0
    for part in re.findall(r"\x1b\[\d*[AJ]|\r\n|\r|[^\x1b\r]+", shown):
        if part.endswith("A"):
            at -= int(part[2:-1])
            assert at >= 0, "above what was shown"
        elif part.endswith("J"):
            lines = [*lines[:at], ""]
        elif part == "\r\n":
            at += 1
            lines += [""] * (at + 1 - len(lines))
        elif part != "\r":
            lines[at] = part
    return lines


def test_a_terminal_shows_a_line_per_batch_and_one_for_everything_in_place():
    shown = in_terminal(40, 110, "os_exit = __import__('os')._exit; os_exit(0)")
    *lines, below = replay(shown)
    assert below == "" and lines[0] == "a word in between" and len(lines) == 4
    assert lines[1].startswith("fedavg (seed 0) ") and "10/10 rounds, accuracy 0.900" in lines[1]
    assert lines[2].startswith("ifca (seed 1) ") and "compiling, 0:0" in lines[2]
    assert lines[3].startswith("4 of 5 runs (3 before)  ██████████░░░░░░░░░░   50 %, 0:0")
    assert re.search(r"about \d+:\d\d left$", lines[3])


def test_it_leaves_the_terminal_as_it_was_also_after_ctrl_c():
    assert replay(in_terminal(40, 110)) == ["a word in between", ""]
    stopped = replay(in_terminal(40, 110, "raise SystemExit(130)", code=130))
    assert stopped == ["a word in between", ""]


def test_what_others_print_stays_above_it():
    others = "print('one', 2); print('a long line' * 3, end=''); os = __import__('os')"
    lines = replay(in_terminal(40, 110, f"{others}; os._exit(0)"))
    assert lines[:2] == ["a word in between", "one 2"] and lines[2].startswith("fedavg (seed 0)")
    # The end of a line that has none comes at the end
    done = replay(in_terminal(40, 110, others))
    assert done == ["a word in between", "one 2", "a long line" * 3]


def test_a_low_terminal_shows_the_batches_that_fit():
    below = replay(in_terminal(5, 70, "__import__('os')._exit(0)"))
    assert below[1].startswith("fedavg (seed 0) ") and below[2] == "and 1 more"
    assert max(map(len, below)) < 70


@pytest.mark.parametrize(
    ("rows", "columns", "environment"),
    [(2, 110, {}), (40, 30, {}), (40, 110, {"TERM": "dumb"}), (40, 110, {"JPY_PARENT_PID": "1"})],
)
def test_a_terminal_without_room_or_movement_gets_plain_lines(rows, columns, environment):
    shown = in_terminal(rows, columns, **environment)
    assert shown.split("\r\n")[:2] == ["compiling fedavg (seed 0)", "a word in between"]
    assert "\x1b" not in shown


@pytest.fixture
def clock(monkeypatch):
    """The seconds of a clock that stands still; nothing is shown by itself."""
    now = [0.0]
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 1000.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_elsewhere_plain_lines_every_few_seconds_and_rarely_after_hours(clock):
    out = io.StringIO()
    with Progress(Work({"fedavg": 100}, runs=2, before=1, batches=2), stream=out) as bar:
        bar.start("fedavg (seed 0)", 50, "fedavg")
        for _ in range(10):
            clock[0] += 2
            bar.update(5, 0.5)
        bar.finish("diverged")
        lines = out.getvalue().splitlines()
        assert lines[0] == "compiling fedavg (seed 0)" and len(lines) == 4
        # 55 rounds of 0.4 s, and another batch
        assert lines[-1].startswith("1 of 3 runs (1 before), 45 of 100 rounds, about 0:22 left; ")
        assert lines[-1].endswith("fedavg (seed 0) 45/50 rounds, accuracy 0.500")
        clock[0] += 5
        bar.refresh()
        assert out.getvalue().splitlines()[-1].startswith("2 of 3 runs (1 before), 1 diverged, 50")
        clock[0] = 36_000
        bar.refresh()
        for _ in range(11):
            clock[0] += 10
            bar.refresh()
    assert len(out.getvalue().splitlines()) == 7


def test_compiling_is_named_until_the_first_round(clock):
    out = io.StringIO()
    with Progress(Work({"a": 10}), stream=out) as bar:
        bar.start("a", 10)
        clock[0] += 70
        bar.refresh()
    assert out.getvalue().splitlines()[-1] == "0 of 10 rounds; a compiling, 1:10"


def test_a_notebook_has_one_output_that_is_replaced(clock, monkeypatch):
    outputs, shown = {}, []

    def show(data, raw, display_id, update=False):
        assert raw and update == (display_id in outputs)
        outputs[display_id] = data
        shown.append(data["text/plain"])

    kernel = SimpleNamespace(kernel=object())
    cell = SimpleNamespace(get_ipython=lambda: kernel, display=SimpleNamespace(display=show))
    monkeypatch.setitem(sys.modules, "IPython", cell)
    with Progress(Work({"<b>": 10}, runs=1)) as bar:
        bar.start("<b>", 10)
        clock[0] += 600
        bar.update(0)
        clock[0] += 600
        bar.update(4, 0.25)
        assert shown[-1].splitlines()[0].endswith("4/10 rounds, accuracy 0.250")
        bar.say("a warning")
        bar.finish("done", "accuracy 0.5")
    (last,) = outputs.values()
    assert last["text/plain"] == "a warning\naccuracy 0.5\n1 of 1 runs in 20:00"
    assert "&lt;b&gt;" not in last["text/html"] and len(shown) > 3
    # IPython in a terminal has a terminal's display, and a stream that was asked for is used
    assert isinstance(display.find_display(sys.stderr, False), display.Notebook)
    assert display.find_display(io.StringIO(), True) is None
    kernel.kernel = None
    assert display.find_notebook() is None


def test_the_time_left_counts_each_method_at_its_own_speed():
    seen = Seen()
    assert seen.estimate([Work({"a": 10})], [], 0.0, 1) is None
    seen.add_rounds("slow", 10, 20.0)
    seen.add_rounds("fast", 10, 1.0)
    work = Work({"slow": 100, "fast": 100}, batches=0)
    assert seen.estimate([work], [], 0.0, 1) == pytest.approx(210)
    # A method that was not seen yet has the mean speed of a round
    assert seen.estimate([Work({"new": 100}, batches=0)], [], 0.0, 1) == pytest.approx(105)


def test_what_other_programs_take_to_compile_is_part_of_the_time_left(clock):
    def after(seconds, do, *arguments, **more):
        clock[0] += seconds
        do(*arguments, **more)
        return bar.seconds_left()

    work = Work(dict.fromkeys("abcd", 100), runs=4, batches=4)
    bar = Progress(work, quiet=True, lines=2)
    bar.start("a", 100), bar.start("b", 100, line=1)
    assert after(60, bar.update, 0) is after(2, bar.update, 0, line=1) is None
    # 390 rounds of 0.4 s and two programs of 61 s, by two processes
    assert after(2, bar.update, 10) == pytest.approx((390 * 0.4 + 2 * 61) / 2)


def test_a_batch_of_a_label_that_was_compiled_begins_sooner():
    seen = Seen()
    for since, now in ((0.0, 30.0), (30.0, 32.0), (32.0, 36.0)):
        seen.add_beginning("a", since, now)
    seen.add_rounds("a", 1, 1.0)
    # Three more batches of it, and one of another label: 3 · 3 s + 30 s
    work = Work({"a": 30, "b": 10}, batches=4)
    assert seen.estimate([work], [], 0.0, 1) == pytest.approx(40 + 9 + 30)
    # One of them compiles since 10 s
    compiling = Line("b (seed 0)", "b", 10, 0, since=90.0)
    assert seen.estimate([work._replace(batches=3)], [compiling], 100.0, 1) == pytest.approx(
        40 + 9 + 20
    )


def test_batches_that_compile_side_by_side_all_count_as_first_ones():
    seen = Seen()
    for since, now in ((0.0, 30.0), (1.0, 31.0), (30.0, 31.0)):
        seen.add_beginning("a", since, now)
    assert (seen.first, seen.later) == ([30.0, 30.0], [1.0])


def test_the_last_batch_alone_has_no_help():
    seen = Seen()
    seen.add_rounds("a", 1, 1.0)
    last = Line("a", "a", 100, 40, 0.0, ready=True)
    assert seen.estimate([Work({"a": 60}, batches=0)], [last], 0.0, 8) == pytest.approx(60)
    two = [last, last._replace(done=98)]
    assert seen.estimate([Work({"a": 62}, batches=0)], two, 0.0, 8) == pytest.approx(60)


def test_a_search_counts_the_phases_to_come(clock):
    out = io.StringIO()
    with Progress(stream=out) as bar:
        rung = Work({"a": 20}, name="rung 1 of 2: 4 settings to round 5", batches=4)
        bar.enter(rung, [Work({"a": 10}, name="rung 2 of 2", batches=1), Work({"a": 50}, 5)])
        clock[0] += 3
        bar.start("a", 5)
        clock[0] += 4
        bar.update(0)
        clock[0] += 5
        bar.update(5)
        # 75 rounds of a second, and two starts of processes, of 3 s each
        assert bar.seconds_left() == pytest.approx(75 + 2 * 3)
        assert bar.done == 5 and bar.total == 80
        bar.enter(Work({"a": 50}, 5, name="best settings"), lines=2)
        assert bar.done == 5 and bar.total == 55
    lines = out.getvalue().splitlines()
    assert lines[0] == rung.name and lines[-1] == "best settings"
    assert f"{rung.name}, 5 of 80 rounds, about 1:21 left; a 5/5 rounds" in lines


def test_the_result_of_the_first_run_that_is_done_is_shown_at_once(clock):
    out = io.StringIO()
    with Progress(Work({"a": 10, "b": 20}, runs=3), stream=out) as bar:
        bar.start("a", 10), bar.start("b", 10)
        (
            bar.finish("diverged", "none"),
            bar.finish("done", "b: accuracy 0.5"),
            bar.finish("done", "c: accuracy 0.6"),
        )
    assert out.getvalue().splitlines() == ["compiling a", "first of 3 runs: b: accuracy 0.5"]


def test_quiet_says_only_what_is_said():
    out = io.StringIO()
    with Progress(Work({"x": 10}, runs=1), quiet=True, stream=out) as bar:
        bar.start("x", 10)
        bar.update(10), bar.finish("done", "x: accuracy 0.5")
        bar.say("but this")
    assert out.getvalue() == "but this\n"


def test_clock():
    assert [format_seconds(s) for s in (5, 65, 3700)] == ["0:05", "1:05", "1:01:40"]


def test_a_worker_whose_watcher_was_killed_ends_and_blames_no_run():
    program = (
        "import time\nfrom cfljax.launch.workers import RelayedProgress\ntold = "
        "RelayedProgress('word')\n"
    )
    program += "while True:\n    told.update(1, 0.5)\n    time.sleep(0.01)"
    worker = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert worker.stdout.readline() == 'word["update", 1, 0.5]\n'
    worker.stdout.close()
    assert worker.wait(PATIENCE) == 1
    assert worker.stderr.read() == ""
