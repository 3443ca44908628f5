"""Whatever is wrong with a spec or a flag ends in one line that names the place, the value and what
to write instead."""

import pytest

from cfljax.errors import SpecError
from tests.config.small import BASE, read, spec

ROTATED = {"name": "mnist", "partition": "rotated"}
TRAIN = [
    ({"rounds": 0}, "train.rounds = 0", "at least 1"),
    ({"rounds": 10**12}, "train.rounds = 1000000000000", "at most"),
    ({"rounds": 2.5}, "train.rounds = 2.5", "integer"),
    ({"rounds": True}, "train.rounds = true", "integer"),
    ({"rounds": "ten"}, 'train.rounds = "ten"', "integer"),
    ({"rounds": []}, "train.rounds = []", "empty list"),
    ({"rounds": "5:5"}, 'train.rounds = "5:5"', "empty range"),
    ({"rounds": "1:9:0"}, "train.rounds", "step is 0"),
    ({"rounds": "1:9999999999"}, "train.rounds", "more than 1,000,000"),
    ({"participation": 0}, "train.participation = 0", "greater than 0"),
    ({"participation": 1.5}, "train.participation = 1.5", "a count is an integer"),
    ({"participation": -3}, "train.participation = -3", "greater than 0"),
    ({"participation": 101}, "train.participation = 101", "only 100 clients"),
    ({"participation": "all"}, 'train.participation = "all"', "a number"),
    ({"epochs": 2, "steps": 5}, "train.steps = 5", "not both"),
    ({"batch": 0}, "train.batch = 0", "at least 1"),
    ({"batch": [10, "fulll"]}, 'train.batch = "fulll"', 'did you mean "full"'),
    ({"lr": -0.1}, "train.lr = -0.1", "at least 0"),
    ({"lr": [0.1, float("nan")]}, "train.lr = nan", "finite number"),
    (
        {"optimizer": {"name": "adam", "b1": float("nan")}},
        "train.optimizer.b1 = nan",
        "finite number",
    ),
    ({"optimizer": "ad\udce9m"}, "train.optimizer = 'ad\\udce9m'", "not valid UTF-8"),
    ({"lr": [0.1, "x"]}, 'train.lr = "x"', "a number"),
    ({"lr": [[0.1]]}, "train.lr = [0.1]", "a number"),
    ({"lr": "log(0, 1, 3)"}, "train.lr", "above 0"),
    ({"lr": "log(1e-3, 1e-1, 2.5)"}, "train.lr", "the number of values must be an integer"),
    ({"lr": "log(1, 2, 3, 4)"}, "train.lr", "log(from, to, number of values)"),
    ({"lr": "log(1e-3, 1e-1)"}, "train.lr", "samples = 50"),
    ({"lr": {"low": 1e-3, "high": 1e-1}}, "train.lr", "samples = 50"),
    ({"lr": {"low": 1.0, "high": 0.1}}, "train.lr", "low must be less than high"),
    ({"lr": {"low": 1.0, "hihg": 2.0}}, "train.lr.hihg", 'did you mean "high"'),
    ({"lr": {"low": 1.0}}, "train.lr", "needs low and high"),
    ({"lr": {"low": -1.0, "high": 1.0}}, "train.lr = -1.0", "at least 0"),
    ({"lr": [0.1, {"low": 0.1, "high": 1.0}]}, "train.lr", "cannot be in a list"),
    ({"lr_decay": 1.1}, "train.lr_decay = 1.1", "at most 1"),
    ({"lr_decay": 0}, "train.lr_decay = 0", "greater than 0"),
    ({"momentum": 1}, "train.momentum = 1.0", "less than 1"),
    ({"dropout": 1.0}, "train.dropout = 1.0", "less than 1"),
    ({"stragglers": 2}, "train.stragglers", "at most 1"),
    ({"optimizer": "adammw"}, 'train.optimizer = "adammw"', 'did you mean "adamw"'),
    ({"optimizer": {}}, "train.optimizer", "needs a name"),
    ({"optimizer": {"name": "adam", "b1": "x"}}, "train.optimizer", "a number"),
    ({"optimizer": {"name": "adam", "beta1": 0.9}}, "train.optimizer.beta1", "no such argument"),
    (
        {"optimizer": {"name": "adam", "learning_rate": 0.9}},
        "train.optimizer.learning_rate",
        "train.lr",
    ),
    ({"optimizer": {"name": 3}}, "train.optimizer", "needs a name"),
    ({"optimizer": "adam", "momentum": 0.9}, "train.momentum = 0.9", 'optimizer = "sgd"'),
    ({"server": "adam"}, 'train.server = "adam"', '{ name = "adam", lr = 0.1 }'),
    ({"server": 3}, "train.server = 3", "must be"),
    ({"server": {"name": "adam"}}, "train.server.lr", "missing"),
    ({"server": {"lr": 0.1}}, "train.server.name", "missing"),
    ({"server": {"name": "adan", "lr": -1}}, "train.server.lr = -1.0", "at least 0"),
    ({"server": {"name": "addam", "lr": 1}}, 'train.server = "addam"', 'did you mean "adam"'),
    ({"server": {"name": "noisy_sgd", "lr": 1}}, 'train.server = "noisy_sgd"', "train.privacy"),
    ({"server": {"name": "adam", "lr": 1, "beta1": 0.9}}, "train.server.beta1", "no such argument"),
    (
        {"server": {"name": "adam", "learning_rate": 1, "lr": 1}},
        "train.server.learning_rate",
        "train.server.lr",
    ),
    ({"score": "everyone"}, 'train.score = "everyone"', "all, assigned"),
    ({"precision": "hihg"}, 'train.precision = "hihg"', 'did you mean "high"'),
    ({"eval_clients": 0}, "train.eval_clients = 0", "at least 1"),
    ({"learning_rate": 0.1}, "train.learning_rate = 0.1", "no such option"),
    ({"epoch": 1}, "train.epoch = 1", 'did you mean "epochs"'),
]
DATA = [
    ({"name": "digts"}, 'data.name = "digts"', 'did you mean "digits"'),
    ({"name": ""}, 'data.name = ""', "must be a name"),
    ({"name": 3}, "data.name = 3", "must be a name"),
    ({"name": []}, "data.name = []", "empty list"),
    ({"partition": "iid"}, "data.name", "missing"),
    (
        {"name": "mnist", "partition": "rotate"},
        'data.partition = "rotate"',
        'did you mean "rotated"',
    ),
    ({"name": "mnist", "partition": 7}, "data.partition = 7", "must be a name"),
    ({**ROTATED, "clints": 10}, "data.clints = 10", 'did you mean "clients"'),
    ({**ROTATED, "clients": 0}, "data.clients = 0", "at least 1"),
    ({**ROTATED, "angles": [0, "x"]}, "data.angles", "list of integers"),
    ({**ROTATED, "alpha": 0.1}, "data.alpha = 0.1", "dirichlet"),
    ({"name": "digits", "seed": -1}, "data.seed = -1", "at least 0"),
    ({"name": "digits", "seed": "runs"}, 'data.seed = "runs"', 'did you mean "run"'),
    ({"name": "digits", "normalise": "pixels"}, "data.normalise", 'did you mean "pixel"'),
    ({"name": "digits", "path": 3}, "data.path = 3", "string"),
    ({"name": "digits", "arrive": {"clients": 5}}, "data.arrive", "give the time"),
    ({"name": "digits", "arrive": {"round": 5}}, "data.arrive", "clients"),
    (
        {"name": "digits", "arrive": {"clients": 5, "rate": 0.1, "round": 3}},
        "data.arrive",
        "give either clients",
    ),
    (
        {"name": "digits", "arrive": {"rate": 0.1, "from": 9, "until": 3}},
        "data.arrive.until = 3",
        "before from",
    ),
    (
        {"name": "digits", "arrive": {"rate": 1.1, "round": 3}},
        "data.arrive.rate = 1.1",
        "at most 1",
    ),
    (
        {"name": "digits", "arrive": {"rate": 0.5, "form": 1, "until": 3}},
        "data.arrive.form",
        'did you mean "from"',
    ),
    (
        {"name": "digits", "arrive": {"clients": 500, "round": 3}},
        "data.arrive.clients = 500",
        "only 100 clients",
    ),
    ({"name": "digits", "arrive": 3}, "data.arrive = 3", "table"),
]
TOP = [
    ({"rounds": 3}, "rounds", "no such table"), ({"methods": "ifca"}, "methods", 'did you mean "method"'),
    ({"method": []}, "method = []", "empty list"), ({"method": 3}, "method = 3", "table or a name"),
    ({"method": {"clusters": 3}}, "method.name", "missing"), ({"method": "ifac"}, 'method.name = "ifac"', 'did you mean "ifca"'),
    ({"method": {"name": "ifca", "clutsers": 3}}, "method.ifca.clutsers = 3", 'did you mean "clusters"'),
    ({"method": {"name": "ifca", "clusters": 0}}, "method.ifca.clusters = 0", "at least 1"),
    ({"method": {"name": "ifca", "label": "a\nb"}}, r"method.ifca.label = 'a\nb'", "has a line break"),
    ({"method": {"name": "ifca", "label": "a\x1b[2J"}}, r"method.ifca.label = 'a\x1b[2J'", "control character"),
    ({"method": {"name": "ifca", "label": 3}}, "method.ifca.label = 3", "a string"),
    ({"method": {"name": ["ifca", "fedavg"], "label": "x"}}, "method.label", "a list"),
    ({"method": {"name": ["ifca", "fedavg"], "mu": 1}}, "method.mu", "none of ifca, fedavg"),
    ({"method": {"name": []}}, "method.name = []", "empty list"),
    ({"method": {"name": "ifca", "train": {"lrr": 1}}}, "method.ifca.train.lrr = 1", 'did you mean "lr"'),
    ({"method": {"name": "ifca", "train": 3}}, "method.ifca.train = 3", "must be a table"),
    ({"method": {"name": "ifca", "train": {"epochs": 1, "steps": 1}}}, "method.ifca.train.steps = 1", "not both"),
    ({"method": {"name": "cfl_mgd", "train": {"momentum": 0.9}}}, "method.cfl_mgd", "must be 0"),
    ({"method": {"name": "cfl_mgd", "estimate": "batch", "clusters": 1}}, "method.cfl_mgd.estimate", "clusters > 1"),
    ({"method": [{"name": "ifca", "label": "a"}, {"name": "fedavg", "label": "a"}]}, 'label = "a"', "has this label already"),
    ({"method": [{"name": "ifca", "label": "fedavg"}, "fedavg"]}, "fedavg", "has this label already"),
    ({"model": "mpl"}, 'model.name = "mpl"', 'did you mean "mlp"'), ({"model": {"hidden": [3]}}, "model.name", "missing"),
    ({"model": {"name": "mlp", "hidden": 200}}, "model.hidden = 200", "list of integers"),
    ({"model": {"name": "mclr", "hidden": [200]}}, "model.hidden = [200]", "no such option"),
    ({"data": []}, "data = []", "empty list"), ({"data": True}, "data = true", "table or a name"),
    ({"train": "fast"}, 'train = "fast"', "must be a table"), ({"seeds": 5}, "seeds = 5", "0:5"),
    ({"seeds": []}, "seeds = []", "empty list"), ({"seeds": [1, 2, 1]}, "seeds = [1, 2, 1]", "1 is given twice"),
    ({"seeds": ["0:3", 2]}, "seeds", "2 is given twice"), ({"seeds": [-1]}, "seeds = -1", "at least 0"),
    ({"seeds": "five"}, 'seeds = "five"', "0:5"), ({"seeds": ":"}, 'seeds = ":"', "integer"),
    ({"seeds": "-2:3"}, "seeds = -2", "at least 0"), ({"seeds": "2:-3:-1"}, "seeds = -2", "at least 0"),
    ({"seeds": [0.5]}, "seeds = 0.5", "integer"), ({"seeds": {"low": 0, "high": 3}}, "seeds", "list of integers"),
    ({"name": 3}, "name = 3", "a string"), ({"defaults": {"clutser": 3}}, "defaults.clutser = 3", 'did you mean "clusters"'),
    ({"defaults": {"batch": 3}}, "defaults.batch = 3", "train has an option of this name, too"),
    ({"defaults": 3}, "defaults = 3", "must be a table"), ({"samples": 0}, "samples = 0", "at least 1"),
    ({"samples": "many"}, 'samples = "many"', "integer"), ({"search_seed": -1}, "search_seed = -1", "at least 0"),
    ({"size": "small"}, 'size = "small"', "unknown size"), ({"size": {"full": {}}}, "size.full", "without a size"),
    ({"size": {"small": 3}}, "size.small = 3", "must be a table"), ({"include": [3]}, "include = 3", "must be a table"),
    ({"include": [{"trian": {}}]}, "include[0].trian", 'did you mean "train"'),
    ({"include": [{"method": {"ifca": {"clusters": 3}}}]}, "include[0].method.ifca", "no such method"),
    ({"exclude": [{}]}, "exclude[0]", "dotted keys"),
    ({"exclude": [{"trian.lr": 1}]}, "exclude[0].trian.lr", 'did you mean "train"'),
    ({"exclude": [{"train.lrr": 1}]}, "exclude[0].train.lrr", 'did you mean "train.lr"'),
    ({"exclude": [{"method": "fedavg"}]}, "exclude", "leaves nothing"),
    ({"seeds": "0:2000", "train": {"lr": "lin(0.1, 1, 1000)"}}, "2,000,000 runs", "at most 1,000,000"),
    ({"train": {"lr": 10**400}}, "train.lr", "64 bits"), ({"train": {"bad\nkey": 1}}, "key", "printable"),
    ({3: 1}, "3 is not a key", "printable"),
    ({"data": {"name": "x" * 5000, "partition": "y" * 5000}}, "data.partition", "unknown partition"),
    ({"train": {"lr": {1, 2}}}, "train.lr: a spec cannot hold", "type set"),
]  # fmt: skip
FLAGS = [
    ("lr=0.1", "--set lr=0.1", "no such table"), ("train.lr", "--set train.lr", "key=value"),
    ("train.lr=", "--set train.lr=", "missing"), ("=3", "--set =3", "key=value"), ("train..lr=3", "--set train..lr=3", "key=value"),
    ("trian.lr=3", "--set trian.lr=3", 'did you mean "train"'), ("train.lrr=3", "--set train.lrr = 3", 'did you mean "lr"'),
    ("train.lr=abc", '--set train.lr = "abc"', "a number"), ("train.lr=0.1,,0.2", "--set train.lr=0.1,,0.2", "a value is missing"),
    ("train.lr=[0.1", "--set train.lr=[0.1", "not a TOML value"), ("method=ifac", "ifac", 'did you mean "ifca"'),
    ("method.ifca.clusters=3", "method.ifca.clusters", "no method ifca"),
    ("method.fedavg=3", "method.fedavg", "method.NAME.option"), ("size=small", 'size = "small"', "unknown size"),
    ("size.small=3", "size.small", "size=NAME"), ("seeds=3", "--set seeds = 3", "0:3"), ("seeds.x=3", "seeds.x", "has no options"),
    ("seeds=a:b", '--set seeds = "a:b"', 'a range such as "0:5"'), ("method=fedavgg", '--set method.name = "fedavgg"', '"fedavg"'),
    ("include=3", "--set include=3", "no such table"), ("samples=lots", '--set samples = "lots"', "integer"),
]  # fmt: skip


