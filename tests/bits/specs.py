"""The specs that are played: every method plain, features with many methods, readings of papers, data, models, plans, sweeps.

A spec is a table that JSON can hold: {"run": arguments of `cfljax.run`} or {"sweep": a spec in TOML}; `quick`: whether CI plays it,
`devices`: how many the worker has, `like`: the spec whose arrays it must have.
"""

import ast

ROTATED = {"name": "digits", "partition": "rotated", "groups": 4, "clients": 20}
SMALL = {"name": "mlp", "hidden": [8]}
TRAIN = {"rounds": 5, "eval_every": 2, "participation": 0.5, "lr": 0.1, "plan": {"gram": 0, "quick": True}}
"""The plan is fixed, so that nothing depends on a prediction or on how fast a machine is."""

METHODS = {
    "fedavg": {},
    "fedprox": {"mu": 0.1},
    "scaffold": {},
    "feddyn": {},
    "local": {},
    "oracle": {},
    "ccs_rfedavg": {"theta": 0.3},
    "joint": {"clusters": 3, "local_steps": 3, "batch": 10},
    "ifca": {"clusters": 3},
    "ocfl": {"clients_per_cluster": 3},
    "fedgroup": {"clusters": 3, "alpha": 3, "pretrain_steps": 5},
    "fesem": {"clusters": 3},
    "fesem_flexcfl": {"clusters": 3},
    "cfl_mgd": {"clusters": 3},
    "fedbcd": {"local_lr": 0.1},
    "cfl_sattler": {
        "eps1": 10.0,
        "eps2": 0.0,
        "min_rounds": 1,
        "split_every": 2,
        "max_clusters": 20,
        "train": {"participation": 1.0},
    },
    "fl_hc": {"warmup_rounds": 1},
    "pacfl": {"threshold": 15},
    "ditto": {},
    "one_shot": {"clusters": 3, "pretrain_epochs": 2},
    "fedem": {"clusters": 3},
    "fedrc": {"clusters": 3},
    "fedsoft": {"clusters": 3},
    "apfl": {},
    "pfedme": {"eta": 0.05},
    "per_fedavg": {"alpha": 0.05},
    "fedamp": {"alpha": 0.3},
    "pfedgraph": {},
    "stocfl": {"tau": 0.6, "max_clusters": 9},
    "feddrift": {"every": 2, "begin": "each", "delta": 0.6, "max_clusters": 9},
    "fedper": {},
    "lg_fedavg": {},
    "fedrep": {"head_epochs": 2},
    "fedbabu": {},
    "adaptive_fedavg": {},
    "fedrod": {},
    "moon": {},
    "fedala": {},
    "fedproto": {},
    "fedpac": {},
    "fedccfa": {"align_after": 1},
    "fedavg_ft": {},
    "fedprox_ft": {},
    "fedgwc": {"clients_per_cluster": 5, "eps": 0.1},
    "sr_fca": {"refine_every": 2, "pretrain_epochs": 2},
    "cfl_gp": {"clusters": 3, "period": 1},
    "wecfl": {"clusters": 3},
    "flux": {"cluster_after": 1},
    "ocfl_zuziak": {"max_clusters": 20, "train": {"participation": 1.0}},
}
"""Every method, with what it needs to do something in five rounds on twenty clients."""
ALL = tuple(METHODS)
SAMPLE = ("fedavg", "scaffold", "ifca", "ocfl", "fedgroup", "cfl_sattler", "ditto", "fedem")
FEW = ("fedavg", "ifca", "fedgroup", "fedem", "ditto")
TWO = ("fedavg", "ifca")
CHOOSE = ("ifca", "joint", "cfl_mgd")
FOUND = ("joint", "ifca", "fedgroup", "fesem", "fesem_flexcfl", "cfl_mgd", "one_shot")
NOVA = ("fedavg", "fedprox", "oracle", "joint", "ifca", "ocfl", "fedgroup", "fesem", "cfl_sattler", "ditto", "fedem", "stocfl")
CLOCK = {"step_ms": 5, "down_mbps": 20, "up_mbps": 5}

