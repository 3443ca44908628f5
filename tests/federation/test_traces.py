"""Traces of availability and speed: what a file may say, and the line for what it may not."""

import numpy as np
import pytest

from cfljax.errors import SpecError
from cfljax.federation.traces import make_devices, read_trace
from tests.reference.clock import trace_at

WRONG = {
    "": r":1: the first line must name client, one of second and round, and available or speed",
    "client,when,speed\n0,0,1\n": r':1: "when" is no column of a trace',
    "client,round,round,speed\n0,0,0,1\n": r':1: there are two columns "round"',
    "client,second,round,speed\n0,0,0,1\n": r":1: the first line must name client, one of second and round",
    "client,second\n0,0\n": r":1: the first line must name .* available or speed",
    "client,round,speed\n": r"has no lines after the names",
    "client,round,speed\n0,0,1\n1,0\n": r":3: has 2 values for 3 columns",
    "client,round,speed\n0,0,fast\n": r":2: speed = fast: must be a number above 0",
    "client,round,speed\n0,0,0\n": r":2: speed = 0: must be a number above 0",
    "client,round,speed\n0,0,inf\n": r":2: speed = inf: must be a number above 0",
    "client,round,speed\n\n-1,0,1\n": r":3: client = -1: must be a whole number from 0",
    "client,round,speed\n0.5,0,1\n": r":2: client = 0.5: must be a whole number from 0",
    "client,round,speed\n0,1.5,1\n": r":2: round = 1.5: must be a whole number from 0",
    "client,second,available\n0,-2,1\n": r":2: second = -2: must be a number from 0",
    "client,second,available\n0,1.7e9,1\n": r":2: second = 1.7e9: must be a number from 0 to 16777215, counted from the start",
    "client,second,available\n0,0,yes\n": r":2: available = yes: must be 1 or 0",
    "client,round,speed\n0,4,1\n1,4,1\n0,4,2\n": r":4: client 0 has another line for round 4",
}


@pytest.mark.parametrize("text", WRONG)
def test_one_line_names_the_file_and_the_line(tmp_path, text):
    file = tmp_path / "wrong.csv"
    file.write_text(text)
    with pytest.raises(
        SpecError, match=r"train.clock.trace: .*wrong\.csv.*" + WRONG[text]
    ) as error:
        read_trace(str(file))
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(SpecError, match=r"none\.csv: cannot be read \(No such file"):
        read_trace(str(tmp_path / "none.csv"))
    (tmp_path / "bytes.csv").write_bytes(b"client,round,speed\n\xff\xfe\n")
    with pytest.raises(SpecError, match="is not a text file in UTF-8"):
        read_trace(str(tmp_path / "bytes.csv"))


def test_a_client_that_the_federation_does_not_have(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("client,round,speed\n3,0,1\n4,0,1\n")
    assert make_devices(5, 0, False, str(file)).factor is not None
    with pytest.raises(SpecError, match=r"trace\.csv:3: client = 4: there are 4 clients, 0 to 3"):
        make_devices(4, 0, False, str(file))


@pytest.mark.parametrize("time", ["second", "round"])
def test_every_moment_is_as_the_lines_say(tmp_path, time):
    rng = np.random.default_rng(1)
    cells = rng.permutation(6 * 20)[:40]
    lines = [
        f"{c // 20},{c % 20},{rng.integers(2)},{rng.uniform(0.1, 2):.3f}" for c in cells
    ]  # in any order
    text = "\n".join([f"client,{time},available,speed", *lines]) + "\n"
    file = tmp_path / "trace.csv"
    file.write_text("\ufeff" + text.replace("\n", "\r\n"), encoding="utf-8")
    devices = make_devices(6, 0, False, str(file))
    assert devices.by_seconds == (time == "second")
    for now in range(21):
        row = int(np.searchsorted(devices.times, np.float32(now), side="right")) - 1
        for client in range(6):
            there, factor = trace_at(text, client, now)
            assert devices.available[row, client] == there
            assert devices.factor[row, client] == np.float32(factor)


def test_devices_follow_the_seed_of_the_data():
    paces = [np.asarray(make_devices(2000, seed, False, None).pace) for seed in (0, 0, 1)]
    assert (paces[0] == paces[1]).all() and (paces[0] != paces[2]).all()
    assert abs(paces[0].mean()) < 0.1 and abs(paces[0].std() - 1) < 0.1
    assert not np.asarray(make_devices(5, 0, True, None).pace).any()
