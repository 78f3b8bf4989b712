"""Decode frames of video files to arrays of pixels. Only the groups of pictures with the wanted frames are decoded."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.arguments import integer, shown
from aiostream_data.codecs.encoded_bytes import encoded_bytes
from aiostream_data.codecs.video_index import VideoIndex
from aiostream_data.codecs.video_lengths import check_complete
from aiostream_data.errors import DecodeError, MissingExtraError, PlanError
from aiostream_data.safe_url import shorten

Choice: TypeAlias = "Sequence[int] | Callable[[int], Sequence[int]]"

MAX_VIDEO_PIXELS: Final = 1 << 28
"""Default maximum number of pixels of all frames of a result: 129 frames of 1920 x 1080, 768 MiB."""

_FORMATS: Final = "mov,mp4,matroska,webm,avi,mpegts"
"""Demuxers of FFmpeg that may read the bytes. Others, such as playlists, would open other files and URLs."""

_TURN: Final = 90


class Video(NamedTuple):
    """Decoded frames.

    Attributes:
        frames: Pixels, ``uint8[frames, height, width, 3]`` in RGB.
        times: Time of each frame in seconds after the first frame of the video, ``float64[frames]``.
    """

    frames: NDArray[np.uint8]
    times: NDArray[np.float64]


class _WantedFrames(NamedTuple):
    """Checked arguments of ``decode_video``."""

    frames: Choice | None
    start: float
    stop: float | None
    size: tuple[int, int] | None
    max_pixels: int


def decode_video(
    data: bytes | bytearray | memoryview,
    *,
    frames: Choice | None = None,
    start: float = 0.0,
    stop: float | None = None,
    size: tuple[int, int] | None = None,
    max_pixels: int = MAX_VIDEO_PIXELS,
) -> Video:
    """Decode frames of an MP4, MOV, Matroska, WebM, AVI or MPEG-TS file with PyAV.

    The decoder starts at the last keyframe before each wanted frame. The pixels are turned as the file declares. One
    thread decodes; call the function from several threads to use more processors.

    Args:
        data: The encoded file.
        frames: Numbers of the frames to return, in any order, from 0. Or a function that receives the number of frames
            of the video, and returns such numbers. None to choose frames by ``start`` and ``stop``.
        start, stop: Return the frames from ``start`` to before ``stop``, in seconds after the first frame. By default,
            all frames are returned.
        size: Height and width of the result; None to keep the size. Resizing is bilinear.
        max_pixels: Maximum number of pixels of all returned frames, and of each stored frame.

    Returns:
        The frames in RGB and their times, new arrays.

    Raises:
        DecodeError: The file is damaged, truncated, too large or of an unsupported kind, or lacks a wanted frame.
        PlanError: An argument is invalid.
        MissingExtraError: PyAV is not installed (extra ``video``).
    """
    wanted = _checked(frames, start, stop, size, max_pixels)
    content = encoded_bytes(data, "a video file")
    av = _av()
    check_complete(content)
    try:
        with av.open(
            BytesIO(content),
            metadata_errors="replace",
            options={"format_whitelist": _FORMATS, "fflags": "+genpts", "max_pixels": str(wanted.max_pixels)},
            io_open=_refuse,
        ) as container:
            return _decoded(container, wanted)
    except (av.FFmpegError, ValueError, IndexError, OverflowError) as error:
        if isinstance(error, (DecodeError, PlanError)):
            raise
        raise DecodeError(f"the video cannot be decoded: {type(error).__name__}: {shorten(str(error))}") from error


def _checked(frames: Any, start: Any, stop: Any, size: Any, max_pixels: Any) -> _WantedFrames:
    first = _seconds("start", start, 0.0)
    last = None if stop is None else _seconds("stop", stop, first)
    if frames is not None and (first or last is not None):
        raise PlanError("pass either frames, or start and stop")
    most = integer("max_pixels", max_pixels, 1)
    if size is None:
        return _WantedFrames(frames, first, last, None, most)
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        raise PlanError(f"size must be height and width, got {shown(size)}")
    return _WantedFrames(frames, first, last, (integer("size", size[0], 1), integer("size", size[1], 1)), most)


def _seconds(name: str, value: Any, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < float("inf"):
        raise PlanError(f"{name} must be a time of at least {least:g} seconds, got {shown(value)}")
    return float(value)


def _decoded(container: Any, wanted: _WantedFrames) -> Video:
    stream = container.streams.best("video")
    if stream is None or stream.codec_context is None:
        raise DecodeError("the file contains no video that can be decoded")
    height, width = stream.codec_context.height, stream.codec_context.width
    if height * width > wanted.max_pixels or min(height, width) < 1:  # FFmpeg reports 0 x 0 above the limit
        raise DecodeError(f"the frames of the video have no size, or more than max_pixels={wanted.max_pixels} pixels")
    stream.codec_context.thread_count = 1
    stream.codec_context.options = {"max_pixels": str(wanted.max_pixels)}
    index = VideoIndex(container, stream)
    chosen = _chosen(wanted, index)
    tall, wide = wanted.size or (height, width)
    if len(chosen) * tall * wide > wanted.max_pixels:
        found = f"{len(chosen)} frames of {tall} x {wide} pixels are more than max_pixels={wanted.max_pixels}"
        raise DecodeError(f"{found}. Choose fewer frames, or pass a smaller size.")
    places: dict[int, list[int]] = {}
    for place, number in enumerate(chosen):
        places.setdefault(number, []).append(place)
    pixels = _Pixels(len(chosen), wanted.size, (height, width))
    for number, frame in index.decode(sorted(places)):
        pixels.store(places[number], frame)
    return Video(pixels.array(), index.seconds(chosen))


def _chosen(wanted: _WantedFrames, index: VideoIndex) -> list[int]:
    if wanted.frames is None:
        return index.between(wanted.start, wanted.stop)
    given = wanted.frames(len(index)) if callable(wanted.frames) else wanted.frames
    try:
        numbers = [integer("frames", number, 0) for number in given]
    except TypeError as error:
        rule = "frames must be numbers of frames, or a function that returns them"
        raise PlanError(f"{rule}, got {shown(given)}") from error
    if max(numbers, default=0) >= len(index):
        raise DecodeError(f"frame {max(numbers)} is not part of the video, which has {len(index)} frames")
    return numbers


class _Pixels:
    """Memory for frames.

    Args:
        frames: Number of frames.
        size: Height and width to resize to, or None.
        stored: Height and width of the stored frames, before they are turned.
    """

    def __init__(self, frames: int, size: tuple[int, int] | None, stored: tuple[int, int]) -> None:
        self._frames = frames
        self._size = size
        self._stored = stored
        self._array: NDArray[np.uint8] | None = None

    def store(self, places: Sequence[int], frame: Any) -> None:
        """Convert a frame to RGB, and write it to these places."""
        if (frame.height, frame.width) != self._stored:
            raise DecodeError(f"the size of the video changes to {frame.height} x {frame.width} pixels")
        turns = round(frame.rotation / _TURN)
        tall, wide = self._size or self._stored
        if self._size and turns % 2:
            tall, wide = wide, tall
        found = np.rot90(frame.to_ndarray(format="rgb24", height=tall, width=wide, interpolation="BILINEAR"), turns)
        if self._array is None:
            self._array = np.empty((self._frames, *found.shape), np.uint8)
        for place in places:
            self._array[place] = found

    def array(self) -> NDArray[np.uint8]:
        """Return the frames, ``uint8[frames, height, width, 3]``."""
        return np.empty((0, *(self._size or self._stored), 3), np.uint8) if self._array is None else self._array


def _refuse(url: str, *_: Any) -> Any:
    """Refuse to open another file, which a video may name."""
    raise DecodeError("the video refers to another file, which is never opened")


def _av() -> Any:
    try:
        return importlib.import_module("av")
    except ImportError as error:
        raise MissingExtraError("decoding video needs PyAV: pip install 'aiostream-data[video]'") from error
