"""From a resolved configuration to the changes that concern it: what newer versions of cfljax compute differently. Runs that a
change concerns get another id, so that results of two versions never mix. All other ids stay, and results of older versions are
found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from cfljax.federation import PARTITIONS
from cfljax.methods import METHODS
from cfljax.registry.options import Value

Config = Mapping[str, Value]
"""A resolved configuration, as `Run.resolved()` makes it and a record keeps it."""


class Change(NamedTuple):
    """A change of what some runs compute."""

    name: str
    """Part of the ids of the runs that it concerns, and therefore never changed."""
    concerns: Callable[[Config], bool]
    """Whether runs of this configuration have other results than before."""
    what: str
    """A message to users: what was computed before, and what is computed now."""


_COMPUTED = ("digits", "synthetic", "blobs")
"""Data sets that are decided by name, options and seed alone."""
_GROUPS = ("rotated", "label_swap", "label_permutation", "feature_shift")
"""Partitions whose groups see the data differently."""
_LATER = ("resnet20", "resnet18", "mobilenet_v2", "vit_tiny", "char_lstm", "transformer")
_MODELS = ("mclr", "mlp", "cnn", "cnn_cifar", "lstm", *_LATER)
"""The models of the package. Their registry is not imported here, as it needs JAX, which a report does without."""


def _ours(partition: str) -> bool:
    """Whether a partition was part of the package when older records were made."""
    return PARTITIONS.ours(partition) or partition in ("overlap", "imbalance", "femnist_fedgroup")


def _reads(config: Config) -> bool:
    """Whether the data are read from files, or the data set or the partition is a user's."""
    return config["data"]["name"] not in _COMPUTED or not _ours(config["data"]["partition"])


def _from_elsewhere(config: Config) -> bool:
    """Whether a method, model or metric comes from a named module, an installed package, or a notebook. For a plugin file, the sum
    in the id has not changed."""
    own = not METHODS.ours(config["method"]["name"]) or config["model"]["name"] not in _MODELS or config["train"].get("metrics")
    plugins = config.get("plugins", [])
    return any(not name.endswith(".py") for name in plugins) or bool(own and not plugins)


def _scored_by_training(config: Config) -> bool:
    """Whether the learning rate decays and may decide which model scores a client without a cluster."""
    method, train = config["method"], config["train"]
    newcomers = method["name"] == "fedgroup" and method["assign"] == "eq9" and method["newcomer"] != "initial"
    steps = method["name"] == "joint" and method["similarity"] == "euclidean"
    may_decide = newcomers or steps or not METHODS.ours(method["name"])
    return may_decide and train["lr_decay"] != 1 and train["score"] == "all"


def may_have_test_only_clients(config: Config) -> bool:
    """Whether there may be clients that hold no training data."""
    data = config["data"]
    empty = data.get("test_clients") or data.get("test_only") == "keep" or data.get("min_samples") == 0
    return bool(empty) or not _ours(data["partition"])


def _shares_a_test_set_in_views(config: Config) -> bool:
    """Whether all clients may share one test set that they see in different views."""
    data = config["data"]
    views = data.get("rotate", 1) > 1 or data["partition"] in _GROUPS and data["groups"] > 1
    return (data.get("test") == "global" and views) or not _ours(data["partition"])


def _may_leave_clients_out(config: Config) -> bool:
    """Whether clients may be scored before they have been drawn for a round."""
    data, train = config["data"], config["train"]
    drawn, clients = train["participation"], data.get("clients") or float("inf")
    everyone = drawn == 1 if isinstance(drawn, float) else drawn >= clients
    return not everyone or train["dropout"] > 0 or data.get("arrive") is not None


def _sends_very_much(config: Config) -> bool:
    """Whether 2³¹ models or more may be sent in one direction, over all rounds."""
    data, train, method = config["data"], config["train"], config["method"]
    drawn, clients, models = train["participation"], data.get("clients") or 0, method.get("clusters", 1)
    models = method["most"] if models == "auto" else models
    return train["rounds"] * (drawn * clients if isinstance(drawn, float) else drawn) * 2 * models >= 2**31


def _takes_a_share(config: Config) -> bool:
    """Whether a fraction of the clients is drawn: the participants of a round, or the clients that come late."""
    drawn = config["train"]["participation"]
    return (isinstance(drawn, float) and drawn < 1) or config["data"].get("arrive") is not None


def _noised(config: Config) -> bool:
    """Whether noise is added to the updates of the clusters' models."""
    privacy = config["train"].get("privacy")
    return isinstance(privacy, Mapping) and privacy.get("noise", 0) > 0 and config["method"]["name"] != "local"


def _changes_one_gradient_in_transit(config: Config) -> bool:
    """Whether the one vector that participants send under CFL-MGD's option I is clipped, noised, compressed or falsified."""
    method, train = config["method"], config["train"]
    falsified = (train.get("attack") or {}).get("name") in ("sign_flip", "noise")
    changed = falsified or any(train.get(name) not in (None, "none") for name in ("privacy", "compress"))
    return method["name"] == "cfl_mgd" and method.get("aggregate") == "gradient" and changed


def _may_have_an_empty_round(config: Config) -> bool:
    """Whether the probability of a round without participants is above 1e-9."""
    data, train, method = config["data"], config["train"], config["method"]
    known = METHODS.ours(method["name"]) and method["name"] != "ocfl" and not may_have_test_only_clients(config)
    clients, late, drawn = data.get("clients") or 1, data.get("arrive") or {}, train["participation"]
    early = clients - (late.get("clients") or round(late.get("rate", 0) * clients))
    fewest = min(max(1, round(drawn * clients)) if isinstance(drawn, float) else drawn, early) if known else min(early, 1)
    return bool(train["rounds"] * train["dropout"] ** max(fewest, 0) > 1e-9)


