"""The clustering methods. Each has its own file here, and one line below that registers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cfljax.registry import Registry
from cfljax.round.config import MethodConfig

if TYPE_CHECKING:
    from cfljax.round.config import MakeMethod

METHODS: Registry[MakeMethod[Any]] = Registry(
    "method",
    {
        "fedavg": "cfljax.methods.fedavg:fedavg",
        "fedprox": "cfljax.methods.fedprox:fedprox",
        "fedavg_ft": "cfljax.methods.finetuned:fedavg_ft",
        "fedprox_ft": "cfljax.methods.finetuned:fedprox_ft",
        "scaffold": "cfljax.methods.scaffold:scaffold",
        "feddyn": "cfljax.methods.feddyn:feddyn",
        "local": "cfljax.methods.local:local",
        "oracle": "cfljax.methods.oracle:oracle",
        "ccs_rfedavg": "cfljax.methods.ccs_rfedavg:ccs_rfedavg",
        "joint": "cfljax.methods.joint:joint",
        "ifca": "cfljax.methods.ifca:ifca",
        "ocfl": "cfljax.methods.ocfl:ocfl",
        "adaptive_fedavg": "cfljax.methods.adaptive_fedavg:adaptive_fedavg",
        "fedrod": "cfljax.methods.fedrod:fedrod",
        "moon": "cfljax.methods.moon:moon",
        "fedala": "cfljax.methods.fedala:fedala",
        "fedproto": "cfljax.methods.fedproto:fedproto",
        "fedpac": "cfljax.methods.fedpac:fedpac",
        "fedccfa": "cfljax.methods.fedccfa:fedccfa",
        "fedgwc": "cfljax.methods.fedgwc:fedgwc",
        "sr_fca": "cfljax.methods.sr_fca:sr_fca",
        "cfl_gp": "cfljax.methods.cfl_gp:cfl_gp",
        "ocfl_zuziak": "cfljax.methods.ocfl_zuziak:ocfl_zuziak",
        "fedgroup": "cfljax.methods.fedgroup:fedgroup",
        "fesem": "cfljax.methods.fesem:fesem",
        "fesem_flexcfl": "cfljax.methods.fesem_flexcfl:fesem_flexcfl",
        "flux": "cfljax.methods.flux:flux",
        "wecfl": "cfljax.methods.wecfl:wecfl",
        "cfl_mgd": "cfljax.methods.cfl_mgd:cfl_mgd",
        "fedbcd": "cfljax.methods.fedbcd:fedbcd",
        "cfl_sattler": "cfljax.methods.cfl_sattler:cfl_sattler",
        "fl_hc": "cfljax.methods.fl_hc:fl_hc",
        "pacfl": "cfljax.methods.pacfl:pacfl",
        "ditto": "cfljax.methods.ditto:ditto",
        "one_shot": "cfljax.methods.one_shot:one_shot",
        "fedem": "cfljax.methods.fedem:fedem",
        "fedrc": "cfljax.methods.fedrc:fedrc",
        "fedsoft": "cfljax.methods.fedsoft:fedsoft",
        "apfl": "cfljax.methods.apfl:apfl",
        "pfedme": "cfljax.methods.pfedme:pfedme",
        "per_fedavg": "cfljax.methods.per_fedavg:per_fedavg",
        "fedamp": "cfljax.methods.fedamp:fedamp",
        "pfedgraph": "cfljax.methods.pfedgraph:pfedgraph",
        "stocfl": "cfljax.methods.stocfl:stocfl",
        "feddrift": "cfljax.methods.feddrift:feddrift",
        "fedper": "cfljax.methods.fedper:fedper",
        "fedbn": "cfljax.methods.fedbn:fedbn",
        "lg_fedavg": "cfljax.methods.lg_fedavg:lg_fedavg",
        "fedrep": "cfljax.methods.fedrep:fedrep",
        "fedbabu": "cfljax.methods.fedbabu:fedbabu",
    },
    "cfljax.methods",
    MethodConfig,
)
