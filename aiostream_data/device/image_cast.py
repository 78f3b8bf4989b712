"""``ImageCast`` casts, normalizes and transposes uint8 images on the device, after the transfer to the device.

This module only describes and validates a cast of images. The description is immutable, small and picklable. The module
:mod:`.cast_plan` applies the description to a batch, and the backends run the cast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import ImageCastError, PlanError

RANDOM: Final = "random"
_DTYPES: Final = ("float16", "float32")
_LAYOUTS: Final = ("NCHW", "NHWC")
_PLACES: Final = ("middle", RANDOM)
_BRIGHTEST: Final = 255

Shape: TypeAlias = "tuple[int | None, ...]"


@dataclass(frozen=True, slots=True)
class LeafFacts:
    """Known properties of one leaf (one array) of a batch.

    Attributes:
        path: Name of the leaf.
        shape: Length of each axis (None if unknown), or None if the number of axes is unknown.
        dtype: Dtype of the leaf; None if unknown.
        dense: False if the leaf is ragged or is not an array.
    """

    path: str
    shape: Shape | None
    dtype: np.dtype[Any] | None
    dense: bool = True

    @property
    def may_be_images(self) -> bool:
        """True if the known properties do not exclude that the leaf contains uint8 images."""
        fits = self.shape is None or len(self.shape) == 4
        return self.dense and fits and (self.dtype is None or self.dtype == np.uint8)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageCast:
    """Cast of batches of uint8 images on a device: ``to_device(transform=ImageCast(...))``.

    Images are uint8 arrays of shape (rows, height, width, channels). Every pixel becomes ``(pixel * scale - mean) /
    std``, computed in float32 and rounded to float16 if requested. On a GPU, one kernel on the consumer's stream casts
    the images while it copies them out of the slot. On ``cpu``, NumPy performs the same operations.

    Random flips and crops are determined by the seed, the epoch, and the row's position in its source. Flips and crops
    differ between epochs, but stay the same after resuming or with another number of workers. All images of a row get
    the same flip, and images of the same size get the same crop.

    Attributes:
        dtype: Dtype of the result, "float16" or "float32". NumPy has no bfloat16: for bfloat16, use float32 here and
            cast the result in the framework.
        layout: Layout of the result: "NCHW" or "NHWC".
        mean, std: One number for all channels, or one number per channel. Each pixel is scaled before ``mean`` and
            ``std`` apply. ``std`` must be above 0.
        scale: Factor applied to each pixel before ``mean`` and ``std``; 1/255 maps pixels to the range 0 to 1.
        flip: False to mirror no images, True to mirror all images horizontally, "random" to mirror each row with
            probability 1/2.
        crop: Size of the crop as (height, width), in pixels; None keeps the size.
        crop_at: Position of the crop: "middle" or "random".
        leaves: Paths of the leaves to cast, such as "image" or "box.left"; None to cast every uint8 leaf with four
            axes.
        seed: Seed of random flips and crops; None to use the seed of the open data set.

    Raises:
        PlanError: An argument is invalid, or a result of the cast could exceed the float16 range.
    """

    dtype: str = "float32"
    layout: str = "NCHW"
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    scale: float = 1 / 255
    flip: bool | Literal["random"] | None = False
    crop: tuple[int, int] | None = None
    crop_at: str = "middle"
    leaves: str | tuple[str, ...] | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        self._set("dtype", _dtype_name(self.dtype))
        _one_of("layout", self.layout, _LAYOUTS)
        _one_of("crop_at", self.crop_at, _PLACES)
        self._set("mean", _numbers("mean", self.mean))
        self._set("std", _numbers("std", self.std))
        self._set("flip", _flip(self.flip))
        self._set("crop", _crop(self.crop))
        self._set("leaves", _leaf_paths(self.leaves))
        if self.seed is not None:
            self._set("seed", _whole("seed", self.seed))
        if not _is_number(self.scale) or self.scale == 0:
            raise PlanError(f"scale must be a number other than 0, got {self.scale!r}")
        if any(std <= 0 for std in _as_tuple(self.std)):
            raise PlanError(f"std must be above 0, got {self.std!r}")
        if self.crop is None and self.crop_at == RANDOM:
            raise PlanError('crop_at="random" requires crop=(height, width)')
        self._check_numbers_of_channels()
        self._check_range()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_numbers_of_channels(self) -> None:
        mean, std = _as_tuple(self.mean), _as_tuple(self.std)
        if len(mean) > 1 and len(std) > 1 and len(mean) != len(std):
            raise PlanError(
                f"mean has {len(mean)} channels, but std has {len(std)}. Pass as many, or one number for all channels"
            )

    def _check_range(self) -> None:
        channels = max(len(_as_tuple(self.mean)), len(_as_tuple(self.std)))
        gain, bias = self.factors(channels).astype(np.float64)
        most = float(np.abs([bias, _BRIGHTEST * gain + bias]).max())
        limit = float(np.finfo(self.dtype).max)
        if not most <= limit:
            raise PlanError(
                f"{self.dtype} holds values up to {limit:g}, but this cast produces up to {most:g}. Change scale or std"
            )

    @property
    def draws(self) -> bool:
        """True if the cast uses random numbers for each row."""
        return RANDOM in (self.flip, self.crop_at)

    @property
    def itemsize(self) -> int:
        """Size in bytes of one number in the cast images.

        An input number has one byte, so this value is also the maximum factor by which the cast enlarges images.
        """
        return np.dtype(self.dtype).itemsize

    def factors(self, channels: int) -> NDArray[np.float32]:
        """Return the factor and the offset of each channel, as a float32 array of shape (2, channels)."""
        mean, std = (
            np.broadcast_to(np.array(_as_tuple(value), np.float64), channels) for value in (self.mean, self.std)
        )
        with np.errstate(over="ignore"):  # _check_range reports overflow
            return np.stack([self.scale / std, -mean / std]).astype(np.float32)

    def results(self, leaves: Sequence[LeafFacts]) -> list[LeafFacts]:
        """Compute the properties of a batch's leaves after the cast.

        A leaf without images is returned as the same object.

        ``leaves`` describes either the arrays of a batch or specs with unknown sizes, before any data is read.

        Raises:
            ImageCastError: A leaf named in ``leaves`` is missing or not an image, or no leaf contains images. The error
                is also raised if images are smaller than the crop, or have more or fewer channels than ``mean`` and
                ``std``.
        """
        named = None if self.leaves is None else set(_as_tuple(self.leaves))
        missing = sorted((named or set()) - {leaf.path for leaf in leaves})
        if missing:
            raise ImageCastError(missing[0], f"the batch has no such leaf. Its leaves are {_listed(leaves)}")
        if named is None and not any(leaf.may_be_images for leaf in leaves):
            raise ImageCastError("", f"no leaf of the batch is {_IMAGES}. Its leaves are {_listed(leaves)}")
        return [self._result(leaf) if named is None or leaf.path in named else leaf for leaf in leaves]

    def outcome(
        self, leaves: Sequence[tuple[str, Shape | None, np.dtype[Any] | None, bool]]
    ) -> list[tuple[Shape | None, np.dtype[Any] | None]]:
        """Return the shape and dtype of each leaf after the cast; see :meth:`results`.

        Args:
            leaves: For each leaf, a tuple of the fields of :class:`LeafFacts`.
        """
        return [(leaf.shape, leaf.dtype) for leaf in self.results([LeafFacts(*leaf) for leaf in leaves])]

    def _result(self, leaf: LeafFacts) -> LeafFacts:
        if not leaf.may_be_images:
            if self.leaves is None:
                return leaf
            raise ImageCastError(leaf.path, f"the leaf is {_described(leaf)}, not {_IMAGES}")
        if leaf.shape is None or (leaf.dtype is None and self.leaves is None):
            known = self.leaves is not None
            return LeafFacts(leaf.path, None, np.dtype(self.dtype) if known else None)
        rows, height, width, channels = leaf.shape
        self._check_sizes(leaf.path, height, width, channels)
        height, width = self.crop or (height, width)
        shape = (rows, channels, height, width) if self.layout == "NCHW" else (rows, height, width, channels)
        return LeafFacts(leaf.path, shape, np.dtype(self.dtype))

    def _check_sizes(self, path: str, height: int | None, width: int | None, channels: int | None) -> None:
        for what, have, need in zip(("high", "wide"), (height, width), self.crop or (0, 0), strict=True):
            if have is not None and have < need:
                raise ImageCastError(path, f"images are {have} pixels {what}, but crop needs {need}")
        for name, numbers in (("mean", _as_tuple(self.mean)), ("std", _as_tuple(self.std))):
            if channels is not None and len(numbers) not in (1, channels):
                raise ImageCastError(path, f"images have {channels} channels, but {name} has {len(numbers)}")

    def __str__(self) -> str:
        size = "" if self.crop is None else f", crop {self.crop[0]}x{self.crop[1]} {self.crop_at}"
        flip = {False: "", True: ", flip", RANDOM: ", flip random"}[self.flip or False]
        return f"ImageCast({self.dtype} {self.layout}{size}{flip})"


_IMAGES: Final = "a dense uint8 array of (rows, height, width, channels)"


def _described(leaf: LeafFacts) -> str:
    kind = f"{leaf.dtype}" if leaf.dtype is not None else "of unknown type"
    shape = "" if leaf.shape is None else " of shape " + str(leaf.shape).replace("None", "?")
    return kind + shape if leaf.dense else f"not a dense array ({kind})"


def _listed(leaves: Sequence[LeafFacts]) -> str:
    return ", ".join(f"{leaf.path} ({_described(leaf)})" for leaf in leaves)


def _dtype_name(value: Any) -> str:
    try:
        name: str = np.dtype(value).name
    except TypeError:
        name = str(value)
    if name == "bfloat16":
        raise PlanError("NumPy has no dtype 'bfloat16'. Cast to float32 here, and to bfloat16 in the framework")
    _one_of("dtype", name, _DTYPES)
    return name


def _one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise PlanError(f"{name} must be {' or '.join(map(repr, known))}, got {value!r}")


def _is_number(value: Any) -> bool:
    kinds = (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)


def _numbers(name: str, value: Any) -> float | tuple[float, ...]:
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if _is_number(value):
        return float(value)
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise PlanError(f"{name} must be a number, or one per channel, got {value!r}")
    numbers = tuple(value)
    if not numbers or not all(map(_is_number, numbers)):
        raise PlanError(f"{name} must be one or more finite numbers, got {value!r}")
    return tuple(map(float, numbers))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _flip(value: Any) -> bool | str:
    if value is None or isinstance(value, bool):
        return bool(value)
    if not isinstance(value, str) or value != RANDOM:
        raise PlanError(f"flip must be True, False or 'random', got {value!r}")
    return value


def _crop(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__") or len(sizes := tuple(value)) != 2:
        raise PlanError(f"crop must be (height, width) or None, got {value!r}")
    height, width = (_whole("crop", size) for size in sizes)
    if height < 1 or width < 1:
        raise PlanError(f"crop must be at least (1, 1), got {value!r}")
    return height, width


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise PlanError(f"{name} must be an integer, got {value!r}")
    return int(value.__index__())


def _leaf_paths(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    paths = (value,) if isinstance(value, str) else tuple(value) if hasattr(value, "__iter__") else ()
    if not paths or not all(isinstance(path, str) and path for path in paths):
        raise PlanError(f"leaves must be leaf names, or None for all image leaves, got {value!r}")
    return paths
