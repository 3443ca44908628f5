"""Scores, inputs and bills of a run, recomputed in plain numpy from its models and its data."""

import math

import numpy as np

EPSILON = 1e-5


def forward(params, x, batch=False):
    """f64[n, classes]: the outputs of linear, dense and convolutional networks. `batch`: layers of
    normalisation take the statistics of these samples instead of the running ones."""
    x = np.asarray(x, np.float64)
    if "conv_0" in params:
        for number in range(sum(name.startswith("conv_") for name in params)):
            x = convolve(x, params[f"conv_{number}"])
            x = pool(normalise(x, params[f"norm_{number}"], batch))
            x = np.maximum(x, 0)
        params = params["head"]
    x = x.reshape(len(x), math.prod(x.shape[1:]))
    layers = sorted(params)
    for name in layers:
        x = x @ np.asarray(params[name]["kernel"], np.float64) + params[name]["bias"]
        x = x if name == layers[-1] else np.maximum(x, 0)
    return x


def convolve(x, layer):
    """A convolution that keeps the size of images [n, H, W, channels]."""
    kernel = np.asarray(layer["kernel"], np.float64)
    size = len(kernel)
    before = (size - 1) // 2
    around = (before, size - 1 - before)
    wide = np.pad(x, ((0, 0), around, around, (0, 0)))
    height, width = x.shape[1:3]
    total = np.zeros((*x.shape[:3], kernel.shape[-1])) + layer["bias"]
    for i in range(size):
        for j in range(size):
            total += wide[:, i : i + height, j : j + width] @ kernel[i, j]
    return total


def normalise(x, layer, batch):
    """Batch normalisation of the channels."""
    axes = (0, 1, 2)
    mean = x.mean(axes) if batch else layer["running_mean"]
    variance = x.var(axes) if batch else layer["running_var"]
    return (x - mean) / np.sqrt(variance + EPSILON) * layer["scale"] + layer["bias"]


def pool(x):
    """The largest values of squares of two by two."""
    n, height, width, channels = x.shape
    return x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))


def log_softmax(logits):
    logits = logits - logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def losses(log_p, y):
    """f64[n]: the loss of each sample."""
    return -log_p[np.arange(len(y)), y]


def scores(log_p_of, samples):
    """(right answers, losses, samples) of each client: three arrays. `log_p_of(client, x)` are its
    log-probabilities, `samples` its (x, y)."""
    right, lost, count = [], [], []
    for client, (x, y) in enumerate(samples):
        log_p = log_p_of(client, x)
        right.append((log_p.argmax(1) == y).sum())
        lost.append(losses(log_p, y).sum())
        count.append(len(y))
    return np.array(right), np.array(lost), np.array(count)


def columns(right, lost, count, who):
    """The columns of the history, of the clients `who` bool[C]."""
    right, lost, count = (each[who] for each in (right, lost, count))
    accuracies = right / count
    worst = np.sort(accuracies)[: math.ceil(len(accuracies) / 10)]
    return {
        "accuracy": right.sum() / count.sum(),
        "loss": lost.sum() / count.sum(),
        "accuracy_client_mean": accuracies.mean(),
        "accuracy_worst10": worst.mean(),
        "accuracy_client_std": np.sqrt(((accuracies - accuracies.mean()) ** 2).mean()),
    }


class Data:
    """What each client sees of a federation (numpy arrays), by an own gather and own statistics."""

    def __init__(self, federation, how):
        self.federation = federation
        self.raw = np.asarray(federation.pool.x, np.float64).reshape(len(federation.pool.x), -1)
        self.shape = federation.pool.x.shape[1:]
        if how == "unit":
            self.mean, self.factor = 0.0, 1 / 255
        else:
            trains = np.flatnonzero(np.asarray(federation.arrive) < 2**31 - 1)
            seen = np.concatenate([self._turned(c, self.rows("train", c)) for c in trains])
            self.mean, deviation = seen.mean(0), seen.std(0)
            least = self._range() / 255
            varies = deviation > 0
            self.factor = varies / np.where(varies, np.maximum(deviation, least), 1.0)

    def _range(self):
        view = self.federation.view
        if view is None or view.pixels is None:
            return self.raw.max(0) - self.raw.min(0)
        return self.raw.max() - self.raw.min()

    def rows(self, split, client):
        """The rows of the pool that a client has in this split."""
        split = getattr(self.federation, split)
        start, count = int(split.start[client]), int(split.count[client])
        return np.asarray(split.rows)[start : start + count]

    def _turned(self, client, rows):
        """The values of these samples, as the client's view shows them, before any scaling."""
        view, lines = self.federation.view, self.raw[rows]
        if view is None or view.pixels is None:
            return lines
        source = np.asarray(view.pixels)[view.of[client]]
        return np.where(source < 0, 0.0, lines[:, source])

    def scaled(self, split, client):
        """f64[n, F]: its samples, normalised, without the factor and offset of its view."""
        return (self._turned(client, self.rows(split, client)) - self.mean) * self.factor

    def samples(self, split, client):
        """(x, y) as the client's model sees them."""
        x, y = (
            self.scaled(split, client),
            np.asarray(self.federation.pool.y)[self.rows(split, client)],
        )
        view = self.federation.view
        if view is not None:
            of = view.of[client]
            x = x * (1 if view.gain is None else view.gain[of])
            x = x + (0 if view.offset is None else view.offset[of])
            y = y if view.labels is None else np.asarray(view.labels)[of][y]
        return x.reshape(-1, *self.shape), y
