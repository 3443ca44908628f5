"""The benchmark of starts: two versions take turns, and a second start finds the cache of the first."""

from benchmarks import startup


def test_versions_take_turns_and_second_starts_have_the_cache_of_first_ones(tmp_path, monkeypatch):
    asked = []

    def start(python, words, folder, cache):
        asked.append((python, words[1], cache))
        return {"a": 2.0, "b": 8.0}[python]

    monkeypatch.setattr(startup, "start", start)
    found = startup.measure({"this": "a", "684e9dc": "b"}, ["run"], 2, tmp_path)
    assert list(map(len, found.values())) == [2] * 4 and [each[0] for each in asked] == ["a", "b", *"abab", *"baba"]
    assert asked[2][2] == asked[4][2] != asked[3][2]
    assert startup.table(found).splitlines()[-1] == "| run, second start | 2.00 | 8.00 | 0.25 |"
