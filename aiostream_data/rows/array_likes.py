"""Detect arrays of NumPy and other libraries in elements, and convert these arrays to NumPy.

Arrays of PyTorch, JAX, CuPy, Pillow and PyArrow are detected by class name or DLPack, without importing these
libraries. A conversion must be lossless and must not copy between devices. If an array cannot be converted in this way,
the error message contains the type of the array.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import lru_cache, partial
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.split_rows import SplitRows

Convert: TypeAlias = Callable[[Any], NDArray[Any]]

_NUMBERS: Final = (int, float, complex)
_TEXT: Final = (bytes, str)
_NO_ARRAYS: Final = frozenset({bytes, str, int, float, bool, type(None)})
_PLAIN_NUMBERS: Final = frozenset({int, float, bool, complex})
_TEXTS: Final = frozenset({bytes, str, type(None)})
_DENSE_KINDS: Final = "biufcmMV"
_PROTOCOLS: Final = ("__array__", "__array_interface__", "__array_struct__")
_HOST: Final = frozenset({1, 3, 11})
"""DLPack types of memory that the CPU can read without synchronizing: plain memory, or page-locked by CUDA or ROCm."""

_DEVICES: Final = {2: "cuda", 8: "metal", 10: "rocm", 13: "cuda"}
_MOVED_BY: Final = {"torch": ".cpu()", "jax": "jax.device_get()", "cupy": "cupy.asnumpy()"}
_EXACT_IN_A_FLOAT: Final = 1 << 53


class NoNumpyFormError(TypeError):
    """Error for a value that cannot be converted to NumPy without loss. The message suggests a fix."""


class _Foreign(NamedTuple):
    """Conversion rules for the arrays of one class of another library.

    Attributes:
        name: Public name of the class. Arrays with different names cannot be stacked.
        convert: Function that converts a value to NumPy, or raises NoNumpyFormError.
        needs_asking: True if the user may request a call of ``__array__`` for a value that ``convert`` refuses.
        copy: Function that copies a value, or None for classes whose objects users cannot modify in place.
    """

    name: str
    convert: Convert
    needs_asking: bool = False
    copy: Callable[[Any], Any] | None = None


def array_of(value: Any, *, explicit: bool = False) -> NDArray[Any] | None:
    """Convert an array, number, or list of arrays or numbers to NumPy. The result is a view of ``value`` if possible.

    Args:
        value: Any value.
        explicit: True if the user passed the value as an array. If ``explicit`` is True, ``__array__`` of unknown
            classes is called.

    Returns:
        The array, or None for text, other objects, lists of such objects, and integers with more than 64 bits.

    Raises:
        NoNumpyFormError: The value is an array, or a list with numbers or arrays, but cannot be converted without loss.
    """
    kind = type(value)
    if kind is np.ndarray:
        return value if explicit or not value.dtype.hasobject else _without_arrays_inside(value)
    if issubclass(kind, _TEXT):
        return None
    if issubclass(kind, (*_NUMBERS, np.generic)):
        array = np.asarray(value)
        return None if array.dtype.hasobject and not isinstance(value, np.generic) else array
    if issubclass(kind, (list, tuple)):
        return _array_of_list(value)
    known = _foreign_of(value)
    if known is None:
        return np.asarray(value) if explicit and isinstance(value, SplitRows) else None
    try:
        return known.convert(value)
    except NoNumpyFormError:
        if not (explicit and known.needs_asking):
            raise
        with suppress(NoNumpyFormError):
            return np.asarray(_told(partial(np.asarray, value)))
        raise


def are_numbers(kinds: AbstractSet[Any]) -> bool:
    """Return True if all classes in ``kinds`` are Python number types."""
    return kinds <= _PLAIN_NUMBERS or all(map(is_number, kinds))


def numbers_array(values: Sequence[Any], kinds: AbstractSet[Any]) -> NDArray[Any] | None:
    """Convert Python numbers as ``np.asarray`` does. Return None if the array would contain rounded numbers or objects.

    Args:
        values: The numbers.
        kinds: Classes of the objects in ``values``.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fc":
        return array if array.dtype.kind in "biu" else None
    if len(kinds) <= 1 and int not in kinds:  # only floats, or empty
        return array
    if all(issubclass(kind, int) for kind in kinds):
        return np.array(values, np.uint64) if min(values) >= 0 and max(values) < 2**64 else None
    if max(map(abs, values)) <= _EXACT_IN_A_FLOAT:
        return array
    return None if any(map(_is_rounded, values)) else array


