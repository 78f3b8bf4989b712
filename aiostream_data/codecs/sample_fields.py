"""Decode the fields of a sample by the extensions of their files: JSON, text, numbers, arrays and images."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from io import BytesIO
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.npy_header import parse_header
from aiostream_data.errors import ArgumentTypeError, MissingExtraError, PlanError, SampleDecodeError

FieldDecoder: TypeAlias = Callable[[bytes], Any]
Decode: TypeAlias = "bool | Mapping[str, FieldDecoder] | None"

MAX_PIXELS: Final = 1 << 28
"""Maximum number of pixels of an image. A small file can declare an image that needs far more memory."""

_KEY: Final = "__key__"


def decode_array(data: bytes) -> NDArray[Any]:
    """Decode a ``.npy`` file. Arrays of Python objects, which are pickles, are refused."""
    header = parse_header(data)
    if header.data_nbytes != len(data) - header.nbytes:
        raise ValueError(
            f"an array of shape {header.shape} and {header.dtype} does not match the {len(data) - header.nbytes} bytes "
            "of data"
        )
    order: Any = "F" if header.is_fortran else "C"
    array: NDArray[Any] = np.ndarray(header.shape, header.dtype, data, header.nbytes, order=order).copy("K")
    return array


def decode_image(data: bytes) -> NDArray[np.uint8]:
    """Decode an image to ``uint8[height, width, 3]`` in RGB, with Pillow."""
    image_module = _imported("PIL.Image", "pillow")
    with image_module.open(BytesIO(data)) as image:
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"the image declares {image.width} x {image.height} pixels, more than {MAX_PIXELS}")
        return np.array(image.convert("RGB"), np.uint8)


def decode_jpeg(data: bytes) -> NDArray[np.uint8]:
    """Decode a JPEG image to ``uint8[height, width, 3]`` in RGB, with simplejpeg if it is installed, else Pillow."""
    try:
        simplejpeg = importlib.import_module("simplejpeg")
    except ImportError:
        return decode_image(data)
    height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
    if colours == "CMYK" or height * width > MAX_PIXELS:
        return decode_image(data)
    decoded: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, "RGB")
    return decoded


def decode_text(data: bytes) -> str:
    """Decode UTF-8 text."""
    return data.decode()


BY_EXTENSION: Final[Mapping[str, FieldDecoder]] = {
    **dict.fromkeys(("json", "jsn"), json.loads),
    **dict.fromkeys(("txt", "text", "transcript"), decode_text),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), int),
    "npy": decode_array,
    **dict.fromkeys(("jpg", "jpeg"), decode_jpeg),
    **dict.fromkeys(("png", "ppm", "pgm", "pbm", "pnm", "webp", "bmp", "gif", "tif", "tiff"), decode_image),
}
"""Functions of ``decode=True``. Fields with other extensions stay bytes."""


class FieldsDecoder:
    """Function that decodes the fields of a sample. Picklable if all functions are picklable.

    Args:
        decoders: Function for each extension. ``"seg.png"`` matches this extension only, ``"png"`` also matches
            ``"seg.png"``.
    """

    def __init__(self, decoders: Mapping[str, FieldDecoder]) -> None:
        self._decoders = dict(decoders)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Return a decoded copy of a sample.

        Raises:
            SampleDecodeError: A built-in function cannot decode a field.
        """
        return {name: self._decoded(sample, name, value) for name, value in sample.items()}

    def _decoded(self, sample: dict[str, Any], name: str, value: Any) -> Any:
        decode = None if name == _KEY else self._decoders.get(name, self._decoders.get(name.rpartition(".")[2]))
        if decode is None:
            return value
        try:
            return decode(value)
        except MissingExtraError:
            raise
        except Exception as error:
            raise SampleDecodeError(sample[_KEY], name, f"{type(error).__name__}: {error}") from error


def fields_decoder(decode: Any) -> FieldsDecoder | None:
    """Return the function for a ``decode`` argument: True, False, None, or functions by extension.

    Raises:
        PlanError: The argument is invalid.
    """
    if decode is None or decode is False:
        return None
    if decode is True:
        return FieldsDecoder(BY_EXTENSION)
    if not isinstance(decode, Mapping):
        raise ArgumentTypeError(f"decode must be True, None or a dict of functions, got {type(decode).__name__}")
    for name, function in decode.items():
        if not isinstance(name, str) or not callable(function):
            raise PlanError(f"decode must be a dict from extensions to functions, got {name!r}: {function!r}")
        if name != name.lower() or name.startswith("."):
            raise PlanError(f"extensions in decode must be in lower case and without a dot in front, got {name!r}")
    return FieldsDecoder(decode)


def _imported(name: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        cure = f"pip install {package}, or pass decode={{...}} without image extensions"
        raise MissingExtraError(f"decoding images needs {package}: {cure}") from error
