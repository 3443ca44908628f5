"""Downloads against a server of our own: whole, cut off, wrong."""

import functools
import hashlib
import http.server
import threading

import pytest

from cfljax.data import prepare
from cfljax.data.prepare import fetch
from cfljax.errors import DataError
from tests.importing.helpers import main

CONTENT = bytes(range(256)) * 9000


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, or some of it."""

    def __init__(self, asked, mood, *args):
        self.asked, self.mood = asked, mood
        super().__init__(*args)

    def do_GET(self):
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: self.mood["stop"]])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    asked, mood = [], {"stop": None}
    made = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, asked, mood)
    )
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_port}/file", asked, mood
    made.shutdown()


def fine(part):
    assert part.read_bytes() == CONTENT


def wrong(_):
    raise DataError("wrong")


def test_what_is_cut_off_or_wrong_is_thrown_away(server, tmp_path):
    url, _, mood = server
    mood["stop"] = 1_000_000
    with pytest.raises(OSError, match="the connection ended 1304000 bytes early"):
        fetch(url, tmp_path / "f", fine)
    mood["stop"] = None
    with pytest.raises(DataError, match="wrong"):
        fetch(url, tmp_path / "f", wrong)
    assert list(tmp_path.iterdir()) == []
    fetch(url, tmp_path / "f", fine)
    assert (tmp_path / "f").read_bytes() == CONTENT and [p.name for p in tmp_path.iterdir()] == [
        "f"
    ]


def test_a_known_set_is_prepared_and_compared_with_its_checksum(server, tmp_path, monkeypatch):
    url, asked, mood = server
    monkeypatch.setitem(prepare.ORIGINAL_URLS, "kmnist", url.removesuffix("file"))
    right = hashlib.md5(CONTENT).hexdigest()
    monkeypatch.setitem(prepare.PUBLISHED_MD5, "kmnist", {"a.gz": right, "b.gz": right})
    mood["stop"] = 500_000
    with pytest.raises(DataError, match="start again.*copy kmnist.npz into "):
        prepare.prepare("kmnist", str(tmp_path))
    mood["stop"] = None
    assert prepare.prepare("kmnist", str(tmp_path)) == tmp_path / "kmnist"
    assert sorted(p.name for p in (tmp_path / "kmnist").iterdir()) == ["a.gz", "b.gz"]
    assert main(["prepare", "kmnist", "--dir", str(tmp_path)]) == 0 and len(asked) == 3