def _is_rounded(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > _EXACT_IN_A_FLOAT and int(float(value)) != value


def is_number(kind: Any) -> bool:
    """Return True if a class is a Python number type, whose values ``np.asarray`` can stack."""
    return issubclass(kind, _NUMBERS) and not issubclass(kind, np.generic)


def family(kind: Any) -> str:
    """Return a name that is equal for classes whose arrays can be stacked, or "" for NumPy arrays and non-arrays."""
    known = _foreign(kind)
    return "" if known is None or issubclass(kind, np.ndarray) else known.name


def type_name(kind: Any) -> str:
    """Return the public name of a class, such as ``torch.Tensor``."""
    known = _foreign(kind)
    return _name(kind) if known is None else known.name


def holds_arrays(objects: NDArray[Any]) -> bool:
    """Return True if an object array contains arrays."""
    if objects.dtype != np.dtype(object) or set(map(type, objects.flat)) <= _NO_ARRAYS:
        return False
    return any(map(_is_array, objects.flat))


def copy_of(value: Any) -> Any:
    """Copy a PyTorch tensor or a Pillow image. Return all other values unchanged."""
    known = _foreign(type(value))
    return value if known is None or known.copy is None else known.copy(value)


def image_nbytes(value: Any) -> int | None:
    """Estimate the size of a Pillow image in bytes without decoding it. Return None for all other values."""
    known = _foreign(type(value))
    if known is None or known.convert is not _of_pillow:
        return None
    with suppress(Exception):
        return int(prod(value.size)) * (4 if value.mode in ("I", "F") else len(value.getbands()))
    return None


# -- lists


def _array_of_list(values: Sequence[Any]) -> NDArray[Any] | None:
    kinds = set(map(type, values))
    if are_numbers(kinds):
        array = numbers_array(values, kinds)
        if array is None:
            raise _odd_ints()
        return array
    if kinds <= _TEXTS:
        return None
    try:
        inner = list(_innermost(values))
    except RecursionError:  # the list contains itself
        return None
    found = next((value for value in inner if _is_number_or_array(value)), None)
    if inner and found is None:
        return None
    for value in inner:
        if not _is_number_or_array(value):
            names = f"{type_name(type(found))} and {type_name(type(value))}"
            raise NoNumpyFormError(f"it mixes {names}. Return them as a dict or a tuple from map()")
    return _joined(_with_arrays(values))


def _joined(values: Sequence[Any]) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise NoNumpyFormError("its parts differ in length. Pad them in map()") from error
    is_rounded = array.dtype.kind in "fc" and bool((np.abs(array) >= _EXACT_IN_A_FLOAT).any())
    if array.dtype.kind not in _DENSE_KINDS or (is_rounded and any(map(_is_rounded, _numbers_in(values)))):
        raise _odd_ints()
    return array


def _odd_ints() -> NoNumpyFormError:
    return NoNumpyFormError(
        "no dtype holds all of its ints: they are beyond 64 bits, or would be rounded to floats. Convert them in map()"
    )


def _innermost(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _innermost(value)
        else:
            yield value


def _numbers_in(values: Sequence[Any]) -> Iterator[Any]:
    for value in _innermost(values):
        yield from value.ravel().tolist() if isinstance(value, np.ndarray) else (value,)


def _with_arrays(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_with_arrays(part) for part in value]
    return value if is_number(type(value)) else array_of(value)


def _without_arrays_inside(objects: NDArray[Any]) -> NDArray[Any]:
    if holds_arrays(objects):
        inside = type_name(type(next(filter(_is_array, objects.flat))))
        raise NoNumpyFormError(f"it has dtype object and contains {inside}. Use np.stack() in map()")
    return objects


def _is_array(value: Any) -> bool:
    if isinstance(value, (np.ndarray, np.generic)):
        return not isinstance(value, _TEXT)
    return _foreign_of(value) is not None


def _is_number_or_array(value: Any) -> bool:
    return is_number(type(value)) or _is_array(value)


# -- arrays of other libraries


def _foreign(kind: Any) -> _Foreign | None:
    """Return the conversion rules for a class, or None for NumPy arrays and for non-arrays."""
    return _looked_up(kind)


@lru_cache(maxsize=512)
def _looked_up(kind: Any) -> _Foreign | None:
    if kind is np.ndarray or issubclass(kind, (*_TEXT, *_NUMBERS, np.generic, SplitRows)):
        return None
    if issubclass(kind, np.ndarray):
        return _Foreign(_name(kind), partial(_of_subclass, kind))
    named = {f"{_root(cls)}.{cls.__name__}" for cls in kind.__mro__}
    if "torch.Tensor" in named:
        return _Foreign("torch.Tensor", _of_torch, copy=_copy_of_tensor)
    if not named.isdisjoint({"jaxlib.ArrayImpl", "jax.Array", "jax.PRNGKeyArray", "jax.Tracer"}):
        return _Foreign("jax.Array", _of_jax)
    if "PIL.Image" in named:
        return _Foreign("PIL.Image.Image", _of_pillow, copy=lambda image: image.copy())
    root = _root(kind)
    if root == "pandas" and _has(kind, _PROTOCOLS):
        return _Foreign(_name(kind), _refusing("its labels would be lost. Use .to_numpy() in map()"), True)
    if _has(kind, ("__dlpack__",)) and _has(kind, ("__dlpack_device__",)):
        return _Foreign(_name(kind), partial(_of_dlpack, root), True)
    if "pyarrow.Scalar" in named:
        return _Foreign(_name(kind), _refusing("it may be null. Use .as_py() in map()"), True)
    if _has(kind, _PROTOCOLS):
        return _unknown(kind)
    return None


def _foreign_of(value: Any) -> _Foreign | None:
    """Return the conversion rules for a value. Methods like ``__array__`` can be attributes of the instance."""
    kind = type(value)
    known = _foreign(kind)
    if known is None and not isinstance(value, SplitRows):
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict) and any(name in own for name in _PROTOCOLS):
            return _unknown(kind)
    return known


def _unknown(kind: Any) -> _Foreign:
    reason = "its shape and dtype are unknown before __array__ runs. Return np.asarray() of it from the function"
    return _Foreign(_name(kind), _refusing(reason), True)


def _has(kind: Any, names: Collection[str]) -> bool:
    """Return True if a class defines one of these names.

    Only classes are inspected, because reading a property of an object could do I/O.
    """
    return any(name in vars(cls) for cls in kind.__mro__ for name in names)


def _root(kind: Any) -> str:
    return str(kind.__module__).partition(".")[0]


def _name(kind: Any) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _refusing(reason: str) -> Convert:
    def refuse(value: Any) -> NDArray[Any]:
        raise NoNumpyFormError(reason)

    return refuse


def _told(ask: Callable[[], Any]) -> Any:
    """Call a function of another array library and return its result.

    Raises:
        NoNumpyFormError: The function raised an error. The message contains the text of that error.
    """
    try:
        return ask()
    except Exception as error:
        raise NoNumpyFormError(f"{type(error).__name__}: {error}") from error


def _asked(value: Any, ask: Callable[[Any], Any]) -> NDArray[Any]:
    """Convert an array with a function of its library, and return the result in native byte order.

    Raises:
        NoNumpyFormError: The function failed or returned no dense NumPy array.
    """
    array = _told(partial(ask, value))
    if not isinstance(array, np.ndarray) or array.dtype.kind not in _DENSE_KINDS:
        found = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else type_name(type(array))
        raise NoNumpyFormError(f"the conversion returned {found}. Return a numeric array from map()")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _on_device(device: str, library: str) -> NoNumpyFormError:
    cure = f"Use {_MOVED_BY[library]}" if library in _MOVED_BY else "Copy it to host memory"
    return NoNumpyFormError(f"it is on {device}. {cure} in map(), and to_device() after batch()")


def _of_subclass(kind: Any, value: Any) -> NDArray[Any]:
    if hasattr(value, "mask"):
        raise NoNumpyFormError("its mask would be lost. Use .filled() in map(), and return the mask as a separate leaf")
    if getattr(kind, "__array_function__", None) is not np.ndarray.__array_function__:
        raise NoNumpyFormError(
            "it has more information than its numbers, such as a unit, which would be lost. "
            "Return np.asarray() of it from the function"
        )
    array = np.asarray(value)
    return _without_arrays_inside(array) if array.dtype.hasobject else array


def _of_torch(value: Any) -> NDArray[Any]:
    device = str(value.device)
    if device.partition(":")[0] != "cpu":
        raise _on_device(device, "torch")
    if value.requires_grad:
        raise NoNumpyFormError("it requires a gradient, which would be lost. Use .detach() in map()")
    try:
        return _asked(value, lambda tensor: tensor.numpy())
    except NoNumpyFormError as error:
        if "unsupported ScalarType" in str(error):
            raise NoNumpyFormError(f"NumPy does not support {value.dtype}. Use .float() in map()") from error
        raise


def _copy_of_tensor(value: Any) -> Any:
    return value if value.requires_grad else value.clone()


def _of_jax(value: Any) -> NDArray[Any]:
    devices = _told(value.devices) if hasattr(value, "devices") else ()
    elsewhere = next((device for device in devices if device.platform != "cpu"), None)
    if elsewhere is not None:
        raise _on_device(str(elsewhere), "jax")
    return _asked(value, np.asarray)


def _of_dlpack(library: str, value: Any) -> NDArray[Any]:
    kind, number = _told(lambda: tuple(map(int, value.__dlpack_device__())))
    if kind not in _HOST:
        raise _on_device(f"{_DEVICES.get(kind, f'device type {kind}')}:{number}", library)
    return _asked(value, np.from_dlpack)


def _of_pillow(value: Any) -> NDArray[Any]:
    if value.mode in ("P", "PA"):
        raise NoNumpyFormError(
            f"its pixels are palette indices (mode {value.mode}). Use .convert('RGB') in map() for colours, or "
            "np.asarray() for the indices"
        )
    return _asked(value, np.asarray)
