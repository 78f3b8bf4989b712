"""Frames of videos become arrays of pixels; damaged, huge and unknown files are refused."""

from __future__ import annotations

import io
import pickle
import random
import struct
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, DecodeError, MissingExtraError, PlanError
from aiostream_data.codecs import decode_video
from aiostream_data.codecs.video_index import VideoIndex

av = pytest.importorskip("av")

FRAMES, HEIGHT, WIDTH, RATE, GROUP = 40, 34, 50, 25, 8
KINDS = {
    "mp4": ("mp4", "mpeg4", {}),
    "b-frames": ("mp4", "libx264", {"bf": "3"}),
    "open groups": ("mp4", "libx264", {"bf": "2", "x264-params": "open-gop=1"}),
    "keyframes": ("mp4", "libx264", {"g": "1"}),
    "webm": ("webm", "libvpx-vp9", {}),
    "hidden frames": ("webm", "libvpx", {"auto-alt-ref": "1", "lag-in-frames": "20"}),
    "matroska": ("matroska", "libx264", {}),
    "avi": ("avi", "mpeg4", {"bf": "2"}),
    "transport": ("mpegts", "libx264", {}),
    "mov": ("mov", "mjpeg", {}),
}


def shade(frame: int) -> int:
    return 20 + 5 * frame


