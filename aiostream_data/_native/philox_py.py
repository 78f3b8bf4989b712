"""Move a ``numpy.random.Philox`` generator to another position: the pure-Python version of ``philox.pyx``."""

from __future__ import annotations

from typing import Any

import numpy as np


class PhiloxSeeker:
    """Moves one ``numpy.random.Philox`` generator to the random numbers of any row. Not thread-safe.

    Args:
        philox: The generator; a new one.
    """

    def __init__(self, philox: np.random.Philox) -> None:
        self._philox = philox
        self._fresh: Any = philox.state

    def seek(self, split: int, ordinal: int) -> None:
        """Move the generator to the beginning of the stream of a row."""
        counter = self._fresh["state"]["counter"]
        counter[2], counter[3] = split, ordinal
        self._philox.state = self._fresh