CHANGES: tuple[Change, ...] = (
    Change("contents of data", _reads, "which contents their data files had was not on record"),
    Change("sources of one's own", _from_elsewhere, "of one's own packages and notebooks, not all that they use was on record"),
    Change(
        "FeSEM's centres",
        lambda config: config["method"]["name"] == "fesem",
        "the first centre was the model that all clients start at, so that they all joined it; now the centres are apart from it",
    ),
    Change(
        "penalty in a summed loss",
        lambda config: config["method"]["name"] == "joint" and config["method"]["loss_reduction"] == "sum",
        'with loss_reduction = "sum" the penalty of the model was multiplied by the samples of the batch; now it counts once',
    ),
    Change(
        "learning rate of scoring",
        _scored_by_training,
        "clients without a cluster were scored with what the first round's learning rate makes of them; now with the round's own",
    ),
    Change(
        "clients that never train",
        may_have_test_only_clients,
        "clients that hold no training data chose their model on the samples that they were scored on, got the first of more "
        "than 32, were scored on more samples by methods with one model, took other clients' personal models, and counted in the "
        "accuracy of those that train",
    ),
    Change(
        "Ditto's clients not yet drawn",
        lambda config: config["method"]["name"] == "ditto" and _may_leave_clients_out(config),
        "clients that had not been drawn yet were scored with the first model; now with the global one",
    ),
    Change(
        "sums of very many samples",
        lambda config: config["data"].get("test") == "global" and (config["data"].get("clients") or 0) >= 20_000,
        "with more than 2³¹ test samples in all, of clients that share a test set, the mean loss was wrong",
    ),
    Change("sums of very much traffic", _sends_very_much, "bytes_up and bytes_down were wrong from 2³¹ models on"),
    Change(
        "shares of the clients that train",
        lambda config: may_have_test_only_clients(config) and _takes_a_share(config),
        "train.participation as a fraction and data.arrive also counted clients that never train: more took part in a round, and "
        "fewer of those that train came late",
    ),
    Change(
        "epsilon of the draw",
        _noised,
        "epsilon credited a hidden draw where clusters or weights by samples tell who was drawn, and counted too few participants "
        "where clients came late; a cluster with only broken updates got no noise, and the noise of fedbcd was that of its mean",
    ),
    Change(
        "Krum's distances",
        lambda config: (config["train"].get("robust") or {}).get("name") == "krum",
        "among updates that are nearly equal, rounded distances decided which one Krum took; now their differences do",
    ),
    Change(
        "one test set in several views",
        _shares_a_test_set_in_views,
        'with data.test = "global" everybody was scored on the test set as the first client sees it; now each as it sees it itself',
    ),
    Change(
        "CFL-MGD's one vector",
        _changes_one_gradient_in_transit,
        "of option I two vectors were compressed, clipped or falsified where one is sent; now the step follows from the buffer",
    ),
    Change(
        "pixels of training samples",
        lambda config: config["data"].get("normalise") == "pixel",
        'data.normalise = "pixel" took mean and deviation of test samples, too, which is "pixel_all" now; now only of what clients '
        "train on",
    ),
    Change(
        "rounds without participants",
        _may_have_an_empty_round,
        "train_loss and discrepancy of a round in which nobody took part were 0; now they are unknown",
    ),
    Change(
        "Joint's last moves",
        lambda config: (
            config["method"]["name"] == "joint" and (config["train"]["dropout"] > 0 or config["data"].get("arrive") is not None)
        ),
        "bytes_down lacked the last moves that devices have missed that dropped out of the round before, or came late",
    ),
    Change(
        "models to choose from",
        lambda config: config["method"]["name"] in ("cfl_sattler", "fl_hc", "pacfl") and config["data"].get("arrive") is not None,
        "bytes_down lacked the models of all clusters that a client gets that comes late and joins the one with the least loss",
    ),
    Change(
        "every other test sample",
        may_have_test_only_clients,
        "clients that never train chose their model on the samples that come first in the file, of which one that is sorted has "
        "the first classes; now on every other one",
    ),
    Change(
        "batch normalisation of frozen bodies",
        lambda config: (
            config["model"]["name"] in ("resnet18", "resnet20", "mobilenet_v2")
            and config["model"].get("weights") is not None
            and config["model"].get("frozen") is not None
        ),
        "a body from a file with batch normalisation got group normalisation; now it has the file's means and variances",
    ),
)
"""All changes, the oldest first."""


def changes_of(config: Config) -> tuple[str, ...]:
    """Names of the changes that concern a run of this configuration, in the order in which they were made."""
    return tuple(change.name for change in CHANGES if change.concerns(config))


def missing(config: Config, made_with: Collection[str]) -> list[Change]:
    """The changes that concern a record of this configuration and are not in its list `changes` (`made_with`)."""
    return [change for change in CHANGES if change.name not in made_with and _concerned(change, config)]


def _concerned(change: Change, config: Config) -> bool:
    """Whether the change concerns a record. Its configuration may lack options of today; if it lacks one that the change depends
    on, the change does not concern it."""
    try:
        return change.concerns(config)
    except (KeyError, TypeError, AttributeError):
        return False