def _message(source, *sets):
    with pytest.raises(SpecError) as caught:
        read(source, *sets)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def _has(message, part):
    return any(p in message for p in part.split("|"))


CASES = [(spec(train=t), a, b) for t, a, b in TRAIN] + [(spec(data=d), a, b) for d, a, b in DATA]
CASES += [({**BASE, **t}, a, b) for t, a, b in TOP]


@pytest.mark.parametrize(("table", "key", "advice"), CASES)
def test_a_wrong_spec_says_where_and_what_to_write(table, key, advice):
    message = _message(table)
    assert key in message
    assert _has(message, advice), message


@pytest.mark.parametrize(("flag", "key", "advice"), FLAGS)
def test_a_wrong_flag_says_where_and_what_to_write(flag, key, advice):
    message = _message(BASE, flag)
    assert key in message
    assert _has(message, advice), message


@pytest.mark.parametrize("key", ["data", "method"])
def test_a_spec_needs_data_and_a_method(key):
    assert f"{key}: missing" in _message({k: v for k, v in BASE.items() if k != key})


FILES = [
    (b'data = "digits"\nmethod = \n', ":2: ", "Invalid value"),
    (b'data = "digits"\ndata = "mnist"\nmethod = "fedavg"', ":2: ", "overwrite"),
    (b'data = "digits"\nmethod = "fedavg', "last line: ", ""), (b'data = "digits"\nname = "\xff\xfe"', ":2: ", "UTF-8"),
    (b"data = " + b"[" * 5000, "", "nested|too deeply"), (b"x = [" * 3 + b"1" + b"]" * 2, "", ""),
    (b'data = "digits"\nmethod = "fedavg"\ntrain.rounds = ' + b"9" * 5000, "", "digits|64 bits"),
    (b'data = "digits"\nmethod = "fedavg"\ntrain.rounds = 2020-01-01', "train.rounds", "date or time"),
    (b'data = "digits"\nmethod = "fedavg"\n[train]\nrounds = -1', "train.rounds = -1", "at least 1"), (b"", "method", "missing"),
    (b"\x00", ":1: ", ""),
]  # fmt: skip


