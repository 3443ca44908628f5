"""ResNet-18, MobileNetV2 and the vision transformer as torchvision and timm define them, in plain
numpy float64 on their own names of parameters, with group or batch normalisation. Images are f64[B,
c, H, W]."""

import math

import numpy as np


def convolution(x, kernel, stride=1, pad=None, alone=False):
    """`torch.nn.functional.conv2d`; `alone`: groups = channels."""
    pad = kernel.shape[2] // 2 if pad is None else pad
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    rows, columns = (
        (side - k) // stride + 1 for side, k in zip(x.shape[2:], kernel.shape[2:], strict=True)
    )
    out = np.zeros((len(x), len(kernel), rows, columns))
    for i in range(kernel.shape[2]):
        for j in range(kernel.shape[3]):
            seen = x[
                :,
                :,
                i : i + stride * (rows - 1) + 1 : stride,
                j : j + stride * (columns - 1) + 1 : stride,
            ]
            out += (
                seen * kernel[:, 0, i, j][None, :, None, None]
                if alone
                else np.einsum("bchw,oc->bohw", seen, kernel[:, :, i, j])
            )
    return out


def groups(x, of, name, number=2):
    """`torch.nn.GroupNorm` of that number of groups; `torch.nn.BatchNorm2d` in evaluation, if `of`
    has its statistics."""
    if f"{name}.running_mean" in of:
        mean, variance, scale, bias = (
            of[f"{name}.{word}"][:, None, None]
            for word in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / np.sqrt(variance + 1e-5) * scale + bias
    parts = x.reshape(len(x), number, -1)
    parts = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
    return (
        parts.reshape(x.shape) * of[f"{name}.weight"][:, None, None]
        + of[f"{name}.bias"][:, None, None]
    )


def resnet(of, x, large):
    """torchvision's `ResNet` of `BasicBlock`s."""
    x = np.maximum(groups(convolution(x, of["conv1.weight"], 2 if large else 1), of, "bn1"), 0)
    if large:
        wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        rows, columns = (range(0, side, 2) for side in x.shape[2:])
        x = np.stack(
            [
                np.stack([wide[:, :, i : i + 3, j : j + 3].max((2, 3)) for j in columns], -1)
                for i in rows
            ],
            -2,
        )
    blocks = sorted({tuple(name.split(".")[:2]) for name in of if name.startswith("layer")})
    for layer, number in blocks:
        at, stride = f"{layer}.{number}", 2 if layer != "layer1" and number == "0" else 1
        y = np.maximum(groups(convolution(x, of[f"{at}.conv1.weight"], stride), of, f"{at}.bn1"), 0)
        y = groups(convolution(y, of[f"{at}.conv2.weight"]), of, f"{at}.bn2")
        if f"{at}.downsample.0.weight" in of:
            x = groups(
                convolution(x, of[f"{at}.downsample.0.weight"], stride, 0), of, f"{at}.downsample.1"
            )
        x = np.maximum(x + y, 0)
    return x.mean((2, 3)) @ of["fc.weight"].T + of["fc.bias"]


def mobilenet(of, x, strides):
    """torchvision's `MobileNetV2`; `strides`: of the first convolution and of each block."""
    six = lambda x: np.clip(x, 0, 6)  # noqa: E731
    x = six(groups(convolution(x, of["features.0.0.weight"], strides[0]), of, "features.0.1"))
    for number, stride in enumerate(strides[1:], 1):
        at, y = f"features.{number}.conv", x
        wider = f"{at}.3.weight" in of
        if wider:
            y = six(groups(convolution(y, of[f"{at}.0.0.weight"]), of, f"{at}.0.1"))
        deep = f"{at}.{1 if wider else 0}"
        y = six(groups(convolution(y, of[f"{deep}.0.weight"], stride, alone=True), of, f"{deep}.1"))
        out = 2 if wider else 1
        y = groups(convolution(y, of[f"{at}.{out}.weight"]), of, f"{at}.{out + 1}")
        x = x + y if x.shape == y.shape else y
    last = f"features.{len(strides)}"
    x = six(groups(convolution(x, of[f"{last}.0.weight"]), of, f"{last}.1")).mean((2, 3))
    return x @ of["classifier.1.weight"].T + of["classifier.1.bias"]


def normalised(x, of, name):
    """`torch.nn.LayerNorm` with epsilon 1e-6."""
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    return x * of[f"{name}.weight"] + of[f"{name}.bias"]


def affine(x, of, name):
    """`torch.nn.Linear`."""
    return x @ of[f"{name}.weight"].T + of[f"{name}.bias"]


_erf = np.vectorize(math.erf)


def vision(of, x, heads):
    """timm's `VisionTransformer`, whose class token is read."""
    side = of["patch_embed.proj.weight"].shape[2]
    x = (
        convolution(x, of["patch_embed.proj.weight"], side, 0)
        + of["patch_embed.proj.bias"][:, None, None]
    )
    x = x.reshape(*x.shape[:2], -1).swapaxes(1, 2)
    x = np.concatenate([np.repeat(of["cls_token"], len(x), 0), x], 1) + of["pos_embed"]
    batch, length, width = x.shape
    depth = 1 + max(int(name.split(".")[1]) for name in of if name.startswith("blocks."))
    for at in (f"blocks.{number}" for number in range(depth)):
        together = affine(normalised(x, of, f"{at}.norm1"), of, f"{at}.attn.qkv")
        q, k, v = together.reshape(batch, length, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
        scores = np.exp(q @ k.swapaxes(2, 3) / math.sqrt(width // heads))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(x.shape)
        x = x + affine(mixed, of, f"{at}.attn.proj")
        y = affine(normalised(x, of, f"{at}.norm2"), of, f"{at}.mlp.fc1")
        x = x + affine(y * (1 + _erf(y / math.sqrt(2))) / 2, of, f"{at}.mlp.fc2")
    return affine(normalised(x, of, "norm")[:, 0], of, "head")
