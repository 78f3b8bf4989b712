import numpy as np
from numpy.typing import NDArray

def read_spans(
    file: int, offsets: NDArray[np.int64], lengths: NDArray[np.int64], ahead: bool = False
) -> NDArray[np.uint8]: ...
def crc32c_spans(
    values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]: ...
def highway_spans(
    values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], key: tuple[int, int, int, int]
) -> NDArray[np.uint64]: ...
