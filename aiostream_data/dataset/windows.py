"""Operators of a data set that put several rows into one element: padded, windowed, bucketed, packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aiostream_data.arguments import flag, several, word
from aiostream_data.dataset.element_checks import check_length_of, check_packing, check_padding, known_shapes
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import Node, at_least
from aiostream_data.plan.operators import OPEN_BINS

if TYPE_CHECKING:
    from aiostream_data.dataset.dataset import Dataset
    from aiostream_data.plan import windows as win


# What only these operators need is imported where it is used: importing it takes its time.


class WindowOperators:
    """Operators that hold rows back until an element of several is complete. None of them does any I/O."""

    plan: Node

    if TYPE_CHECKING:

        def _then(self, kind: Callable[..., Node], name: str, /, **arguments: Any) -> Dataset[Any]: ...

        def unbatch(self) -> Dataset[Any]: ...

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        *,
        drop_remainder: bool = False,
    ) -> Dataset[Any]:
        """Stack ``batch_size`` consecutive elements, short ones filled up (tf.data ``padded_batch``).

        Unlike in tf.data ``padded_shapes`` may be left out whatever is known of the elements: NumPy
        arrays know how many axes they have.

        Args:
            padded_shapes: In the structure of the elements, a sequence of lengths per leaf. None and -1
                stand for the longest row of the batch; None for a whole leaf, or altogether, stands for
                that in every axis.
            padding_values: One value for all leaves, or a structure of one per leaf; 0, or the empty
                string, by default. A leaf that is nothing but empty rows of text is filled with b"".
            drop_remainder: Leave out a last batch that is not full.

        Raises:
            PlanError: Shapes or values do not fit what is known of the elements.

        Raises (when iterated):
            BatchShapeError: A row is longer than its padded shape, or rows differ in dtype or number of
                axes; names the record.
        """
        from aiostream_data.plan import windows as win

        check_padding(self.plan, padded_shapes, padding_values)
        return self._then(
            win.PaddedBatch,
            "padded_batch",
            batch_size=at_least("batch_size", batch_size, 1),
            padded_shapes=padded_shapes,
            padding_values=padding_values,
            drop_remainder=flag("drop_remainder", drop_remainder),
        )

    def rebatch(self, batch_size: int | Sequence[int], *, drop_remainder: bool = False) -> Dataset[Any]:
        """Cut batches into batches of another size: ``unbatch().batch(batch_size)`` (tf.data ``rebatch``).

        Args:
            batch_size: A size, or several that come round and round.
            drop_remainder: Leave out a last batch that is not full.
        """
        from aiostream_data.plan import windows as win

        sizes = tuple(batch_size) if isinstance(batch_size, (tuple, list, np.ndarray)) else (batch_size,)
        if not sizes:
            raise PlanError("rebatch() needs at least one batch size")
        checked = tuple(at_least("batch_size", size, 1) for size in sizes)
        return self.unbatch()._then(
            win.Rebatch, "rebatch", sizes=checked, drop_remainder=flag("drop_remainder", drop_remainder)
        )

    def window(
        self, size: int, shift: int | None = None, stride: int = 1, *, drop_remainder: bool = False
    ) -> Dataset[Any]:
        """Stack windows of ``size`` elements, ``stride`` apart, that begin ``shift`` apart (tf.data ``window``).

        In tf.data a window is a data set; here its elements are stacked, as in a batch. What a window
        does not reach between one and the next is read and left out, and an error there is an error.

        Args:
            shift: Elements from the beginning of a window to that of the next; ``size`` by default.
            stride: Elements from one in a window to the next.
            drop_remainder: Leave out windows at the end that are not full.

        Raises (when iterated):
            BatchShapeError: Shapes or structures in a window differ; names both and both records.
        """
        from aiostream_data.plan import windows as win

        length = at_least("size", size, 1)
        return self._then(
            win.Window,
            "window",
            size=length,
            shift=length if shift is None else at_least("shift", shift, 1),
            stride=at_least("stride", stride, 1),
            drop_remainder=flag("drop_remainder", drop_remainder),
        )

    def bucket_by_sequence_length(
        self,
        element_length: Callable[..., int] | str,
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int] | None = None,
        padded_shapes: Any = None,
        padding_values: Any = None,
        *,
        max_cost: int | None = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
    ) -> Dataset[Any]:
        """Batch elements of like length, short ones filled up (tf.data ``bucket_by_sequence_length``).

        Bucket i takes lengths from ``bucket_boundaries[i - 1]`` to below ``bucket_boundaries[i]``.
        Batches come out as buckets fill; what is left at the end follows in the order of buckets.

        Args:
            element_length: Gives the length of an element (a tuple is unpacked into arguments); or the
                name of the leaf whose length counts, which costs nothing per element.
            bucket_boundaries: Ascending.
            bucket_batch_sizes: One more than boundaries; or leave it out, and give ``max_cost``.
            max_cost: What the rows of a batch times the longest of them may come to, whatever is in a bucket: each
                has as many rows as its boundary minus 1 goes into it. No element may reach the last boundary.
            padded_shapes, padding_values: As for :meth:`padded_batch`.
            pad_to_bucket_boundary: Fill up to the bucket's boundary minus 1, in every axis without a
                length, instead of to the longest row; no element may reach the last boundary. Needs
                ``padded_shapes`` where the shapes of elements are not known.
            no_padding: Stack as ``batch`` does.
            drop_remainder: Leave out what is left at the end.

        Raises:
            PlanError: An argument makes no sense.

        Raises (when iterated):
            BatchShapeError: As for :meth:`padded_batch`, or an element reaches the last boundary where none may.
        """
        from aiostream_data.plan import windows as win
        from aiostream_data.transforms.bucketing import BucketOrder

        boundaries = tuple(
            at_least("bucket_boundaries", boundary, 0)
            for boundary in several("bucket_boundaries", bucket_boundaries, "integers")
        )
        sizes = _bucket_sizes(boundaries, bucket_batch_sizes, max_cost)
        BucketOrder(boundaries, sizes)
        check_length_of(self.plan, "element_length", element_length)
        for name, value in (("no_padding", no_padding), ("pad_to_bucket_boundary", pad_to_bucket_boundary)):
            flag(name, value)
        if no_padding and (pad_to_bucket_boundary or padded_shapes is not None or padding_values is not None):
            raise PlanError("no_padding=True leaves no use for shapes, values and pad_to_bucket_boundary")
        if pad_to_bucket_boundary and padded_shapes is None:
            padded_shapes = known_shapes(self.plan)
        check_padding(self.plan, padded_shapes, padding_values)
        return self._then(
            win.Bucket,
            "bucket_by_sequence_length",
            element_length=element_length,
            boundaries=boundaries,
            batch_sizes=sizes,
            max_cost=max_cost,
            padded_shapes=padded_shapes,
            padding_values=padding_values,
            padding=not no_padding,
            pad_to_boundary=pad_to_bucket_boundary,
            drop_remainder=flag("drop_remainder", drop_remainder),
        )

    def pack(
        self,
        max_length: int,
        *,
        fields: str | Sequence[str] | None = None,
        open_bins: int = OPEN_BINS,
        too_long: win.TooLong = "error",
        padding_values: Any = None,
    ) -> Dataset[dict[str, Any]]:
        """Lay elements of differing length into rows of ``max_length``, several to a row, without cutting them.

        For training on sequences without wasting much on padding. An element goes into the first of the
        rows being filled that has room for it; when none has, the fullest is given and a new one begun.
        No counterpart in tf.data; Grain's and T5's packing give the same kind of rows.

        Rows are dicts: the packed leaves (under ``"values"`` when the elements are no dict), each of
        ``max_length`` values; ``"segment_ids"``, int32: 1 for the first element in the row, 2 for the
        next ..., 0 for filling; and ``"positions"``, int32: the place of a value in its element. Elements
        without values are left out. Further axes of the leaves are kept.

        Args:
            fields: The leaves to be packed, by name; the others are left out. All by default; they must
                then be of equal length in every element.
            open_bins: Rows that are filled at once: more of them waste less, and hold more elements
                back. 1 keeps the order of the elements.
            too_long: What becomes of elements longer than ``max_length``: "error"; "split" into pieces
                that count as elements; "truncate"; or "drop".
            padding_values: One value for all leaves, or a dict of one per leaf; 0 by default.

        Raises:
            PlanError: An argument makes no sense.

        Raises (when iterated):
            BatchShapeError: A leaf is no array, leaves of an element differ in length, or one is too
                long; names the record.
        """
        from aiostream_data.plan import windows as win
        from aiostream_data.transforms.packing import TOO_LONG

        names = (
            None
            if fields is None
            else (fields,)
            if isinstance(fields, str)
            else several("fields", fields, "names of leaves")
        )
        word("too_long", too_long, TOO_LONG)
        width, bins = at_least("max_length", max_length, 1), at_least("open_bins", open_bins, 1)
        check_packing(self.plan, names, padding_values)
        return self._then(
            win.Pack,
            "pack",
            max_length=width,
            fields=names,
            open_bins=bins,
            too_long=too_long,
            padding_values=padding_values,
        )


def _bucket_sizes(boundaries: Sequence[int], sizes: Sequence[int] | None, max_cost: Any) -> tuple[int, ...]:
    """Return the batch size of every bucket, as given or as ``max_cost`` allows.

    Raises:
        PlanError: Not one of both is given, or a bucket has rows that cost more.
    """
    if (sizes is None) == (max_cost is None):
        raise PlanError("bucket_by_sequence_length() needs either bucket_batch_sizes or max_cost")
    if sizes is not None:
        given = several("bucket_batch_sizes", sizes, "integers")
        return tuple(at_least("bucket_batch_sizes", size, 1) for size in given)
    budget = at_least("max_cost", max_cost, 1)
    longest = [max(1, boundary - 1) for boundary in boundaries]
    if not longest or max(longest) > budget:
        found = f"max_cost={budget} and the longest row {max(longest)}" if longest else "no boundary"
        raise PlanError(f"max_cost needs boundaries that end at or before max_cost + 1, got {found}")
    return (*(budget // length for length in longest), 1)  # no row gets into the last bucket