FEATURES = {
    "plain": (ALL, {}, ALL),
    "validation": (SAMPLE, {"data": {"validation": 0.2, "copies": False}}),
    "stop": (SAMPLE, {"data": {"validation": 0.2, "copies": False}, "train": {"rounds": 8, "lr": 0.5, "stop": {"patience": 1}}}),
    "new_clients": (ALL, {"data": {"new_clients": {"share": 0.2, "shots": 5, "steps": [0, 2]}}}, ("ifca", "fedgroup", "fedem")),
    "late": (ALL, {"data": {"arrive": {"clients": 5, "round": 2}}}, ("ifca", "ocfl", "scaffold")),
    "late_on_the_clock": (
        ("fedgroup", "ocfl", "one_shot", "fl_hc", "pacfl", "cfl_sattler", "stocfl", "feddrift", "fedsoft"),
        {"data": {"arrive": {"clients": 5, "round": 2}}, "train": {"clock": CLOCK}},
        ("fedgroup", "stocfl"),
    ),
    "late_by_rate": (FEW, {"data": {"arrive": {"rate": 0.3, "from": 1, "until": 4}}}, ()),
    "test_clients": (SAMPLE, {"data": {"test_clients": 4}}),
    "drift": (ALL, {"data": {"drift": {"kind": "sudden", "at": [2, 4], "share": 0.5}}}, ("ifca", "feddrift")),
    "drift_incremental": (FEW, {"data": {"drift": {"kind": "incremental", "at": [1, 4]}}}, ()),
    "drift_of_labels": (FEW, {"data": {"drift": {"kind": "recurrent", "at": [1, 3], "what": "labels"}}}, ("fedem",)),
    "body_of_all": (ALL, {"train": {"parts": {"body": "all"}}}),
    "head_of_client": (
        tuple(name for name in ALL if name not in ("fesem",)),
        {"train": {"parts": {"head": "client"}}},
        ("ifca", "fedgroup"),
    ),
    "alternate": (FEW, {"train": {"parts": {"head": "client"}, "schedule": "alternate", "head_epochs": 2}}, ("fedavg",)),
    "freeze_head": (SAMPLE, {"train": {"freeze": "head", "finetune_steps": 3}}),
    "server_adam": (ALL, {"train": {"server": {"name": "adam", "lr": 0.05}}}),
    "server_momentum": (SAMPLE, {"train": {"server": {"name": "sgd", "lr": 1.0, "momentum": 0.9}}}, ()),
    "server_yogi": (SAMPLE, {"train": {"server": {"name": "fedyogi", "lr": 0.05}}}, ("ifca",)),
    "clip": (FEW, {"train": {"privacy": {"clip": 0.5}}}),
    "noise": (ALL, {"train": {"privacy": {"clip": 1.0, "noise": 0.3}}}, ("fedavg", "ifca", "ditto")),
    "noise_of_centres": (("fedsoft",), {"method": {"start": "centres"}, "train": {"privacy": {"clip": 1.0, "noise": 0.3}}}, ()),
    "private_choice": (CHOOSE, {"train": {"privacy": {"clip": 1.0, "noise": 0.3, "choice": {"epsilon": 3.0}}}}, ("ifca",)),
    "topk": (ALL, {"train": {"compress": {"name": "topk", "keep": 0.1, "feedback": True}}}, ("ifca", "scaffold", "fedem")),
    "topk_alone": (SAMPLE, {"train": {"compress": {"name": "topk", "keep": 0.1}}}, ()),
    "int8": (SAMPLE, {"train": {"compress": {"name": "int8", "feedback": True}}}),
    "int8_nearest": (FEW, {"train": {"compress": {"name": "int8", "rounding": "nearest"}}}, ()),
    "sign": (FEW, {"train": {"compress": "sign"}}, ()),
    "sign_flip": (SAMPLE, {"train": {"attack": {"name": "sign_flip", "share": 0.2}}}),
    "false_noise": (FEW, {"train": {"attack": {"name": "noise", "share": 0.2, "factor": 2.0}}}, ("ifca",)),
    "label_flip": (FEW, {"train": {"attack": {"name": "label_flip", "share": 0.2}}}, ("ifca",)),
    "median": (ALL, {"train": {"robust": "median"}}),
    "trimmed_mean": (SAMPLE, {"train": {"robust": {"name": "trimmed_mean", "trim": 0.2}}}, ("ocfl",)),
    "krum": (SAMPLE, {"train": {"robust": {"name": "krum", "liars": 0.3}}}, ("ifca",)),
    "all_links": (
        FEW,
        {
            "train": {
                "attack": {"name": "sign_flip", "share": 0.2},
                "compress": {"name": "topk", "keep": 0.2, "feedback": True},
                "privacy": {"clip": 1.0, "noise": 0.1},
                "server": {"name": "adam", "lr": 0.05},
                "dropout": 0.2,
            }
        },
    ),
    "clock": (ALL, {"train": {"clock": CLOCK}}, ("ifca", "fedgroup", "ditto", "fedem")),
    "deadline": (SAMPLE, {"train": {"clock": CLOCK | {"deadline_s": 0.15, "cost_per_s": 2.0}}}),
    "asynchronous": (ALL, {"train": {"clock": CLOCK, "asynchronous": {"buffer": 3}}}, ("fedavg", "ifca", "fedgroup")),
    "asynchronous_hinge": (FEW, {"train": {"clock": CLOCK, "asynchronous": {"buffer": 3, "staleness": "hinge"}}}, ()),
    "away": (ALL, {"train": {"dropout": 0.3, "stragglers": 0.4}}, ("ifca", "ocfl", "fedem")),
    "nova": (NOVA, {"method": {"average": "nova"}, "train": {"stragglers": 0.5}}, ("ifca",)),
    "nova_of_momentum": (
        ("fedavg", "fedprox", "ifca"),
        {"method": {"average": "nova"}, "train": {"stragglers": 0.5, "momentum": 0.5}},
        ("fedprox",),
    ),
    "sgd": (SAMPLE, {"train": {"lr_decay": 0.9, "momentum": 0.5, "weight_decay": 0.01}}),
    "adam": (SAMPLE, {"train": {"lr": 0.01, "optimizer": {"name": "adam", "b1": 0.8}}}, ("ifca",)),
    "epochs": (SAMPLE, {"train": {"epochs": 3, "batch": 5}}, ("ifca",)),
    "full_batches": ((*SAMPLE, "pfedme", "per_fedavg"), {"train": {"steps": 4, "batch": "full"}}, ("fedgroup",)),
    "everybody": (SAMPLE, {"train": {"participation": 1.0}}, ("ifca",)),
    "a_count": (FEW, {"train": {"participation": 7}}, ()),
    "begun": (FEW, {"model": {"weights": "begun", "jitter": 0.1}}, ("ifca",)),
    "lora": (SAMPLE, {"model": {"weights": "begun"}, "train": {"lora": {"rank": 2, "where": "dense"}}}),
    "lora_and_head": (TWO, {"model": {"weights": "begun"}, "train": {"lora": {"rank": 2, "where": "dense", "head": True}}}, ()),
    "frozen_body": (SAMPLE, {"model": {"weights": "begun", "frozen": "body"}}, ("ifca",)),
    "bfloat16": (SAMPLE, {"train": {"precision": "bfloat16"}}),
    "scores": (
        SAMPLE,
        {"train": {"eval_clients": 7, "metrics": ["macro_f1", "average_precision"], "discrepancy": "start", "score": "assigned"}},
        ("ifca", "fedem"),
    ),
    "finetune": (FEW, {"train": {"finetune_steps": 3}}, ("ditto",)),
    "silhouette": (FOUND, {"method": {"clusters": "auto", "most": 4}}, ("ifca", "fedgroup")),
    "eigengap": (FOUND, {"method": {"clusters": "auto", "auto": "eigengap", "most": 4}}, ("ifca",)),
    "every": (("ocfl", "fedgroup"), {"method": {"every": 2}}, ("fedgroup",)),
    "other_seeds": (FEW, {"seed": 7, "data": {"seed": "run"}}, ("ifca",)),
    "gram": (SAMPLE, {"train": {"plan": {"gram": 512, "quick": True}}}),
    "gram_kept": (FEW, {"train": {"plan": {"gram": 512, "keep": True, "quick": True}}}, ()),
    "lanes": (FEW, {"train": {"plan": {"gram": 0, "lanes": 4, "quick": True}}}, ("ifca",)),
    "stream": (SAMPLE, {"train": {"plan": {"gram": 0, "stream": 4, "quick": True}}}, ("ifca",)),
    "not_quick": (ALL, {"train": {"plan": {"gram": 0, "quick": False}}}, ("ifca", "ditto")),
    "plan_auto": (FEW, {"train": {"plan": "auto"}}, ()),
    "devices": (SAMPLE, {"devices": 2, "train": {"plan": {"gram": 0, "devices": 2, "quick": True}}}, ("ifca",)),
    "devices_stream": (FEW, {"devices": 2, "train": {"plan": {"gram": 0, "devices": 2, "stream": 4, "quick": True}}}, ()),
}
"""Feature -> (the methods that it is played with, what it lays over the tables of a run, those methods that CI plays)."""

