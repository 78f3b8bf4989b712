"""Text with a lone surrogate, which UTF-8 cannot store, raises an error that names the record."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from aiostream_data import BatchShapeError, Dataset, PlanError, TextArray

BAD = "a\ud800"


@pytest.mark.parametrize("strings", ["columns", "string_dtype", "ragged", "padded"])
def test_a_batch_names_the_record_with_a_surrogate(strings: Any) -> None:
    rows = Dataset.range(3).map(lambda n: {"t": BAD if n == 1 else "ok"})
    with pytest.raises(BatchShapeError, match=r"leaf 't': the text of range record 1 contains a surrogate"):
        list(rows.batch(3, strings=strings))


def test_batches_of_objects_keep_surrogates() -> None:
    (batch,) = Dataset.range(2).map(lambda n: BAD).batch(2)
    assert batch.tolist() == [BAD, BAD]


def test_a_text_array_names_the_row_with_a_surrogate() -> None:
    with pytest.raises(PlanError, match=r"cannot create a TextArray: the text of row 2 contains a surrogate"):
        TextArray.from_list(["b", None, BAD])


def test_from_list_names_the_element_with_a_surrogate() -> None:
    with pytest.raises(PlanError, match=r"leaf 't' of element 1: the text contains a surrogate"):
        Dataset.from_list([{"t": "b"}, {"t": BAD}])


def test_from_dataframe_names_the_column_and_the_row_with_a_surrogate() -> None:
    with pytest.raises(PlanError, match=r"column 't': the text of row 1 contains a surrogate"):
        Dataset.from_dataframe(pd.DataFrame({"t": pd.Series(["b", BAD], dtype=object)}))
