"""Traces of devices: made ones, and those of phones from a file of FLASH."""

import json

import numpy as np
import pytest

from cfljax.errors import DataError
from cfljax.federation.traces import read_trace
from experiments.device_traces import (
    DAY,
    GENERATED,
    HOUR,
    Line,
    format_csv,
    generate_trace,
    main,
    sample_phones,
)

EVENTS = """2020-01-01 22:00:00\tWifi
2020-01-01 22:10:00\tbattery_charged_on
2020-01-01 22:10:00\t55.0%
2020-01-01 23:00:00\tscreen_off
2020-01-01 23:00:05\tscreen_lock
2020-01-02 06:00:00\tscreen_unlock
2020-01-02 06:00:09\tscreen_lock
2020-01-02 06:00:09\t4G
2020-01-02 07:00:00\twifi
2020-01-02 07:30:00\tbattery_charged_off
"""


def phones(tmp_path, **more):
    file = tmp_path / "state_traces.json"
    file.write_text(
        json.dumps(
            {"a": {"model": "x", "messages": EVENTS}}
            | {k: {"messages": v} for k, v in more.items()}
        )
    )
    return file


def at(lines, client, second):
    """What a client's trace says then."""
    held = [line for line in lines if line.client == client and line.second <= second]
    return max(held, key=lambda line: line.second)


@pytest.mark.parametrize("kind", GENERATED)
def test_made_traces_are_read_as_they_were_made(kind, tmp_path):
    lines = generate_trace(kind, 7, 3, seed=1)
    assert lines == generate_trace(kind, 7, 3, seed=1) != generate_trace(kind, 7, 3, seed=2)
    (tmp_path / "t.csv").write_text(format_csv(lines, 0.5))
    read = read_trace(str(tmp_path / "t.csv"))
    assert read.by_seconds and read.client.tolist() == [line.client for line in lines]
    np.testing.assert_allclose(read.time, [0.5 * line.second for line in lines])
    assert read.available.tolist() == [
        line.available for line in lines
    ] and read.speed.tolist() == [line.speed for line in lines]
    for client in range(7):
        times = [line.second for line in lines if line.client == client]
        assert times[0] == 0 and times == sorted(set(times)) and times[-1] < 3 * DAY


def test_phones_charge_for_a_third_of_the_day_each_in_its_own_zone():
    lines = generate_trace("nights", 200, 10, seed=0)
    grid = np.arange(0, 10 * DAY, HOUR)
    there = np.array(
        [[at(lines, client, second).available for second in grid] for client in range(20)]
    )
    assert 0.2 < there.mean() < 0.4
    by_hour = there.reshape(20, 10, 24).mean(axis=1)
    assert len(set(by_hour.argmax(axis=1).tolist())) > 5 and (by_hour.max(axis=1) > 0.6).all()
    first = [line for line in lines if line.second == 0]
    assert 0.15 < np.mean([line.available for line in first]) < 0.45, "some begin in the night"


def test_a_phone_is_available_while_it_charges_in_a_wlan_and_is_locked(tmp_path):
    hour = 3600
    assert sample_phones(phones(tmp_path), 1, 0) == [
        Line(0, 0.0, False, 1.0),
        Line(0, 22 * hour, False, 1.0),
        Line(0, 23 * hour + 5, True, 1.0),
        Line(0, 30 * hour, False, 1.0),
        Line(0, 31 * hour, True, 1.0),
        Line(0, 31.5 * hour, False, 1.0),
    ]


def test_phones_without_use_are_left_out_and_others_drawn(tmp_path):
    never, broken, back = (
        EVENTS.replace("wifi", "3g").replace("Wifi", "3G"), "2020-01-01\tnoise\n", "\n".join(EVENTS.splitlines()[::-1]),
    )  # fmt: skip
    file = phones(
        tmp_path,
        never=never,
        broken=broken,
        back=back,
        other=EVENTS.replace("2020-01-0", "2020-02-1"),
    )
    lines = sample_phones(file, 2, 0)
    late = 1 if at(lines, 0, 23.5 * 3600).available else 0
    assert [line for line in lines if line.client == late][1].second == 41 * DAY + 22 * 3600
    assert {sample_phones(file, 1, seed)[1].second for seed in range(8)} == {22 * 3600.0}
    with pytest.raises(
        DataError, match=r"2 of 5 phones are ever available; give --clients 2 or fewer"
    ):
        sample_phones(file, 3, 0)


def test_the_program_writes_a_trace_that_a_run_takes(tmp_path, capsys):
    file = tmp_path / "t.csv"
    main(
        [
            "nights",
            "--clients",
            "6",
            "--day",
            "10",
            "--days",
            "2",
            "--seed",
            "3",
            "--out",
            str(file),
        ]
    )
    assert "6 devices" in capsys.readouterr().out and read_trace(str(file)).time.max() < 20
    main([str(phones(tmp_path)), "--clients", "1", "--out", str(file)])
    for wrong in (["--day", "0"], ["--day", "nan"]):
        with pytest.raises(SystemExit):
            main(["warm", "--clients", "2", "--out", str(file), *wrong])
        assert "--day" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="device_traces: .*nowhere.json: cannot be read"):
        main([str(tmp_path / "nowhere.json"), "--clients", "2", "--out", str(file)])
