"""Machines that plans are made for; none of them need be present."""

from cfljax.devices.machine import TYPICAL, Machine

GIB = 1 << 30


def cpu(devices=1, **more):
    return Machine(
        **{
            "backend": "cpu",
            "kind": "cpu",
            "devices": devices,
            "memory": 16 * GIB,
            "threads": 2,
            "known_speed": TYPICAL,
        }
        | more
    )


def gpu(devices=1, **more):
    return cpu(devices, **{"backend": "gpu", "kind": "NVIDIA H100", "memory": 80 * GIB} | more)


def tpu(devices=8, **more):
    return cpu(devices, **{"backend": "tpu", "kind": "TPU v5 lite", "memory": 16 * GIB} | more)
