"""A data set that a strategy has drawn, and what further operators must know of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from hypothesis import strategies as st

from aiostream_data import Dataset

Kind = Literal["number", "row", "batch", "other"]
"""What an element is: one number; a structure that can be stacked; a batch; or what only map() can use."""


@dataclass(frozen=True)
class Drawn:
    """A data set, and what further operators must know of it.

    Attributes:
        text: The program that makes it.
        most: Upper bound of the number of elements.
        ordered: False when the order may differ between runs, but not the elements.
        rows: Upper bound of the rows of an element that is a batch.
        row_kind: What those rows are.
        named: Rows can be told from each other by where they came from, whatever their order: random draws for them
            do not depend on it. Not so behind ``batch``, whose elements are named by their place.
        free: No operator depends on the order of its input, so that ``deterministic=False`` changes no element.
    """

    text: str
    dataset: Dataset[Any]
    kind: Kind
    most: int
    ordered: bool = True
    rows: int = 1
    row_kind: Kind = "other"
    free: bool = True
    named: bool = True

    def __repr__(self) -> str:
        return self.text

    @property
    def may_draw(self) -> bool:
        """Whether a function may draw at random for a row, and the elements still be the same in every run."""
        return self.named or (self.ordered and not self.free)

    def then(self, call: str, dataset: Dataset[Any], **changes: Any) -> Drawn:
        """Return this plan with one operator more."""
        return replace(self, text=f"{self.text}.{call}", dataset=dataset, **changes)


Draw = st.DrawFn
ROWS = st.sampled_from([0, 1, 2, 5, 9, 14, 20, 30])
SEEDS = st.one_of(st.none(), st.integers(0, 3))


def written(begin: str, options: dict[str, Any]) -> str:
    """Return a call as it is written."""
    return ", ".join([begin, *(f"{name}={value}" for name, value in options.items())]) + ")"