RARE = {
    "stop", "test_clients", "server_yogi", "false_noise", "label_flip", "trimmed_mean", "krum", "nova_of_momentum",
    "deadline", "epochs", "adam", "begun", "frozen_body", "eigengap", "other_seeds", "lanes", "everybody", "sgd",
    "int8", "drift_of_labels", "not_quick", "late_on_the_clock",
}  # fmt: skip
"""Features that CI does not play."""

READINGS = """
fedavg average=uniform
fedprox average=uniform
oracle average=uniform
scaffold groups=true average=samples
feddyn groups=true
ccs_rfedavg local=update weights=optimal weights=fedavg clustering=kmeans,clusters=3 similarity=sketch
joint similarity=literal similarity=euclidean loss_reduction=sum reseed=always average=samples lam=0.9
ifca estimate=batch average=samples reseed=when_empty estimate=batch,reseed=always
ifca aggregate=gradient aggregate=gradient,estimate=batch
ocfl metric=cosine noise=isolate noise=drop merge_to=3 merge_to=auto,most=4 average=uniform pretrain_epochs=3
ocfl similarity=sketch
fedgroup cold_start=madc cold_start=rcc newcomer=latest newcomer=auxiliary assign=random
fedgroup mu=0.5 eta_g=0.1 eta_g=0.1,inter_group=normalised eta_g=0.1,inter_group=weighted similarity=sketch average=uniform
fesem average=samples compare=whole
fesem_flexcfl average=samples fesem_init=own
wecfl average=uniform compare=whole
cfl_mgd beta=0.5 aggregate=gradient estimate=batch
fedbcd lr_z=0.1,rho=0.5
cfl_sattler gamma_max=0.5 similarity=sketch
fl_hc metric=l2 metric=cosine metric=l2,linkage=ward metric=l2,similarity=sketch
pacfl how=sum how=trace how=smallest how=labels linkage=complete
one_shot similarity=sketch
fedem average=uniform
fedsoft start=centres
apfl adapt=never,alpha=0.25 average=samples
per_fedavg hessian=True
stocfl similarity=exact average=uniform
feddrift begin=one
fedrep average=samples
"""
"""A method and other readings of its paper, those of `experiments/` among them."""
QUICK_READINGS = ("ifca",)

