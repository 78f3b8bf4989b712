"""Convert the records of an MDS shard to samples: dicts with the value of each column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import MdsError
from aiostream_data.formats.mds import uint32_at
from aiostream_data.formats.mds_columns import BadValue, MdsColumn
from aiostream_data.rows.columns import Column, VarColumn, column_elements
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.structure import LEAF, Structure

Describe = Callable[[int], tuple[str, int]]


@dataclass(frozen=True)
class MdsSamples:
    """Row-wise decoder that converts the bytes of samples to dicts.

    Chunks have one column per value, unless a column contains Python objects, such as JSON.

    Attributes:
        columns: All columns of a sample.
        select: Names of the columns to deliver, in this order.
    """

    columns: tuple[MdsColumn, ...]
    select: tuple[str, ...]

    wraps: ClassVar[bool] = False
    label: ClassVar[str] = "mds"

    @property
    def _selected(self) -> list[MdsColumn]:
        by_name = {column.name: column for column in self.columns}
        return [by_name[name] for name in self.select]

    @property
    def structure(self) -> Structure:
        """Structure of an element: a dict with one leaf per selected column."""
        return Structure("dict", self.select, (LEAF,) * len(self.select))

    @property
    def element_specs(self) -> tuple[tuple[tuple[int, ...], Any, bool], ...] | None:
        """Shape, dtype and ``ragged`` flag of each leaf of an element; None if they differ between rows."""
        if not self.columns or not all(column.is_columnar for column in self._selected):
            return None
        return tuple(column.spec for column in self._selected)

    def parse(self, chunk: Columns, describe: Describe) -> Chunk:
        """Convert all records of a chunk. Bytes and text refer to the memory of the records.

        Raises:
            MdsError: A value is invalid. The error names the file, the sample and the column.
        """
        (records,) = chunk.leaves
        assert isinstance(records, VarColumn)
        values = np.ascontiguousarray(records.values)
        places = self._places(values, records.starts)
        leaves = [self._column(column, values, *places[column.name], describe) for column in self._selected]
        columns = tuple(leaf for leaf in leaves if not isinstance(leaf, list))
        if len(columns) == len(leaves):
            return Columns(self.structure, columns, chunk.ids, chunk.lease, chunk.made_of)
        lists = [leaf if isinstance(leaf, list) else column_elements(leaf) for leaf in leaves]
        rows = [dict(zip(self.select, row, strict=True)) for row in zip(*lists, strict=True)]
        return Items(rows, chunk.ids, None, chunk.made_of)

    def _places(
        self, values: NDArray[np.uint8], starts: NDArray[np.int64]
    ) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Return the start and the length of each value, by column. The framer has checked their sum."""
        variable = [column for column in self.columns if column.nbytes is None]
        sizes = {column.name: uint32_at(values, starts + 4 * place) for place, column in enumerate(variable)}
        places = {}
        at = starts + 4 * len(variable)
        for column in self.columns:
            lengths = sizes.get(column.name)
            if lengths is None:
                lengths = np.full(len(starts), column.nbytes, np.int64)
            places[column.name] = at, lengths
            at = at + lengths
        return places

    def _column(
        self,
        column: MdsColumn,
        values: NDArray[np.uint8],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        describe: Describe,
    ) -> Column | list[Any]:
        try:
            read = column.column if column.is_columnar else column.objects
            return read(values, starts, lengths)
        except BadValue as error:
            url, record = describe(error.row)
            raise MdsError(url, record, column.name, error.reason) from error.__cause__
