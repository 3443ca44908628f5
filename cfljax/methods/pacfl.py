"""PACFL (Vahidian et al. 2023): one-shot clustering by the principal angles between the subspaces
of the clients' data, then FedAvg inside the clusters.

Each client sends the `p` leading left singular vectors of its data (features × samples, as the
model sees them), with `how = "vectors"` and `"labels"` of each label's samples. Agglomerative
clustering of the distances in degrees follows, cut at `threshold`. A singular vector has no sign:
all angles are at most 90 degrees. Directions that a client lacks (fewer samples than `p`) count as
orthogonal.

A client that arrives late joins the cluster with the least loss. A newcomer sends the vectors of
its few samples and joins the cluster that is nearest by the distance and linkage above ("weighted":
the mean over all members), as the paper has it: no model is tried on it. Its labels are used with
`how = "vectors"` and `"labels"` only; with the others it may have none. Kept with the results:
`found`, the number of clusters.

Distances differ so much from one `how` to another that a threshold belongs to one of them only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from cfljax.errors import SpecError
from cfljax.federation.gather import samples
from cfljax.kernels import host
from cfljax.kernels.subspaces import Subspaces, concatenate, distances, leading, nearest_clusters
from cfljax.lazy import jax, jnp
from cfljax.methods.fedavg import FedAvg
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.recipes import Ask, Before, InitialClusters, Joining, State, mark_slots, option
from cfljax.types import Array, Federation, Quantity

ABOUT = About(
    title="PACFL",
    family="clustered",
    authors="Vahidian et al.",
    year=2023,
    paper="Efficient distribution similarity identification in clustered federated learning via "
    "principal angles between client data subspaces",
    venue="AAAI",
    link="https://arxiv.org/abs/2209.10526",
    communication="one model down, one update up; in the first round also p · features floats up "
    "per client (and label). Clients that arrive later get all models once",
)
READINGS = (
    Reading(
        "Distance",
        paper="the smallest principal angle of two subspaces (1.0 to 1.5; 1.7 to 3.6; 1.4 to "
        "6.8), or tr arccos(UᵀV), the sum of the angles between the first vectors, the "
        "second ones, … (22 to 66; 33 to 132; 33 to 130)",
        here="the program's, the smallest angle between any two vectors of any labels (1.3 to "
        "2.4; 1.4 to 3.1; 3.1 to 13.6), for which its threshold was found. In "
        "brackets: degrees on CIFAR-10 with 500 samples of two labels per client, between "
        "clients of the same two labels, of one in common, and of none",
        option=('how = "smallest"', 'how = "trace"'),
    ),
    Reading(
        "Sum",
        paper="not used",
        here="the sum of all p principal angles",
        option='how = "sum"',
    ),
    Reading(
        "Per label",
        paper="not used",
        here="cfljax's own, not PACFL: the smallest principal angle per label, averaged over the "
        "labels that either client holds; a label of only one counts as orthogonal (1.5 to "
        "2.1; 60.5 to 60.8; 90). At 4.9 only this finds the clients of the same labels",
        option='how = "labels"',
    ),
    Reading(
        "Clustering",
        paper="hierarchical, cut at a threshold",
        here="weighted linkage (the program calls it average) at 4.9 degrees, as in the "
        "program's CIFAR-10 run",
        option=("linkage", "threshold"),
    ),
    Reading(
        "Vectors per label",
        paper="p",
        here="p; the program divides 20 among a client's labels with Dirichlet data",
        option="p",
    ),
    BY_SAMPLES,
)

# Samples gathered at a time
BLOCK = 1024
HOW = ("vectors", "smallest", "trace", "sum", "labels")
# Distances for which a client sends vectors of each label's samples
BY_LABEL = (
    "vectors",
    "labels",
)


@dataclasses.dataclass(frozen=True)
class PACFL(FedAvg):
    """PACFL: clusters from the angles between the clients' data subspaces.

    Before the first round each client sends the `p` leading left singular vectors of its data, or
    of each label's samples, f64[M, p, F] for F features. Agglomerative clustering with `linkage`
    merges clusters up to the distance `threshold` in degrees, by the angles that `how` names. All
    rounds are FedAvg by `average` inside the clusters.
    """

    diagnostics = {
        "found": Quantity("clusters that were found"),
    }
    joining = Joining(trains=False)
    compares_all = True
    reveals = "the clustering by singular vectors of the clients' data"

    p: int = option(3, "singular vectors that a client sends", low=1)
    how: str = option(
        "vectors",
        'distance from the angles between what two clients send ("labels": cfljax\'s own)',
        choices=HOW,
    )
    linkage: str = option(
        "weighted", "distance of clusters", choices=("weighted", "average", "complete", "single")
    )
    threshold: float = option(
        4.9,
        "degrees above which clusters are not merged",
        low=0.0,
        traced=True,
        search=(2.0, 30.0, "log"),
    )

    @property
    def places_unlabelled(self) -> bool:
        """Whether a newcomer's vectors are of all its samples."""
        return self.how not in BY_LABEL

    def check_labels(self, where: str) -> None:
        """Vectors of each label's samples need one label for each sample; raises SpecError."""
        if self.how in BY_LABEL:
            raise SpecError(
                f'{where}.how = "{self.how}": needs one class per sample; set how = '
                '"smallest", "trace" or "sum"'
            )

    def begin(self, ask: Before) -> InitialClusters:
        """HOST. Hierarchical clustering of what the clients send."""
        ids = ask.clients_to_cluster()
        new = ask.newcomers()
        by_label = self.how in BY_LABEL
        sent = subspaces(ask.federation, ids, self.p, by_label)
        # Equal clients are one cluster
        cut = max(float(ask.hyper["threshold"]), float(np.finfo(np.float64).tiny))
        own = host.agglomerative(
            distances(sent, self.how), distance_threshold=cut, linkage=self.linkage
        )
        size = int(sent.held.sum()) * self.p * sent.bases.shape[3]
        if size >= 2**31:
            raise SpecError(
                f"method.pacfl.p = {self.p}: the clients would send {size} floats; give a smaller p"
            )
        active = mark_slots(int(own.max()) + 1)
        joining = None
        if len(new):
            both = concatenate(sent, subspaces(ask.federation, new, self.p, by_label))
            joining = ask.labels_from_pairs(
                (new, nearest_clusters(both, own, self.how, self.linkage))
            )
        models = np.tile(ask.first_model(), (len(active), 1))
        extras = {"found": np.array(active.sum())}
        return InitialClusters(
            models, ask.labels_from_pairs((ids, own)), joining, active, floats=size, extras=extras
        )

    def join(self, ask: Ask, state: State) -> Array:
        """Return i32[S]: the clusters that participants join, by the loss; newcomers have their
        nearest cluster."""
        if state.labels_if_joining is None:
            return super().join(ask, state)
        known = state.labels_if_joining[ask.cohort.ids]
        return jnp.where(known >= 0, known, ask.least(self.score(ask.of(known < 0), state)))


