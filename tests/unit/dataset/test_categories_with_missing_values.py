"""Categories of pandas with missing values: a missing value is None."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from aiostream_data import Dataset


def rows_of(values: Any) -> list[Any]:
    return [row["c"] for row in Dataset.from_dataframe(pd.DataFrame({"c": values}))]


@pytest.mark.parametrize(
    "values",
    [[1, 2, None], [1.5, None], [2**60 + 1, None], [True, None], ["a", None], [None, None], [1 + 2j, None]],
    ids=str,
)
def test_a_missing_value_of_a_category_is_none(values: list[Any]) -> None:
    assert rows_of(pd.Categorical(values)) == values


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.bool_, "Int16", "boolean"])
def test_a_missing_category_of_each_type_is_none(dtype: Any) -> None:
    categories = pd.Index(pd.array([1, 0], dtype=dtype))
    assert rows_of(pd.Categorical.from_codes([1, -1, 0], categories=categories)) == [0, None, 1]


def test_numbers_of_complete_categories_stay_an_array() -> None:
    (batch,) = Dataset.from_dataframe(pd.DataFrame({"c": pd.Categorical([3, 1, 3])})).batch(3)
    assert batch["c"].dtype == np.int64
    assert batch["c"].tolist() == [3, 1, 3]
