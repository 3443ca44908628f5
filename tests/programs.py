"""Count the programs that each test function compiles, and limit them: compiling is five sixths of
the suite's time, spent once a program, however small.

A program is counted when XLA is asked for it, also when the persistent cache has it: tracing and
lowering take nearly as long. The parameters of a function count together, with the fixtures that
they are the first to use; those of the contract, which are methods, count one by one. Long tests
do not count.

`programs.txt` lists the functions that may need more than the limit. It only shrinks: `pytest
--count-programs` counts each file from scratch, and lowers the numbers or removes the lines; if
there is no list, it writes the first one. Without a list, and with another version of JAX than the
one that it was counted with, nothing is refused.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path

import jax
import pytest

from cfljax.devices import compiled

LIMIT = 6
"""How many programs a function may need that is not listed."""
ROUNDED = 5
"""Numbers in the list are multiples of this, so that a program more or less changes no line."""
LIST = Path(__file__).with_name("programs.txt")
COMPILED = "/jax/core/compile/backend_compile_duration"
SHOWN = 10


def function_of(nodeid):
    """The name of a test without its parameters."""
    return nodeid.partition("[")[0]


def read_list(path=LIST):
    """(version of JAX that the numbers are for, {function: number}); None, None: there is no
    list."""
    if not path.exists():
        return None, None
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split(maxsplit=1) for line in lines]
    return first.rpartition(" ")[2], {name: int(number) for number, name in rows}


def write_list(allowed, path=LIST):
    """Write the numbers of the functions that may need more than the limit."""
    lines = [f"{number:4} {name}\n" for name, number in sorted(allowed.items())]
    path.write_text(f"# jax {jax.__version__}\n" + "".join(lines), encoding="utf-8")


def lowered(allowed, needed, whole):
    """The list after a count: each number as it is or lower, without the functions that no longer
    need more than the limit or are gone.

    Args:
        allowed: {function: number} of the list; None: there is none yet.
        needed: {function: number} of the count.
        whole: The folders of which all tests were counted; the lines of the others stay.
    """
    counted = {
        name: -(-number // ROUNDED) * ROUNDED for name, number in needed.items() if number > LIMIT
    }
    if allowed is None:
        return counted
    folders = tuple(f"{folder}/" for folder in whole)
    others = {
        name: number
        for name, number in allowed.items()
        if name not in needed and not name.startswith(folders)
    }
    return others | {name: min(allowed[name], counted[name]) for name in counted.keys() & allowed}


def needed_by(programs, alone):
    """{function: programs} from {test: programs}: their sum, or where `alone(test)` is true the
    largest."""
    needed = Counter()
    for nodeid, number in programs.items():
        name = function_of(nodeid)
        needed[name] = max(needed[name], number) if alone(nodeid) else needed[name] + number
    return needed


def exceeding(allowed, needed):
    """A line for each function that needs more than it may: {function: number} each.

    What ran before in the same process moves the number of a function by a few programs, so only
    one that is half above its number, and more than a handful, is a fault."""
    return [
        f"{name}: {number} programs, {allowed.get(name, LIMIT)} allowed"
        for name, number in needed.items()
        if number > allowed.get(name, LIMIT) + max(LIMIT, allowed.get(name, LIMIT) // 2)
    ]


class Programs:
    """A plug-in of pytest, in the processes that run tests and in the one that shares them out.

    Args:
        config: Pytest's.
        alone: Whether this test is counted by itself, and not with the function's other parameters.
        group_of: What tests belong together: each group is counted from scratch if asked for.
    """

    def __init__(self, config, alone, group_of):
        self.config, self.alone, self.group_of = config, alone, group_of
        self.count, self.group = 0, None
        self.programs, self.seconds = Counter(), defaultdict(float)
        self.version, self.allowed = read_list()
        jax.monitoring.register_event_duration_secs_listener(self.hear)

    def hear(self, event, duration, **about):
        self.count += event == COMPILED

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        group = self.group_of(item.nodeid)
        if self.config.getoption("--count-programs") and group != self.group:
            compiled.forget()
            jax.clear_caches()
        self.group = group
        count, seconds = self.count, sum(os.times()[:4])
        try:
            return (yield)
        finally:
            if not item.get_closest_marker("long"):
                self.programs[item.nodeid] += self.count - count
                self.seconds[function_of(item.nodeid)] += sum(os.times()[:4]) - seconds

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Take what a process of pytest-xdist sends at its end."""
        programs, seconds = getattr(node, "workeroutput", {}).get("programs", ({}, {}))
        self.programs.update(programs)
        for name, more in seconds.items():
            self.seconds[name] += more

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["programs"] = dict(self.programs), dict(self.seconds)
        elif self.faults() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def whole_folders(self):
        """The folders whose tests are all run: the configured ones, unless some tests are named."""
        named = self.config.args_source != pytest.Config.ArgsSource.TESTPATHS
        return [] if named else self.config.getini("testpaths")

    def faults(self):
        """The functions that compiled more than they may, of a run of the whole suite. Where only
        some tests are run, one may be the first to use what another has made, or need a package
        that README's test command does not install; so may one whose file is dealt to several
        processes, as it happens; and another version of JAX makes other programs."""
        option = self.config.option
        some = bool(option.keyword) or getattr(option, "lf", False)
        some |= option.dist not in ("no", "loadfile")
        if not self.whole_folders() or some or self.version != jax.__version__:
            return []
        return exceeding(self.allowed, needed_by(self.programs, self.alone))

    def pytest_terminal_summary(self, terminalreporter):
        needed = needed_by(self.programs, self.alone)
        terminalreporter.section(f"{sum(self.programs.values())} programs compiled")
        for name in sorted(self.seconds, key=self.seconds.__getitem__, reverse=True)[:SHOWN]:
            terminalreporter.line(f"{self.seconds[name]:6.1f} CPU s {needed[name]:4} {name}")
        for fault in self.faults():
            terminalreporter.line(f"too many: {fault}", red=True)
        if self.config.getoption("--count-programs"):
            write_list(lowered(self.allowed, needed, self.whole_folders()))
            terminalreporter.line(f"written: {LIST}")