@pytest.mark.parametrize(("content", "place", "advice"), FILES)
def test_a_wrong_file_is_named_with_the_line(tmp_path, content, place, advice):
    path = tmp_path / "spec.toml"
    path.write_bytes(content)
    message = _message(path)
    assert message.startswith(str(path))
    assert place in message
    assert _has(message, advice), message


def test_a_file_that_is_not_there_gets_the_nearest_one(tmp_path):
    (tmp_path / "table3.toml").touch()
    assert 'did you mean "table3.toml"' in _message(tmp_path / "tabel3.toml")
    assert "there is no such file" in _message(tmp_path / "nowhere" / "spec.toml")
    assert "cannot be read" in _message(tmp_path)
    assert "cannot be read" in _message("a\0b")


def test_deep_tables_and_cycles_end():
    table = {}
    table["data"] = table
    assert "nested more than" in _message(table)


def test_the_exit_code_is_2():
    with pytest.raises(SpecError) as caught:
        read({})
    assert caught.value.exit_code == 2


def test_a_mark_at_the_beginning_of_a_file_is_no_mistake(tmp_path):
    (tmp_path / "spec.toml").write_bytes(b"\xef\xbb\xbf" + b'data = "digits"\nmethod = "fedavg"\n')
    assert len(read(tmp_path / "spec.toml").runs()) == 1
