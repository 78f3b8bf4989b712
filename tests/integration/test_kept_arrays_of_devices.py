"""Large arrays that a device cannot store stay NumPy arrays in the batches of ``to_device()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, RaggedArray
from aiostream_data.device.layout import is_numeric
from aiostream_data.rows.parts import may_be_in_parts

DTYPES = ["U3", "S30", "M8[s]", "m8[s]", "f16", ">f4", ">i8"]


def rows(dtype: str, grows: bool) -> Dataset[Any]:
    def made(number: Any) -> dict[str, Any]:
        return {"a": np.arange(20_000 + (int(number) if grows else 0)).astype(dtype), "n": number}

    return Dataset.range(4).map(made)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("grows", "batched"),
    [
        (False, lambda dataset: dataset.batch(2)),
        (True, lambda dataset: dataset.padded_batch(2)),
        (True, lambda dataset: dataset.ragged_batch(2)),
    ],
    ids=["batch", "padded_batch", "ragged_batch"],
)
def test_large_arrays_that_are_not_stored_are_arrays_of_numpy(
    dtype: str, grows: bool, batched: Callable[[Dataset[Any]], Dataset[Any]]
) -> None:
    expected = list(batched(rows(dtype, grows)))
    found = list(batched(rows(dtype, grows)).to_device("cpu"))
    for batch, other in zip(found, expected, strict=True):
        assert type(batch["a"]) is type(other["a"])
        for mine, its in zip(batch["a"], other["a"], strict=True):
            assert isinstance(mine, np.ndarray)
            np.testing.assert_array_equal(mine, its)
        if isinstance(batch["a"], RaggedArray):
            assert isinstance(batch["a"].values, np.ndarray)


@pytest.mark.parametrize("dtype", [*DTYPES, "f2", "f4", "f8", "i1", "u8", "c8", "c16", "c32", "?", "O", "V4"])
def test_only_arrays_that_devices_store_may_be_in_parts(dtype: str) -> None:
    assert may_be_in_parts(np.dtype(dtype), for_device=True) == is_numeric(np.dtype(dtype))
