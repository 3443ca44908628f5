"""Presets: names of published protocols that a spec may give as its partition. Each stands for the keys of the table `data` below,
which the spec may override one by one."""

from __future__ import annotations

from cfljax.registry.options import Table

_PLAIN = list(range(10))
_SWAPPED = [_PLAIN[:a] + [a + 1, a] + _PLAIN[a + 2 :] for a in (1, 3, 5)]
PRESETS: dict[str, Table] = {
    "fedrc": {
        "partition": "dirichlet", "balance": "equal", "alpha": 0.1, "clients": 300, "samples_per_client": 500,
        "views": [
            {"name": "label_permutation", "groups": 3, "labels": [_PLAIN, _PLAIN[::-1], [*_PLAIN[1:], 0]], "copies": True},
            {"name": "corrupted", "groups": 2, "kinds": ["none", "gaussian_noise"], "copies": True},
        ],
        "view_shares": [0.2, 0.2, 0.2, 0.1, 0.2, 0.1], "true_groups": "label_permutation",
    },
    "cfl_gp": {
        "partition": "dirichlet", "alpha": 1.0, "min_samples": 0, "clients": 128, "samples_per_client": 1562,
        "views": [{"name": "rotated", "groups": 2, "angles": [90.0, 0.0]}],
    },
    "anda": {"partition": "iid", "clients": 10, "views": [{"name": "rotated", "groups": 4}]},
    "fedccfa": {
        "partition": "dirichlet", "alpha": 0.5, "of_each_class": 5, "clients": 100,
        "views": [{"name": "label_permutation", "groups": 4, "labels": [_PLAIN, *_SWAPPED]}],
        "view_shares": [1.0, 0.0, 0.0, 0.0], "drift": {"kind": "sudden", "at": [100], "share": 1.0},
    },
}  # fmt: skip
"""Name -> keys of the table `data`. Labels are for data of ten classes."""
