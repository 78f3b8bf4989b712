from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.json_rows_py import JsonFault, JsonNode, Parsed

def parse_json(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], nodes: Sequence[JsonNode]
) -> list[Parsed] | JsonFault: ...
