"""Progress, in a terminal and elsewhere."""

import io
import os
import pty
import subprocess
import sys
import termios
import threading

from cfljax.launch import progress
from cfljax.launch.progress import Progress, format_seconds
from tests.patience import PATIENCE

SHOW = """
from cfljax.launch.progress import Progress
with Progress(20, 2, lines=2) as p:
    p.start("fedavg (seed 0)", 10, line=0)
    p.start("ifca (seed 1)", 10, line=1)
    for i in range(10):
        p.update(1, i / 10, line=i % 2)
    p.finish("done")
    p.say("a word in between")
"""


def in_terminal(rows, columns):
    """What a process shows on a terminal of that size."""
    main, side = pty.openpty()
    termios.tcsetwinsize(side, (rows, columns))
    process = subprocess.Popen([sys.executable, "-c", SHOW], stderr=side, stdout=side, stdin=side)
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
    assert process.wait(PATIENCE) == 0
    reader.join(PATIENCE)
    return seen.decode()


def test_a_terminal_shows_a_line_per_batch_and_one_for_the_sweep():
    shown = in_terminal(40, 110)
    assert "fedavg (seed 0)" in shown and "ifca (seed 1)" in shown and "sweep" in shown
    assert (
        "accuracy 0." in shown
        and "1 done, 1 to do" in shown
        and "left" in shown
        and "a word in between" in shown
    )


def test_a_terminal_without_room_gets_plain_lines():
    assert in_terminal(2, 30).split("\r\n")[:2] == [
        "compiling fedavg (seed 0)",
        "a word in between",
    ]


def test_elsewhere_plain_lines_every_few_seconds(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with Progress(100, 2, stream=out) as bar:
        bar.start("fedavg (seed 0)", 50)
        for _ in range(10):
            now[0] += 2
            bar.update(5, 0.5)
        bar.finish("diverged")
    lines = out.getvalue().splitlines()
    assert len(lines) == 4 and lines[0] == "compiling fedavg (seed 0)"
    assert lines[-1].startswith(
        "45/100 rounds, runs: 0 done, 2 to do, about 0:22 left; fedavg (seed 0), accuracy 0.500"
    )


def test_compiling_counts_as_no_speed_but_as_time_that_other_programs_take(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def after(seconds, do, *arguments, **more):
        now[0] += seconds
        do(*arguments, **more)
        return bar.estimate_left()

    bar = Progress(400, 4, quiet=True, lines=2, programs=4)
    bar.start("a", 100), bar.start("b", 100, line=1)
    assert after(60, bar.update, 0) == after(2, bar.update, 0, line=1) == "?"
    assert (
        after(2, bar.update, 10) == "2:19"
    )  # 390 rounds of 0.4 s and two programs of 61 s, by two processes


def test_the_result_of_the_first_run_that_is_done_is_shown_at_once():
    out = io.StringIO()
    with Progress(10, 3, stream=out) as bar:
        bar.start("a", 10), bar.start("b", 10)
        (
            bar.finish("diverged", "none"),
            bar.finish("done", "b: accuracy 0.5"),
            bar.finish("done", "c: accuracy 0.6"),
        )
    assert out.getvalue().splitlines() == ["compiling a", "first of 3 runs: b: accuracy 0.5"]


def test_quiet_says_only_what_is_said():
    out = io.StringIO()
    with Progress(10, 1, quiet=True, stream=out) as bar:
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