def subspaces(federation: Federation, ids: np.ndarray, p: int, per_label: bool) -> Subspaces:
    """HOST. The p leading left singular vectors of the data of clients ids i32[n], or of each
    label's samples."""
    kinds = federation.classes if per_label else 1
    bases: np.ndarray | None = None
    held = np.zeros((len(ids), kinds), bool)
    for i, (x, y) in enumerate(client_samples(federation, ids)):
        if bases is None:
            bases = np.zeros((len(ids), kinds, p, x.shape[1]))
        for label in np.unique(y) if per_label else (0,):
            own = x[y == label] if per_label else x
            bases[i, label] = leading(own.astype(np.float64), p)
            held[i, label] = len(own) > 0
    assert bases is not None
    return Subspaces(bases, held)


def client_samples(
    federation: Federation, ids: np.ndarray, see: Callable[[Array], Array] = lambda x: x
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """HOST. (x f32[n_i, F], y i32[n_i]) of one client after the other as the model sees them,
    without broken samples. `see`: what is made of samples f32[B, ...]."""

    @jax.jit
    def gather(
        federation: Federation, rows: Array, clients: Array, mask: Array
    ) -> tuple[Array, Array]:
        x, y = samples(federation, clients, rows, mask)
        return see(x), y

    split = federation.train
    rows, start, count = (np.asarray(a) for a in (split.rows, split.start, split.count))
    for c in ids:
        own = rows[start[c] : start[c] + count[c]]
        pieces = []
        for at in range(0, len(own), BLOCK):
            part = own[at : at + BLOCK]
            block = np.zeros(min(BLOCK, 1 << max(len(own) - 1, 0).bit_length()), np.int32)
            block[: len(part)] = part
            x, y = gather(
                *_these(federation, block),
                np.full(len(block), c, np.int32),
                np.arange(len(block)) < len(part),
            )
            pieces.append(
                (np.asarray(x)[: len(part)].reshape(len(part), -1), np.asarray(y)[: len(part)])
            )
        x, y = (np.concatenate(each) for each in zip(*pieces, strict=True))
        usable = np.isfinite(x).all(axis=1)
        yield x[usable], y[usable]


def _these(federation: Federation, rows: np.ndarray) -> tuple[Federation, np.ndarray]:
    """Return the federation and pool rows i32[B]; where the pool is on the host, the federation
    with these rows for a pool."""
    pool = federation.pool
    if not isinstance(pool.x, np.ndarray):
        return federation, rows
    return dataclasses.replace(
        federation, pool=pool._replace(x=pool.x[rows], y=np.asarray(pool.y)[rows])
    ), np.arange(len(rows))
