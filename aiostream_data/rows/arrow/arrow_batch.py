"""Batches as Arrow record batches, for libraries that support the Arrow PyCapsule interface."""

from __future__ import annotations

from typing import Any

from aiostream_data import _native
from aiostream_data.rows.arrow.exporting import export_element


class ArrowBatch:
    """A batch that PyArrow, Polars, DuckDB and other Arrow libraries read without a copy.

    Dicts, tuples, NamedTuples and dataclasses become structs. The fields of a tuple have the names ``"0"``, ``"1"``,
    and so on. A batch that is one array has one column named ``"element"``.

    Numbers, dates, ragged values and their row splits are shared with the Arrow library. Booleans, days and object
    arrays of text are copied once, by the constructor. Do not modify the arrays of the batch while the Arrow library
    uses them.

    Example::

        import numpy as np
        import aiostream_data as asd

        batch = asd.ArrowBatch({"x": np.arange(3)})
        schema, array = batch.__arrow_c_array__()

    Args:
        element: A batch: arrays with the same number of rows, in any nesting of dicts, tuples and dataclasses.

    Attributes:
        element: The batch that was passed.

    Raises:
        ArrowTypeError: A leaf has no Arrow form. The message contains the path of the leaf.
        ArrowDataError: The leaves differ in their number of rows, or a value does not fit into its Arrow type.
    """

    __slots__ = ("_field", "element")

    def __init__(self, element: Any) -> None:
        self.element = element
        self._field = export_element(element)

    def __len__(self) -> int:
        return self._field.length

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowBatch, (self.element,)

    def __repr__(self) -> str:
        return f"ArrowBatch({len(self)} rows: {', '.join(child.name for child in self._field.children)})"

    def __arrow_c_schema__(self) -> object:
        """Return an ``arrow_schema`` capsule."""
        return _native.export_schema(self._field)

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return an ``arrow_schema`` capsule and an ``arrow_array`` capsule. ``requested_schema`` is ignored."""
        return _native.export_schema(self._field), _native.export_array(self._field)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return an ``arrow_array_stream`` capsule with one record batch. ``requested_schema`` is ignored."""
        return _native.export_stream([self._field], self._field)