OF_TEN = {"clients": 12, "samples_per_client": 40}
DATA = {
    "iid": {"partition": "iid", **OF_TEN},
    "iid_holdout": {"partition": "iid", "clients": 12, "holdout": 0.2, "test": "global"},
    "quantity": {"partition": "quantity", "clients": 12},
    "quantity_dirichlet": {"partition": "quantity", "clients": 12, "law": "dirichlet", "alpha": 1.0},
    "shards": {"partition": "shards", "clients": 12},
    "shards_one": {"partition": "shards", "clients": 12, "shards": 1, "holdout": 0.2},
    "shards_by_classes": {"partition": "shards", "clients": 12, "test_cut": "classes"},
    "classes": {"partition": "classes", "clients": 12, "classes_per_client": 3},
    "classes_power": {"partition": "classes", "clients": 12, "balance": "power", "normalise": "pixel_all"},
    "classes_of_groups": {"partition": "classes", "clients": 12, "groups": 3},
    "dirichlet": {"partition": "dirichlet", "clients": 12, "alpha": 0.5},
    "dirichlet_rotated": {"partition": "dirichlet", "clients": 12, "alpha": 1.0, "rotate": 2},
    "pachinko": {"name": "coarse", "partition": "pachinko", "clients": 10, "samples_per_client": 20},
    "rotated_apart": {"partition": "rotated", "clients": 12, "groups": 3, "copies": False, "angles": [0, 30, 60]},
    "test_loss": {"partition": "rotated", "clients": 12, "groups": 3, "test_clients": 3},
    "turned": {"partition": "iid", **OF_TEN, "drift": {"kind": "sudden", "at": [2], "what": "rotation"}},
    "label_swap": {"partition": "label_swap", "groups": 3, **OF_TEN},
    "label_permutation": {"partition": "label_permutation", "groups": 3, **OF_TEN, "normalise": "pixel"},
    "feature_shift": {"partition": "feature_shift", **OF_TEN},
    "feature_gain": {"partition": "feature_shift", "kind": "gain", "groups": 3, **OF_TEN},
    "corrupted": {"partition": "corrupted", "groups": 4, **OF_TEN},
    "fedprox": {"partition": "fedprox", "clients": 12, "sigma": 1.0, "minimum": 2},
    "overlap": {"partition": "overlap", "clients": 12, "groups": 3},
    "imbalance": {"partition": "imbalance", "clients": 12, "classes_per_client": 3, "most": 20},
    "domains": {"name": "coarse", "partition": "domains", "clients": 12},
    "user": {"name": "coarse", "partition": "user"},
    "synthetic": {"name": "synthetic", "clients": 12, "normalise": "none"},
    "blobs": {"name": "blobs", "samples": 600, "partition": "label_permutation", "groups": 2, "clients": 12},
}
QUICK_DATA = ("dirichlet", "label_swap")

