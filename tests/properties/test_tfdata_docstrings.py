"""The examples in TensorFlow's docstrings: what is not compared, or differs, stands on the page with the reason."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from differential.translated_names import NAMESPACE
from differential.translation import UntranslatableError, translated

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "tests" / "data" / "tfdata_docstrings.json").read_text())
PAGE = (ROOT / "docs" / "migrate" / "tf_data.md").read_text()


def table_after(sentence: str) -> list[str]:
    """Return the names in the first column of the table after a sentence of the page."""
    _, _, rest = PAGE.partition(sentence)
    _, _, *rows = rest.strip().split("\n\n")[0].splitlines()
    assert all(len(row.split(" | ")[1]) > 10 for row in rows), "every row states a reason"
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def test_the_page_lists_the_names_whose_examples_are_left_out() -> None:
    skipped = {name for names in RECORD["skipped"].values() for name in names}
    assert sorted(table_after("Examples that use these names are left out:")) == sorted(skipped)


def test_the_page_lists_the_docstrings_whose_examples_differ() -> None:
    assert sorted(table_after("The examples of these docstrings give other results:")) == sorted(RECORD["different"])


def test_most_examples_are_compared() -> None:
    assert sum(RECORD["compared"].values()) > 350
    assert len(RECORD["compared"]) > 60


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("d.map(f, num_parallel_calls=2).as_numpy_iterator()", "d.map(f)"),
        ("d.window(2, shift=1)", "d.window(2, shift=1, as_datasets=True)"),
        ("d.reduce(0, f)", "d.reduce(f, 0)"),
        ("tf.data.Dataset.range(5, output_type=tf.int32)", "Dataset.range(5, dtype=np.int32)"),
        ("Dataset.from_tensors([1]).with_options(o)", "with_options(Dataset.from_tensors(tensors([1])), o)"),
        ("f(**d)", "f(**d)"),
    ],
)
def test_a_statement_is_rewritten_by_rules(theirs: str, ours: str) -> None:
    assert ast.unparse(translated(ast.parse(theirs).body[0], {})) == ours


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("tf.lookup.StaticHashTable(x)", "tf.lookup.StaticHashTable"),
        ("d.save(path)", "tf.data.Dataset.save"),
        ("tf.data.experimental.Counter(dtype=tf.int32)", "tf.data.experimental.Counter(dtype=)"),
    ],
)
def test_a_name_without_a_rule_is_told(code: str, name: str) -> None:
    with pytest.raises(UntranslatableError, match=re.escape(name)):
        translated(ast.parse(code).body[0], {"save": "tf.data.Dataset.save"})


def test_tensors_have_the_dtypes_of_tensorflow() -> None:
    tensors: Any = NAMESPACE["tensors"]
    made = tensors({"a": [1, 2], "b": (0.5, "x"), "c": [["x", "y"]]})
    assert made["a"].dtype.name == "int32"
    assert made["b"][0].dtype.name == "float32"
    assert made["b"][1] == b"x"
    assert made["c"].tolist() == [[b"x", b"y"]]
