import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.tar_py import TarWalk

def walk_tar(buffer: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> TarWalk: ...
def find_tar_header(buffer: NDArray[np.uint8], start: int, stop: int) -> int: ...
