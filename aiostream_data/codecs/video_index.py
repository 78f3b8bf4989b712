"""Numbers and times of the frames of a video, and decoding of chosen frames from the keyframes before them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import DecodeError


class _Key(NamedTuple):
    """A keyframe.

    Attributes:
        time: Time at which the frame is shown, in units of the stream.
        order: Time at which the frame is decoded, or ``time`` if the file does not store it. Files are searched by it.
    """

    time: int
    order: int


class VideoIndex:
    """Index of the frames of one video stream. The packets are read once, and not decoded.

    Args:
        container: Opened file.
        stream: Video stream of the file.

    Raises:
        DecodeError: The file is truncated or has no frames, or a packet has no time.
    """

    def __init__(self, container: Any, stream: Any) -> None:
        self._container = container
        self._stream = stream
        times: list[int] = []
        self._keys: list[_Key] = []
        for packet in container.demux(stream):
            if packet.size == 0 or packet.is_discard:
                continue
            if packet.is_corrupt:
                raise DecodeError("the video is damaged or truncated: a packet is incomplete")
            if packet.pts is None:
                raise DecodeError("the video has no times of frames. Convert it to MP4 or Matroska.")
            times.append(packet.pts)
            if packet.is_keyframe:
                self._keys.append(_Key(packet.pts, _order(packet)))
        self._times = sorted(times)
        self._keys.sort()
        if not times:
            raise DecodeError("the video contains no frames")
        if len(times) < stream.frames:
            raise DecodeError(f"the video is truncated: it declares {stream.frames} frames, and contains {len(times)}")

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self._times)

    def seconds(self, frames: Sequence[int]) -> NDArray[np.float64]:
        """Return the times of frames in seconds after the first frame."""
        base = self._stream.time_base
        return np.array([float((self._times[frame] - self._times[0]) * base) for frame in frames], np.float64)

    def between(self, start: float, stop: float | None) -> list[int]:
        """Return the numbers of the frames from ``start`` to before ``stop``, in seconds after the first frame."""
        first = bisect_left(self._times, self._place(start))
        return list(range(first, len(self) if stop is None else bisect_left(self._times, self._place(stop))))

    def _place(self, seconds: float) -> int:
        """Return the first time of the stream that is not before a time in seconds."""
        place: int = ceil(round(seconds / self._stream.time_base, 6))
        return place + self._times[0]

    def decode(self, frames: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Decode frames.

        Args:
            frames: Numbers of frames, ascending and without duplicates.

        Yields:
            Number and frame of each, in order.

        Raises:
            DecodeError: A frame is damaged or missing.
        """
        decoded: Iterator[Any] = iter(())
        group = -2
        for number in frames:
            wanted = self._times[number]
            needed = bisect_right(self._keys, wanted, key=lambda key: key.time) - 1
            if needed not in (group, group + 1):
                decoded = self._decoded_from(needed)
            group = needed
            yield number, self._found(decoded, number, wanted)

    def _found(self, decoded: Iterator[Any], number: int, wanted: int) -> Any:
        for frame in decoded:
            if frame.pts == wanted:
                if frame.is_corrupt:
                    raise DecodeError(f"frame {number} of the video is damaged")
                return frame
            if frame.pts is not None and frame.pts > wanted:
                break
        raise DecodeError(f"frame {number} of the video cannot be decoded: it is missing or damaged")

    def _decoded_from(self, group: int) -> Iterator[Any]:
        """Seek to a keyframe, or to one before it if the file cannot seek exactly. Return frames from there on."""
        for key in range(group, -1, -1):
            self._container.seek(self._keys[key].order, stream=self._stream)
            packets = self._container.demux(self._stream)
            first = next(packets, None)
            if first is not None and first.size and _order(first) <= self._keys[group].order:
                return (frame for packet in chain([first], packets) for frame in packet.decode())
        raise DecodeError("the video cannot be decoded: no keyframe precedes a wanted frame")


def _order(packet: Any) -> int:
    return int(packet.pts if packet.dts is None else packet.dts)
