import numpy as np
from numpy.typing import NDArray

def first_invalid_utf8(values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> int: ...