TOKENS, VECTORS = ({"name": name, "partition": "user"} for name in ("sentences", "embedded"))
IMAGES = {"partition": "rotated", "groups": 2, "clients": 6, "samples_per_client": 20}
MODELS = {
    "mclr": ({"name": "mclr"}, ROTATED, TWO),
    "mlp_two": ({"name": "mlp", "hidden": [16, 8], "init": "torch"}, ROTATED, TWO),
    "cnn": ({"name": "cnn", "channels": [4, 4], "kernel": 3, "dense": [8], "init": "he"}, IMAGES, TWO),
    "cnn_native": ({"name": "cnn", "channels": [4, 4], "kernel": 3, "dense": [8], "conv": "native"}, IMAGES, TWO),
    "cnn_of_batches": ({"name": "cnn", "channels": [4], "kernel": 3, "dense": [8], "norm": "batch"}, IMAGES, TWO),
    "cnn_cifar": ({"name": "cnn_cifar", "channels": 4, "dense": [12, 8], "crop": 6}, IMAGES, TWO),
    "resnet20": ({"name": "resnet20", "blocks": 1, "width": 4}, IMAGES, ("fedavg",)),
    "vit_tiny": ({"name": "vit_tiny", "width": 12, "depth": 1, "heads": 2}, IMAGES, ("fedavg",)),
    "lstm": ({"name": "lstm", "width": 6, "layers": 1, "dense": 6}, VECTORS, TWO),
    "char_lstm": ({"name": "char_lstm", "width": 6, "embedding": 4}, TOKENS, ("fedavg",)),
    "transformer": ({"name": "transformer", "width": 8, "depth": 1, "heads": 2}, TOKENS, TWO),
    "transformer_of_vectors": ({"name": "transformer", "width": 8, "depth": 1, "heads": 2}, VECTORS, ("fedavg",)),
}
"""Model -> (its table, data, methods)."""
QUICK_MODELS = ("cnn", "transformer")

