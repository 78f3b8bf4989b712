from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.example_py import ParsedFeature, ParseFault, Wanted

def parse_examples(
    values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], wanted: Sequence[Wanted]
) -> list[ParsedFeature] | ParseFault: ...
