"""ImageCast: uint8 images cross the bus as they are, and are cast, normalised and laid out where they arrive.

A description and nothing else: frozen, small, picklable, checked when it is written. What it means for a
batch is decided in :mod:`.cast_plan`, and done by the backends.
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
    """What is known of one leaf of a batch.

    Attributes:
        path: Name of the leaf.
        shape: One entry per axis, None where it is not known; None as a whole when nothing is.
        dtype: None when unknown.
        dense: False for ragged leaves and for what is no array.
    """

    path: str
    shape: Shape | None
    dtype: np.dtype[Any] | None
    dense: bool = True

    @property
    def may_be_images(self) -> bool:
        """True when nothing that is known speaks against uint8 images."""
        fits = self.shape is None or len(self.shape) == 4
        return self.dense and fits and (self.dtype is None or self.dtype == np.uint8)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageCast:
    """How batches of uint8 images leave a device: ``to_device(transform=ImageCast(...))``.

    Images are arrays of uint8, (rows, height, width, channels). Every pixel becomes ``(pixel * scale - mean) / std``,
    computed in float32 and rounded once more for float16. One kernel does it on the consumer's stream, in place of the
    copy that takes a batch out; on ``cpu`` NumPy does, by the same steps.

    What is random is drawn for every row from the seed and from which row of which source it is, and from nothing
    else: it is the same for any number of workers and after a resume, and another one in the next epoch. All leaves
    of a row are flipped alike, and those of one size are cropped alike.

    Attributes:
        dtype: Of the result, "float16" or "float32". There is no bfloat16, which NumPy and DLPack of NumPy lack: cast
            float32 in the framework.
        layout: Of the result: "NCHW" or "NHWC".
        mean, std: One number, or one per channel, of pixels that were multiplied with ``scale``; ``std`` above 0.
        scale: What pixels are multiplied with first; 1/255 gives 0 to 1.
        flip: Mirror left and right: no row (False), every row (True), or half of them ("random").
        crop: (height, width) to cut out, in pixels; None keeps the size.
        crop_at: Where: "middle" or "random".
        leaves: Paths of the leaves to cast, such as "image" or "box.left"; None for every uint8 leaf with four axes.
        seed: Of what is random; None for the seed that the data set is opened with.

    Raises:
        PlanError: An argument makes no sense, or results do not fit into float16.
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
            raise PlanError('crop_at="random" needs a size: crop=(height, width)')
        self._check_numbers_of_channels()
        self._check_range()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_numbers_of_channels(self) -> None:
        mean, std = _as_tuple(self.mean), _as_tuple(self.std)
        if len(mean) > 1 and len(std) > 1 and len(mean) != len(std):
            raise PlanError(
                f"mean has {len(mean)} channels and std has {len(std)}: give as many, or one number for all"
            )

    def _check_range(self) -> None:
        channels = max(len(_as_tuple(self.mean)), len(_as_tuple(self.std)))
        gain, bias = self.factors(channels).astype(np.float64)
        most = float(np.abs([bias, _BRIGHTEST * gain + bias]).max())
        limit = float(np.finfo(self.dtype).max)
        if not most <= limit:
            raise PlanError(
                f"{self.dtype} holds up to {limit:g}, and this cast gives up to {most:g}: check scale and std"
            )

    @property
    def draws(self) -> bool:
        """True when something is drawn per row."""
        return RANDOM in (self.flip, self.crop_at)

    @property
    def itemsize(self) -> int:
        """Bytes of one number of the result: by at most this factor casting makes images larger."""
        return np.dtype(self.dtype).itemsize

    def factors(self, channels: int) -> NDArray[np.float32]:
        """Return what pixels are multiplied with, and what is added then: float32 (2, channels)."""
        mean, std = (
            np.broadcast_to(np.array(_as_tuple(value), np.float64), channels) for value in (self.mean, self.std)
        )
        with np.errstate(over="ignore"):  # too large a number is told by the check of the range
            return np.stack([self.scale / std, -mean / std]).astype(np.float32)

    def results(self, leaves: Sequence[LeafFacts]) -> list[LeafFacts]:
        """Return the leaves of a batch as they are after the cast; those that are no images are the same objects.

        Works on as much as is known: on specs before anything is read, and on the arrays of a batch.

        Raises:
            ImageCastError: A leaf that is named is not there or not of images, or no leaf is; or images are smaller
                than the crop, or have another number of channels than ``mean`` and ``std``.
        """
        named = None if self.leaves is None else set(_as_tuple(self.leaves))
        missing = sorted((named or set()) - {leaf.path for leaf in leaves})
        if missing:
            raise ImageCastError(missing[0], f"there is no such leaf; leaves are {_listed(leaves)}")
        if named is None and not any(leaf.may_be_images for leaf in leaves):
            raise ImageCastError("", f"no leaf is {_IMAGES}; leaves are {_listed(leaves)}")
        return [self._result(leaf) if named is None or leaf.path in named else leaf for leaf in leaves]

    def outcome(
        self, leaves: Sequence[tuple[str, Shape | None, np.dtype[Any] | None, bool]]
    ) -> list[tuple[Shape | None, np.dtype[Any] | None]]:
        """Return shape and dtype of leaves after the cast; see :meth:`results`.

        Args:
            leaves: As the fields of :class:`LeafFacts`.
        """
        return [(leaf.shape, leaf.dtype) for leaf in self.results([LeafFacts(*leaf) for leaf in leaves])]

    def _result(self, leaf: LeafFacts) -> LeafFacts:
        if not leaf.may_be_images:
            if self.leaves is None:
                return leaf
            raise ImageCastError(leaf.path, f"it is {_described(leaf)}, and not {_IMAGES}")
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
                raise ImageCastError(path, f"images are {have} pixels {what}, and {need} are to be cut out")
        for name, numbers in (("mean", _as_tuple(self.mean)), ("std", _as_tuple(self.std))):
            if channels is not None and len(numbers) not in (1, channels):
                raise ImageCastError(path, f"images have {channels} channels, and {name} is for {len(numbers)}")

    def __str__(self) -> str:
        size = "" if self.crop is None else f", crop {self.crop[0]}x{self.crop[1]} {self.crop_at}"
        flip = {False: "", True: ", flip", RANDOM: ", flip random"}[self.flip or False]
        return f"ImageCast({self.dtype} {self.layout}{size}{flip})"


_IMAGES: Final = "a dense uint8 array of (rows, height, width, channels)"


def _described(leaf: LeafFacts) -> str:
    kind = f"{leaf.dtype}" if leaf.dtype is not None else "of unknown type"
    shape = "" if leaf.shape is None else " of shape " + str(leaf.shape).replace("None", "?")
    return kind + shape if leaf.dense else f"no dense array ({kind})"


def _listed(leaves: Sequence[LeafFacts]) -> str:
    return ", ".join(f"{leaf.path} ({_described(leaf)})" for leaf in leaves)


def _dtype_name(value: Any) -> str:
    try:
        name: str = np.dtype(value).name
    except TypeError:
        name = str(value)
    if name == "bfloat16":
        raise PlanError("dtype 'bfloat16' is none of NumPy's: cast to float32, and to bfloat16 in the framework")
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
        raise PlanError(f"{name} must be finite numbers, at least one, got {value!r}")
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
        raise PlanError(f"leaves must be names of leaves, or None for all of images, got {value!r}")
    return paths
