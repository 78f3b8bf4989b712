"""The function that P3 maps: the same libraries, in the same way, for everyone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import simplejpeg

from benchmarks.images import SIDE

cv2.setNumThreads(1)  # parallelism is the loader's business


def load(path: str) -> dict[str, Any]:
    """Read a JPEG, decode it with libjpeg-turbo and resize it: uint8 (224, 224, 3), and its number."""
    with open(path, "rb") as file:
        pixels = simplejpeg.decode_jpeg(file.read())
    image = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    return {"image": image, "label": int(Path(path).stem)}
