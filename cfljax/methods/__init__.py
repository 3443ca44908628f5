"""The clustering methods. Each has its own file here, and one line below that registers it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cfljax.registry import Registry
from cfljax.round.config import MethodConfig

if TYPE_CHECKING:
    from cfljax.round.about import About
    from cfljax.round.config import MakeMethod

METHODS: Registry[MakeMethod[Any]] = Registry(
    "method",
    {
        "fedavg": "cfljax.methods.fedavg:FedAvg",
        "fedprox": "cfljax.methods.fedprox:FedProx",
        "fedavg_ft": "cfljax.methods.fedavg_ft:FedAvgFT",
        "fedprox_ft": "cfljax.methods.fedprox_ft:FedProxFT",
        "scaffold": "cfljax.methods.scaffold:Scaffold",
        "feddyn": "cfljax.methods.feddyn:FedDyn",
        "local": "cfljax.methods.local:Local",
        "oracle": "cfljax.methods.oracle:Oracle",
        "ccs_rfedavg": "cfljax.methods.ccs_rfedavg:ccs_rfedavg",
        "joint": "cfljax.methods.joint:Joint",
        "ifca": "cfljax.methods.ifca:IFCA",
        "ocfl": "cfljax.methods.ocfl:OCFL",
        "adaptive_fedavg": "cfljax.methods.adaptive_fedavg:AdaptiveFedAvg",
        "fedrod": "cfljax.methods.fedrod:FedRoD",
        "moon": "cfljax.methods.moon:Moon",
        "fedala": "cfljax.methods.fedala:FedALA",
        "fedproto": "cfljax.methods.fedproto:FedProto",
        "fedpac": "cfljax.methods.fedpac:FedPAC",
        "fedccfa": "cfljax.methods.fedccfa:FedCCFA",
        "fedgwc": "cfljax.methods.fedgwc:FedGWC",
        "sr_fca": "cfljax.methods.sr_fca:SRFCA",
        "cfl_gp": "cfljax.methods.cfl_gp:CFLGP",
        "ocfl_zuziak": "cfljax.methods.ocfl_zuziak:OCFLZuziak",
        "fedgroup": "cfljax.methods.fedgroup:FedGroup",
        "fesem": "cfljax.methods.fesem:FeSEM",
        "fesem_flexcfl": "cfljax.methods.fesem_flexcfl:FeSEMFlexCFL",
        "fedclust": "cfljax.methods.fedclust:FedClust",
        "flux": "cfljax.methods.flux:Flux",
        "wecfl": "cfljax.methods.wecfl:WeCFL",
        "cfl_mgd": "cfljax.methods.cfl_mgd:CFLMGD",
        "fedbcd": "cfljax.methods.fedbcd:fedbcd",
        "cfl_sattler": "cfljax.methods.cfl_sattler:Sattler",
        "fl_hc": "cfljax.methods.fl_hc:FLHC",
        "pacfl": "cfljax.methods.pacfl:PACFL",
        "ditto": "cfljax.methods.ditto:Ditto",
        "one_shot": "cfljax.methods.one_shot:OneShot",
        "fedem": "cfljax.methods.fedem:FedEM",
        "fedrc": "cfljax.methods.fedrc:FedRC",
        "fedsoft": "cfljax.methods.fedsoft:fedsoft",
        "apfl": "cfljax.methods.apfl:APFL",
        "pfedme": "cfljax.methods.pfedme:PFedMe",
        "per_fedavg": "cfljax.methods.per_fedavg:PerFedAvg",
        "fedamp": "cfljax.methods.fedamp:FedAMP",
        "pfedgraph": "cfljax.methods.pfedgraph:PFedGraph",
        "gossip": "cfljax.methods.gossip:Gossip",
        "stocfl": "cfljax.methods.stocfl:StoCFL",
        "feddrift": "cfljax.methods.feddrift:FedDrift",
        "fedper": "cfljax.methods.fedper:FedPer",
        "fedbn": "cfljax.methods.fedbn:FedBN",
        "lg_fedavg": "cfljax.methods.lg_fedavg:LGFedAvg",
        "fedrep": "cfljax.methods.fedrep:FedRep",
        "fedbabu": "cfljax.methods.fedbabu:FedBABU",
    },
    "cfljax.methods",
    MethodConfig,
    "cfljax.round.entry:entry",
)


def find_about(name: str) -> About | None:
    """Return `ABOUT` of the method's file; None for a method of a plug-in."""
    if not METHODS.is_built_in(name):
        return None
    found: About = vars(sys.modules[METHODS.entry(name).make.__module__])["ABOUT"]
    return found