@cache
def encoded(kind: str, frames: int = FRAMES) -> bytes:
    """Return a video whose frame i has the colour ``shade(i)`` on the left, and is dark above and bright below."""
    format, codec, options = KINDS[kind]
    if codec not in av.codecs_available:
        pytest.skip(f"PyAV was built without {codec}")
    file = io.BytesIO()
    with av.open(file, "w", format=format) as container:
        stream = container.add_stream(codec, rate=RATE, options={"g": str(GROUP), "b": "3M", **options})
        stream.width, stream.height = WIDTH, HEIGHT
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for number in range(frames):
            pixels = np.full((HEIGHT, WIDTH, 3), shade(number), np.uint8)
            pixels[: HEIGHT // 2, WIDTH // 2 :] = 0
            pixels[HEIGHT // 2 :, WIDTH // 2 :] = 255
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def shades(frames: Any) -> list[int]:
    """Return the numbers of frames, from their colours."""
    left = frames[:, :, : WIDTH // 3].mean(axis=(1, 2, 3))
    return [round((value - 20) / 5) for value in left.tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_all_frames_are_decoded_with_their_times(kind: str) -> None:
    frames, times = decode_video(bytearray(encoded(kind)))
    assert frames.dtype == np.uint8
    assert frames.shape == (FRAMES, HEIGHT, WIDTH, 3)
    assert shades(frames) == list(range(FRAMES))
    np.testing.assert_allclose(times, np.arange(FRAMES) / RATE, atol=1e-3)
    assert frames.flags.writeable


@pytest.mark.parametrize("kind", KINDS)
def test_chosen_frames_are_those_of_the_whole_video_in_any_order(kind: str) -> None:
    whole = decode_video(encoded(kind))
    source = random.Random(3)
    for _ in range(12):
        chosen = [source.randrange(FRAMES) for _ in range(source.randint(1, 4))]
        found = decode_video(encoded(kind), frames=chosen)
        np.testing.assert_array_equal(found.frames, whole.frames[chosen])
        np.testing.assert_array_equal(found.times, whole.times[chosen])


@pytest.mark.parametrize("kind", KINDS)
def test_a_range_of_seconds_contains_its_start_and_not_its_stop(kind: str) -> None:
    data = encoded(kind)
    assert shades(decode_video(data, start=0.4, stop=0.6).frames) == [10, 11, 12, 13, 14]
    assert shades(decode_video(data, start=1.5).frames) == [38, 39]
    assert shades(decode_video(data, stop=0.04).frames) == [0]
    assert decode_video(data, start=50.0).frames.shape == (0, HEIGHT, WIDTH, 3)


def test_only_the_groups_with_wanted_frames_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded_from = VideoIndex._decoded_from
    decoded: list[int] = []

    def counting(self: VideoIndex, group: int) -> Iterator[Any]:
        for frame in decoded_from(self, group):
            decoded.append(frame.pts)
            yield frame

    monkeypatch.setattr(VideoIndex, "_decoded_from", counting)
    decode_video(encoded("mp4"), frames=[17, 33])
    assert len(decoded) == 2 + 2  # 16, 17 and 32, 33
    decoded.clear()
    decode_video(encoded("mp4"))
    assert len(decoded) == FRAMES


def test_a_function_chooses_frames_from_their_number() -> None:
    found = decode_video(encoded("mp4"), frames=lambda count: np.linspace(0, count - 1, 3).astype(int).tolist())
    assert shades(found.frames) == [0, 19, 39]
    assert decode_video(encoded("mp4"), frames=[]).frames.shape == (0, HEIGHT, WIDTH, 3)


def test_frames_are_resized() -> None:
    found = decode_video(encoded("mp4"), frames=[3], size=(16, 20)).frames
    assert found.shape == (1, 16, 20, 3)
    assert abs(int(found[0, 8, 4, 0]) - shade(3)) < 4


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_frames_are_turned_as_the_file_declares(turns: int) -> None:
    matrix = {
        1: (0, 0x10000, 0, -0x10000, 0, 0, HEIGHT << 16, 0, 0x40000000),  # a quarter clockwise
        2: (-0x10000, 0, 0, 0, -0x10000, 0, 0, 0, 0x40000000),
        3: (0, -0x10000, 0, 0x10000, 0, 0, 0, WIDTH << 16, 0x40000000),
    }[turns]
    data = bytearray(encoded("mp4"))
    at = data.index(b"tkhd") + 4 + 40
    data[at : at + 36] = struct.pack(">9i", *matrix)
    expected = np.rot90(decode_video(encoded("mp4"), frames=[5]).frames[0], -turns)
    np.testing.assert_array_equal(decode_video(data, frames=[5]).frames[0], expected)
    assert decode_video(data, frames=[5], size=(20, 10)).frames.shape == (1, 20, 10, 3)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"transport"}))
def test_truncated_files_are_refused_or_have_the_right_frames(kind: str) -> None:
    data = encoded(kind, 10)
    whole = decode_video(data).frames
    refused = 0
    step = len(data) // 100
    for stop in range(0, len(data), step):
        try:
            found = decode_video(data[:stop]).frames
        except DecodeError:
            refused += 1
        else:
            np.testing.assert_array_equal(found, whole)
    assert refused > 80


@pytest.mark.parametrize("kind", KINDS)
def test_changed_bytes_give_frames_or_a_decode_error(kind: str) -> None:
    source = random.Random(11)
    data = encoded(kind, 10)
    for _ in range(40):
        changed = bytearray(data)
        for _ in range(source.randint(1, 4)):
            changed[source.randrange(len(data))] = source.randrange(256)
        try:
            frames = decode_video(changed, max_pixels=1 << 18).frames
        except DecodeError:
            continue
        assert frames.size <= 3 << 18


def test_max_pixels_bounds_the_frames_before_they_are_decoded() -> None:
    data, pixels = encoded("mp4"), HEIGHT * WIDTH
    assert len(decode_video(data, max_pixels=FRAMES * pixels).frames) == FRAMES
    with pytest.raises(DecodeError, match="40 frames of 34 x 50 pixels are more than max_pixels=67999"):
        decode_video(data, max_pixels=FRAMES * pixels - 1)
    with pytest.raises(DecodeError, match="more than max_pixels=1699 pixels"):
        decode_video(data, max_pixels=pixels - 1, frames=[0], size=(2, 2))
    with pytest.raises(DecodeError, match="more than max_pixels"):
        decode_video(data, frames=[0], size=(1 << 15, 1 << 15))


def test_absurd_dimensions_are_refused_before_frames_are_allocated() -> None:
    data = encoded("mov")
    size = struct.pack(">HH", HEIGHT, WIDTH)
    assert data.count(b"\xff\xc0\x00\x11\x08" + size) == FRAMES
    changed = data.replace(b"\xff\xc0\x00\x11\x08" + size, b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", 65_000, 65_000))
    with pytest.raises(DecodeError, match=r"more than max_pixels|cannot be decoded"):
        decode_video(changed)
    larger = data.replace(b"\xff\xc0\x00\x11\x08" + size, b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", 40, 60))
    with pytest.raises(DecodeError, match=r"the size of the video changes|cannot be decoded|is damaged"):
        decode_video(data[: len(data) // 2] + larger[len(data) // 2 :])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no video",
        b"\0\0\0\x18ftypmp42",
        b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/hostname\n",
        b"ffconcat version 1.0\nfile /etc/hostname\n",
    ],
)
def test_other_bytes_and_playlists_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="the video cannot be decoded"):
        decode_video(data)


def test_a_file_without_video_is_refused() -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=16_000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4_096), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16_000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with pytest.raises(DecodeError, match="contains no video"):
        decode_video(file.getvalue())


def test_frames_outside_of_the_video_are_refused() -> None:
    with pytest.raises(DecodeError, match="frame 40 is not part of the video, which has 40 frames"):
        decode_video(encoded("mp4"), frames=[0, FRAMES])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frames": [-1]}, "frames must be at least 0"),
        ({"frames": 3}, "frames must be numbers of frames, or a function"),
        ({"frames": [1], "stop": 2.0}, "pass either frames, or start and stop"),
        ({"start": -1.0}, "start must be a time of at least 0 seconds"),
        ({"start": 2.0, "stop": 1.0}, "stop must be a time of at least 2 seconds"),
        ({"stop": float("nan")}, "stop must be a time"),
        ({"size": 224}, "size must be height and width"),
        ({"size": (0, 3)}, "size must be at least 1"),
        ({"max_pixels": 0}, "max_pixels must be at least 1"),
    ],
)
def test_invalid_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        decode_video(encoded("mp4"), **arguments)


def test_a_missing_pyav_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtraError, match=r"aiostream-data\[video\]"):
        decode_video(b"")


def test_a_dataset_of_files_is_decoded_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.mp4").write_bytes(encoded("mp4"))
    decode = pickle.loads(pickle.dumps(partial(decode_video, frames=[1, 2])))
    dataset = Dataset.from_files(f"{tmp_path}/*.mp4").map(lambda file: decode(file["data"]))
    (batch,) = dataset.batch(3)
    assert batch.frames.shape == (3, 2, HEIGHT, WIDTH, 3)
    np.testing.assert_allclose(batch.times, [[0.04, 0.08]] * 3)
    (tmp_path / "1.mp4").write_bytes(encoded("mp4")[:-200])
    with pytest.raises(DecodeError) as raised:
        list(dataset)
    assert "1.mp4" in "".join(raised.value.__notes__)
