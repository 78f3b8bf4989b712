"""Where a data set begins: the ``Dataset.from_*`` constructors."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from aiostream_data.arguments import MOST, integer, numpy_dtype, several
from aiostream_data.dataset.callables import check_takes_arguments
from aiostream_data.dataset.file_sources import FileSources
from aiostream_data.errors import ArgumentTypeError, PlanError, StageBuildError
from aiostream_data.plan import sources as src
from aiostream_data.plan.spec import ArraySpec
from aiostream_data.rows.array_likes import NoNumpyFormError, array_of, type_name
from aiostream_data.rows.structure import flatten

if TYPE_CHECKING:
    from aiostream_data.dataset.dataset import Dataset

E = TypeVar("E")


class DatasetSources(FileSources):
    """Constructors of :class:`~aiostream_data.Dataset`. None of them does any I/O."""

    @classmethod
    def from_tensors(cls, element: E) -> Dataset[E]:
        """Return a data set of one element: the whole structure (tf.data ``from_tensors``)."""
        return cls._begin(src.Tensors(element=element))

    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> Dataset[Any]:
        """Return the slices along the first axis of every leaf (tf.data ``from_tensor_slices``).

        The structure (dict, tuple, NamedTuple, dataclass) is kept; lists become arrays. Arrays are not
        copied, so do not change them while the data set is in use; elements see them read-only.

        Raises:
            PlanError: A leaf has no first axis, or the first axes differ.
        """
        structure, leaves = flatten(tensors)
        arrays = tuple(_read_only(leaf, path) for leaf, path in zip(leaves, structure.paths(), strict=True))
        if not arrays:
            raise PlanError("from_tensor_slices() needs at least one array")
        for path, array in zip(structure.paths(), arrays, strict=True):
            if array.ndim == 0:
                cure = _cure(leaves)
                raise PlanError(f"from_tensor_slices() needs arrays with a first axis, but {path} is a scalar{cure}")
            if len(array) != len(arrays[0]):
                first = structure.paths()[0]
                raise PlanError(f"first axes differ: {first} has {len(arrays[0])} rows, {path} has {len(array)}")
        return cls._begin(src.TensorSlices(structure=structure, leaves=arrays, rows=len(arrays[0])))

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Iterable[E] | AsyncIterable[E]],
        *,
        args: tuple[Any, ...] = (),
        signature: Any = None,
    ) -> Dataset[E]:
        """Return what ``generator(*args)`` yields, called anew for every epoch (tf.data ``from_generator``).

        A sync generator runs on a thread of its own and is closed when the iteration ends, however it
        ends; an async one is awaited on the engine's loop.

        Args:
            signature: Structure of :class:`ArraySpec`; every item is held against it when given.

        Raises:
            PlanError: ``generator`` is not callable, such as a generator object, or does not take ``args``.
        """
        if not callable(generator):
            raise StageBuildError(
                f"from_generator() needs a function that returns an iterator, got a {type(generator).__name__}; "
                "give the function itself, without calling it"
            )
        _, specs = flatten(signature, ArraySpec)
        if signature is not None and not all(isinstance(spec, ArraySpec) for spec in specs):
            raise PlanError(f"signature must be a structure of ArraySpec, got {signature!r}")
        given = several("args", args, "a tuple of arguments")
        check_takes_arguments("from_generator", generator, given)
        return cls._begin(src.Generator(factory=generator, args=given, signature=signature))

    @classmethod
    def from_iterable(cls, iterable: Iterable[E] | AsyncIterable[E]) -> Dataset[E]:
        """Return the items of a sync or async iterable.

        An iterable that is its own iterator (a generator object, an open file) can be read once; a plan
        that would read it again is refused when it is written.
        """
        if not isinstance(iterable, (Iterable, AsyncIterable)):
            raise PlanError(
                f"from_iterable() needs an iterable or async iterable, got {type(iterable).__name__}"
                + (": pass it to from_generator()" if callable(iterable) else "")
            )
        return cls._begin(src.PythonIterable(iterable=iterable, one_shot=src.is_one_shot(iterable)))

    @classmethod
    def range(cls, start: int, stop: int | None = None, step: int = 1, *, dtype: DTypeLike = np.int64) -> Dataset[int]:
        """Return the integers of ``range(start, stop, step)`` (tf.data ``range``)."""
        for name, bound in (("start", start), ("stop", stop), ("step", step)):
            if bound is not None or name != "stop":
                integer(f"range() {name}", bound, -MOST - 1)
        first, last = (0, start) if stop is None else (start, stop)
        if step == 0:
            raise PlanError("range() step must not be 0")
        node = src.Range(start=first, stop=last, step=step, dtype=_numbers_dtype(dtype))
        _check_holds(node)
        return cls._begin(node)


def _cure(leaves: list[Any]) -> str:
    is_lazy = any(isinstance(leaf, Iterator) for leaf in leaves)
    return ": use from_iterable() or from_generator()" if is_lazy else ": use from_tensors() for a single element"


def _numbers_dtype(dtype: Any) -> np.dtype[Any]:
    found = numpy_dtype("range() dtype", dtype)
    if found.kind not in "iufc":
        raise ArgumentTypeError(f"range() dtype must be one of numbers, got {found}")
    return found


def _check_holds(node: src.Range) -> None:
    """Refuse a range with numbers that its dtype cannot hold."""
    numbers = node.numbers
    if node.dtype.kind in "iu" and len(numbers):
        limits = np.iinfo(node.dtype)
        lowest, highest = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])
        if lowest < limits.min or highest > limits.max:
            raise PlanError(f"range() goes from {lowest} to {highest}, which {node.dtype} cannot hold")


def _read_only(leaf: Any, path: str) -> np.ndarray[Any, Any]:
    if isinstance(leaf, (list, tuple)) and leaf and all(isinstance(value, (str, bytes)) for value in leaf):
        array = np.empty(len(leaf), object)
        array[:] = leaf
        return array
    try:
        found = array_of(leaf, explicit=True)
        array = (np.asarray(leaf) if found is None else found).view()
    except (NoNumpyFormError, ValueError) as error:
        name = type_name(type(leaf))
        raise PlanError(f"from_tensor_slices() cannot make an array of {path}, a {name}: {error}") from error
    if array.dtype.kind in "US":
        array = array.astype(object)
    array.flags.writeable = False
    return array
