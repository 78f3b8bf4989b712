from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.csv_rows_py import CsvFault, Parsed

def find_csv_records(
    buffer: NDArray[np.uint8], start: int, stop: int, delimiter: int, quote: int, most_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int]: ...
def scan_csv(
    buffer: NDArray[np.uint8], start: int, stop: int, delimiter: int, quote: int, state: int
) -> tuple[int, int]: ...
def parse_csv(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    kinds: Sequence[int],
    delimiter: int,
    quote: int,
    na_values: Sequence[bytes],
) -> list[Parsed] | CsvFault: ...
def unescape_csv(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], quote: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]: ...
def reorder_csv(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    order: NDArray[np.int64],
    delimiter: int,
    quote: int,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]: ...
