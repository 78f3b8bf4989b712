"""The function that P3 maps: the same libraries, in the same way, for everyone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from benchmarks.images import IMAGES, SIDE

cv2.setNumThreads(1)  # parallelism is the loader's business


def load(path: str) -> dict[str, Any]:
    """Read a JPEG, decode it with libjpeg-turbo and resize it: uint8 (224, 224, 3), and the number on it."""
    with open(path, "rb") as file:
        return {"image": decoded(file.read()), "label": int(Path(path).stem) % IMAGES}


def decoded(jpeg: bytes) -> NDArray[np.uint8]:
    """Decode a JPEG and resize it: uint8 (224, 224, 3)."""
    image: NDArray[np.uint8] = cv2.resize(simplejpeg.decode_jpeg(jpeg), (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    return image