GRID = """
seeds = "0:2"
data = { name = "digits", partition = "rotated", groups = 4, clients = 20 }
model = { name = "mlp", hidden = [8] }
train = { rounds = 5, eval_every = 2, participation = 0.5, lr = [0.05, 0.1], plan = { gram = 0, quick = true } }
method = ["fedavg", { name = "ifca", clusters = 3 }]
"""
LONG = """
data = { name = "digits", partition = "rotated", groups = 4, clients = 20 }
model = { name = "mlp", hidden = [8] }
method = ["ditto", { name = "ifca", clusters = 3 }]
[train]
rounds = 400
eval_every = 10
participation = 0.5
lr = 0.05
plan = { gram = 0, quick = true }
compress = { name = "topk", keep = 0.2, feedback = true }
server = { name = "adam", lr = 0.01 }
"""


def all_specs():
    """Return every spec by its name, FEATURE/METHOD, those that share programs side by side."""
    return _features() | _readings() | _data() | _models() | _sweeps()


def _run(method, train=None, data=None, model=None, seed=0, quick=False, devices=1, **options):
    """Return the spec of one run: tables laid over those of the base."""
    tables = {"data": ROTATED | (data or {}), "model": SMALL | (model or {}), "train": TRAIN | (train or {})}
    return {
        "run": tables | {"method": {"name": method, **METHODS[method], **options}, "seed": seed},
        "quick": quick,
        "devices": devices,
    }


def _features():
    specs = {}
    for feature, (methods, over, *quick) in FEATURES.items():
        chosen = quick[0] if quick else ("ifca",)
        chosen = () if feature in RARE else chosen
        for method in methods:
            rest = {key: value for key, value in over.items() if key != "method"}
            specs[f"{feature}/{method}"] = _run(method, quick=method in chosen, **rest, **over.get("method", {}))
    return specs


def _readings():
    specs = {}
    for method, *readings in map(str.split, READINGS.strip().splitlines()):
        for reading in readings:
            options = {key: _value(text) for key, text in (each.split("=") for each in reading.split(","))}
            specs[f"reading/{method}/{reading}"] = _run(method, quick=method in QUICK_READINGS, **options)
    return specs


def _value(text):
    try:
        return ast.literal_eval(text)
    except ValueError:  # a word
        return text


def _data():
    specs = {}
    for name, table in DATA.items():
        choose = {"test_clients_choose": "test_loss"} if name == "test_loss" else {}
        for method in TWO:
            spec = _run(method, quick=name in QUICK_DATA and method == "ifca", train=choose)
            spec["run"]["data"] = {"name": "digits"} | table
            specs[f"data/{name}/{method}"] = spec
    return specs


def _models():
    specs = {}
    for name, (model, data, methods) in MODELS.items():
        more = {"metrics": ["perplexity"]} if name == "transformer" else {}
        for method in methods:
            spec = _run(method, quick=name in QUICK_MODELS and method == "fedavg", train={"rounds": 2, "eval_every": 1, **more})
            spec["run"] |= {"model": model, "data": {"name": "digits"} | data}
            specs[f"model/{name}/{method}"] = spec
    return specs


def _sweeps():
    return {
        "sweep/grid": {"sweep": GRID, "quick": True, "devices": 1},
        "sweep/long": {"sweep": LONG, "quick": True, "devices": 1},
        "sweep/stopped": {"sweep": LONG, "stops": 2, "like": "sweep/long", "quick": True, "devices": 1},
    }
