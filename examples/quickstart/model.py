"""A classifier with one hidden layer in NumPy, trained by gradient descent with momentum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

HIDDEN, LEARNING_RATE, MOMENTUM = 48, 0.1, 0.9
Floats = NDArray[np.float32]


class Model:
    """pixels -> hidden (ReLU) -> classes (softmax)."""

    def __init__(self, pixels: int, classes: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.weights = [_initial(rng, pixels, HIDDEN), _initial(rng, HIDDEN, classes)]
        self.biases = [np.zeros(HIDDEN, np.float32), np.zeros(classes, np.float32)]
        self._speeds = [np.zeros_like(parameter) for parameter in (*self.weights, *self.biases)]

    def learn(self, images: Floats, labels: NDArray[np.int64]) -> float:
        """Take one step on a batch; return its mean cross-entropy before the step."""
        hidden, chances = self._forward(images)
        rows = np.arange(len(labels))
        loss = float(-np.log(chances[rows, labels] + 1e-9).mean())
        chances[rows, labels] -= 1
        error = chances / np.float32(len(labels))
        hidden_error = (error @ self.weights[1].T) * (hidden > 0)
        gradients = (images.T @ hidden_error, hidden.T @ error, hidden_error.sum(0), error.sum(0))
        for parameter, speed, gradient in zip((*self.weights, *self.biases), self._speeds, gradients, strict=True):
            speed *= np.float32(MOMENTUM)
            speed -= np.float32(LEARNING_RATE) * gradient
            parameter += speed
        return loss

    def predict(self, images: Floats) -> NDArray[np.int64]:
        """Return the likeliest class of every image."""
        return np.asarray(self._forward(images)[1].argmax(1), np.int64)

    def _forward(self, images: Floats) -> tuple[Floats, Floats]:
        hidden = np.maximum(images @ self.weights[0] + self.biases[0], 0)
        scores = hidden @ self.weights[1] + self.biases[1]
        chances = np.exp(scores - scores.max(1, keepdims=True))
        return hidden, chances / chances.sum(1, keepdims=True)


def _initial(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    return rng.normal(0, np.sqrt(2 / rows), (rows, columns)).astype(np.float32)
