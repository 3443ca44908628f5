"""Data files that mean harm or are badly broken: one line names the file and the place."""

import io
import json
import zipfile

import numpy as np
import pytest

from cfljax import data
from cfljax.data import leaf
from cfljax.errors import DataError
from cfljax.federation.row_files import Dealt, read_rows, write_rows
from tests.federation.helpers import fake, parts
from tests.hostile.bounds import refused


def npz_with(folder, member):
    file = folder / "toy.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x_train.npy", member)
        for name in ("y_train", "x_test", "y_test"):
            out = io.BytesIO()
            np.save(out, np.zeros(2, np.uint8))
            archive.writestr(f"{name}.npy", out.getvalue())
    return file


HEADERS = {
    "an open bracket, found by the fuzzer": "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 2, }",
    "no dictionary": "[1, 2]", "other keys": "{'descr': '|u1'}",
    "a shape of words": "{'descr': '|u1', 'fortran_order': False, 'shape': ('a',)}",
    "a kind that is none": "{'descr': '|q9', 'fortran_order': False, 'shape': (2,)}",
    "a record": "{'descr': [('a', '<f8'), ('a', '<f8')], 'fortran_order': False, 'shape': (2,)}", "null characters": "\0\0\0\0",
    "code": "{'descr': __import__('os').system('false'), 'fortran_order': False, 'shape': (2,)}", "deep": "(" * 900,
}  # fmt: skip


@pytest.mark.parametrize("what", HEADERS)
def test_an_array_header_that_is_none(what, tmp_path):
    text = HEADERS[what].encode("latin-1") + b"\n"
    file = npz_with(
        tmp_path, b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(8)
    )
    message = refused(lambda: data.load("toy", path=str(tmp_path)))
    assert str(file) in message and "x_train" in message


def leaf_file(folder, text):
    for part, content in (("train", text), ("test", '{"users": [], "user_data": {}}')):
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part / "a.json").write_text(content)
    return leaf.read_parts(folder)


ANN = '{"x": [[0.5], [1.0]], "y": [0, 1]}'


def test_a_user_twice_in_one_json_object_is_not_silently_the_last(tmp_path):
    text = f'{{"users": ["ann"], "user_data": {{"ann": {ANN}, "ann": {ANN}}}}}'
    assert "a.json: ann occurs twice" in refused(lambda: leaf_file(tmp_path, text))


def test_fewer_samples_than_num_samples_says_are_noticed(tmp_path):
    text = f'{{"users": ["ann"], "num_samples": [3], "user_data": {{"ann": {ANN}}}}}'
    assert "a.json: num_samples" in refused(lambda: leaf_file(tmp_path, text))
    assert len(leaf_file(tmp_path, text.replace("[3]", "[2]"))[0].y) == 2


MIXED = {
    "numbers and lists": [[1.0, [2.0]], [1.0, 2.0]], "a table": [[1.0, {"a": 2}], [1.0, 2.0]],
    "words later": [[1.0, 2.0], ["one", "two"]], "null": [[1.0, 2.0], [None, 2.0]],
    "an integer without end": [[1.0, 2.0], [10**400, 2.0]], "different lengths": [[1.0], [1.0, 2.0]],
    "deep": json.loads("[" * 80 + "1" + "]" * 80),
}  # fmt: skip


@pytest.mark.parametrize("what", MIXED)
def test_samples_of_mixed_types(what, tmp_path):
    x = MIXED[what]
    body = {"users": ["ann"], "user_data": {"ann": {"x": x, "y": [0] * len(x)}}}
    message = refused(
        lambda: (
            leaf_file(tmp_path / "toy", json.dumps(body)) and data.load("toy", path=str(tmp_path))
        )
    )
    assert str(tmp_path / "toy") in message


@pytest.mark.parametrize("suffix", [".json", ".csv", ".npz"])
def test_a_damaged_file_of_rows_is_read_or_refused_in_a_line(suffix, tmp_path):
    source = fake(200, 40)
    made = parts(
        "rotated" if suffix != ".csv" else "iid",
        source,
        clients=4,
        **({"groups": 2} if suffix != ".csv" else {}),
    )
    file = tmp_path / f"split{suffix}"
    write_rows(file, made, source)
    whole, rng = bytearray(file.read_bytes()), np.random.default_rng(0)
    refusals = 0
    for _ in range(120):
        damaged = bytearray(whole[: rng.integers(1, len(whole) + 1)])
        for at in rng.integers(len(damaged), size=3):
            damaged[at] = rng.integers(256)
        file.write_bytes(damaged)
        try:
            assert isinstance(read_rows(file), Dealt)
        except DataError as error:
            refusals += 1
            assert str(file) in str(error) and "\n" not in str(error)
    assert refusals > 60
