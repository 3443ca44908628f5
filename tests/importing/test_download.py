"""Downloads against a server of our own: whole, resumed, cut off, wrong."""

import functools
import hashlib
import http.server
import threading

import pytest

from cfljax.data import prepare
from cfljax.data.prepare import fetch
from cfljax.errors import DataError

CONTENT = bytes(range(256)) * 9000


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, with ranges, or as it is told to misbehave."""

    def __init__(self, asked, mood, *args):
        self.asked, self.mood = asked, mood
        super().__init__(*args)

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        start = int(wanted[6:-1]) if wanted and self.mood["ranges"] else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start : self.mood["stop"]])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    asked, mood = [], {"ranges": True, "stop": None}
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, asked, mood))
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_port}/file", asked, mood
    made.shutdown()


def fine(part):
    if part.read_bytes() != CONTENT:
        raise DataError("wrong")


@pytest.mark.parametrize("ranges", [True, False])
def test_it_goes_on_where_it_was_cut_off(server, tmp_path, ranges):
    url, asked, mood = server
    mood.update(ranges=ranges, stop=1_000_000)
    with pytest.raises(OSError, match="start again to go on"):
        fetch(url, tmp_path / "f", fine)
    assert (tmp_path / "f.part").stat().st_size == 1_000_000 and not (tmp_path / "f").exists()
    mood["stop"] = None
    fetch(url, tmp_path / "f", fine)
    assert (tmp_path / "f").read_bytes() == CONTENT and asked == [None, "bytes=1000000-"]
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_whole_part_is_only_checked(server, tmp_path):
    (tmp_path / "f.part").write_bytes(CONTENT)
    fetch(server[0], tmp_path / "f", fine)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_what_is_wrong_is_thrown_away(server, tmp_path):
    (tmp_path / "f.part").write_bytes(b"something else")
    with pytest.raises(DataError, match="wrong"):
        fetch(server[0], tmp_path / "f", fine)
    assert list(tmp_path.iterdir()) == []


def test_two_at_once_do_not_mix(server, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / "f.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another process"):
            fetch(server[0], tmp_path / "f", fine)


def test_a_known_set_is_prepared_and_compared_with_its_checksum(server, tmp_path, monkeypatch):
    url, asked, mood = server
    monkeypatch.setitem(prepare.ORIGINAL_URLS, "kmnist", url.removesuffix("file"))
    right = hashlib.md5(CONTENT).hexdigest()
    monkeypatch.setitem(prepare.PUBLISHED_MD5, "kmnist", {"a.gz": right, "b.gz": right})
    mood["stop"] = 500_000
    with pytest.raises(DataError, match="start again to go on.*copy kmnist.npz into "):
        prepare.prepare("kmnist", str(tmp_path))
    mood["stop"] = None
    assert prepare.prepare("kmnist", str(tmp_path)) == tmp_path / "kmnist"
    assert sorted(p.name for p in (tmp_path / "kmnist").iterdir()) == ["a.gz", "b.gz"] and asked[1] == "bytes=500000-"
    prepare.prepare("kmnist", str(tmp_path))
    assert len(asked) == 3
