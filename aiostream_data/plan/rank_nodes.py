"""Nodes in the plan of a single rank.

The nodes of this module select the rank's rows, and give all ranks the same number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aiostream_data.plan.base import Operator, SameElements
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.spec import UNKNOWN_SPEC, ArraySpec, Spec, spec_of
from aiostream_data.plan.written import function_name
from aiostream_data.ranks import Tail, rows_per_rank
from aiostream_data.ranks.padding import marked_structure


@dataclass(frozen=True, eq=False, kw_only=True)
class RankShard(SameElements):
    """Node that emits one of every ``world_size`` consecutive rows: the row with index ``rank``."""

    is_transparent: ClassVar[bool] = True

    rank: int
    world_size: int
    tail: Tail

    @property
    def label(self) -> str:
        return "rank_shard"

    def detail(self) -> str:
        return f"rank {self.rank} of {self.world_size}, tail={self.tail}"


@dataclass(frozen=True, eq=False, kw_only=True)
class MarkPadding(Operator):
    """Node that adds a flag to each element of its input: True for data, False for padding.

    Attributes:
        batches: True if elements are batches. If elements are batches, each batch gets one flag per row.
    """

    is_transparent: ClassVar[bool] = True

    batches: bool = False

    @property
    def label(self) -> str:
        return "mark_padding"


@dataclass(frozen=True, eq=False, kw_only=True)
class EqualRows(SameElements):
    """The first ``rows`` elements. If the input has fewer than ``rows`` elements, the node repeats the last elements.

    Attributes:
        own: Minimum number of input elements of this rank, according to the user's ``counts``.
    """

    is_transparent: ClassVar[bool] = True

    rows: int
    own: int
    tail: Tail

    @property
    def label(self) -> str:
        return "equal_rows"

    def detail(self) -> str:
        return f"{self.rows}, own={self.own}, tail={self.tail}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Agree(SameElements):
    """Node that ends its input at the same time on all ranks.

    With ``tail="drop"``, all ranks stop when one rank has no more elements. With other values of ``tail``, ranks
    without more elements repeat their last elements until all ranks are finished.

    Attributes:
        consensus: Function that returns True only if all ranks called it with the argument True.
    """

    is_transparent: ClassVar[bool] = True

    consensus: Callable[[bool], bool]
    tail: Tail

    def detail(self) -> str:
        return f"{function_name(self.consensus)}, tail={self.tail}"


@spec_of.register
def _(node: MarkPadding) -> Spec:
    structure, leaves = spec_of(node.input)
    if leaves == (UNKNOWN_SPEC,):  # the element may be a dict, so the flag's place is unknown
        return structure, leaves
    flag = ArraySpec((None,) if node.batches else (), np.dtype(np.bool_))
    return marked_structure(structure), (*leaves, flag)


@cardinality.register
def _(node: RankShard) -> int:
    rows = cardinality(node.input)
    return rows if rows < 0 else rows_per_rank(rows, node.world_size, node.tail)


@cardinality.register
def _(node: MarkPadding) -> int:
    return cardinality(node.input)


@cardinality.register
def _(node: EqualRows) -> int:
    return node.rows


@cardinality.register
def _(node: Agree) -> int:
    return cardinality(node.input)
