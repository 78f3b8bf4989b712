"""Sound files become arrays of samples; damaged, huge and unknown ones are refused."""

from __future__ import annotations

import io
import pickle
import random
import sys
import wave
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, DecodeError, MissingExtraError, PlanError
from aiostream_data.codecs import decode_audio

soundfile = pytest.importorskip("soundfile")

RATE = 16_000
FRAMES = 3_000
WAVES = (np.sin(np.arange(FRAMES)[:, None] * np.array([0.05, 0.21])) * [0.5, 0.25]).astype(np.float32)
KINDS = {
    "wav": ("WAV", "PCM_16"),
    "wav8": ("WAV", "PCM_U8"),
    "wav24": ("WAV", "PCM_24"),
    "float": ("WAV", "FLOAT"),
    "double": ("WAVEX", "DOUBLE"),
    "aiff": ("AIFF", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "vorbis": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}
OFF = {"wav8": 0.01, "vorbis": 0.02, "opus": 0.1, "mp3": 0.05}
"""How far the decoded samples may be from the written ones."""


def encoded(kind: str, samples: Any = WAVES, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    format, subtype = KINDS[kind]
    soundfile.write(file, samples, rate, format=format, subtype=subtype)
    return file.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_those_that_were_written(kind: str) -> None:
    samples, rate = decode_audio(encoded(kind))
    assert samples.dtype == np.float32
    assert (samples.shape, rate) == ((FRAMES, 2), RATE)
    np.testing.assert_allclose(samples, WAVES, atol=OFF.get(kind, 1e-4))
    assert samples.flags.writeable


@pytest.mark.parametrize("kind", KINDS)
def test_int16_samples_have_the_same_scale_in_every_encoding(kind: str) -> None:
    samples = decode_audio(bytearray(encoded(kind)), dtype="int16").samples
    assert samples.dtype == np.int16
    np.testing.assert_allclose(samples / 32768, WAVES, atol=OFF.get(kind, 1e-4))


def test_a_file_of_the_standard_library_has_exactly_its_integers() -> None:
    values = np.array([[-32768, 1], [32767, -1], [0, 12345]], np.int16)
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes(values.tobytes())
    samples, rate = decode_audio(memoryview(file.getvalue()), dtype="int16")
    np.testing.assert_array_equal(samples, values)
    assert rate == 8000
    np.testing.assert_array_equal(decode_audio(file.getvalue()).samples, values / np.float32(32768))


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_has_the_samples_of_the_whole_file(kind: str) -> None:
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, (60_000, 2)).astype(np.float32)
    data = encoded(kind, noise, 48_000)
    whole = decode_audio(data).samples
    for start, stop in ((0, 1), (1, 1_000), (1_151, 1_153), (30_000, 30_500), (59_999, 60_000), (60_000 - 77, None)):
        np.testing.assert_array_equal(decode_audio(data, start=start, stop=stop).samples, whole[start:stop])


def test_mono_is_the_mean_of_the_channels() -> None:
    for dtype, scale, off in (("float32", 1, 1e-6), ("int16", 32768, 0.51)):
        mono = decode_audio(encoded("float"), mono=True, dtype=dtype).samples  # type: ignore[arg-type]
        assert mono.shape == (FRAMES, 1)
        np.testing.assert_allclose(mono / np.float64(scale), WAVES.mean(axis=1, keepdims=True), atol=off / scale)
    single = decode_audio(encoded("flac", WAVES[:, :1])).samples
    assert single.shape == (FRAMES, 1)


def test_values_beyond_the_range_of_int16_become_its_limits() -> None:
    loud = np.array([[2.0], [-2.0], [1.0]], np.float32)
    assert decode_audio(encoded("float", loud), dtype="int16").samples.tolist() == [[32767], [-32768], [32767]]
    np.testing.assert_array_equal(decode_audio(encoded("float", loud)).samples, loud)
    with pytest.raises(DecodeError, match="contains NaN"):
        decode_audio(encoded("float", loud * np.nan), dtype="int16")


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"mp3"}))
def test_truncated_files_are_refused_at_every_byte(kind: str) -> None:
    data = encoded(kind, WAVES[:300])
    whole = decode_audio(data).samples
    refused = 0
    for stop in range(len(data)):
        try:
            found = decode_audio(data[:stop]).samples
        except DecodeError:
            refused += 1
        else:  # only bytes behind the samples are missing
            np.testing.assert_array_equal(found, whole)
    assert refused > 0.9 * len(data)


def test_a_truncated_mp3_file_with_a_declared_length_is_refused() -> None:
    data = encoded("mp3")
    for stop in range(0, len(data) - 1, 61):
        with pytest.raises(DecodeError, match="the sound file"):
            decode_audio(data[:stop])


def test_a_length_that_a_pipe_could_not_declare_is_found() -> None:
    data = bytearray(encoded("wav"))
    at = data.index(b"data") + 4
    for declared in (0xFFFFFFFF, 0x7FFFF000):
        data[at : at + 4] = declared.to_bytes(4, "little")
        assert decode_audio(data).samples.shape == (FRAMES, 2)


@pytest.mark.parametrize("frames", [0, 70_000, (1 << 36) - 1])
def test_flac_files_that_declare_too_many_frames_or_none_are_refused(frames: int) -> None:
    data = bytearray(encoded("flac"))
    fields = int.from_bytes(data[18:26], "big")
    data[18:26] = (fields >> 36 << 36 | frames).to_bytes(8, "big")
    with pytest.raises(DecodeError, match=r"max_samples|cannot be decoded"):
        decode_audio(data)


def test_max_samples_bounds_what_is_decoded_before_it_is_allocated() -> None:
    data = encoded("flac")
    assert decode_audio(data, max_samples=2 * FRAMES).samples.shape == (FRAMES, 2)
    with pytest.raises(DecodeError, match="3000 frames of 2 channels are more than max_samples=5999"):
        decode_audio(data, max_samples=2 * FRAMES - 1)
    assert decode_audio(data, stop=10, max_samples=20).samples.shape == (10, 2)


@pytest.mark.parametrize(
    "data", [b"", b"no sound", b"RIFF", b"fLaC", b"OggS" + bytes(30), b"FORM" + bytes(60), b"\xff\xfb", b"ID3" * 9]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="the sound file"):
        decode_audio(data)


def test_other_formats_of_libsndfile_are_refused() -> None:
    file = io.BytesIO()
    soundfile.write(file, WAVES, RATE, format="AU", subtype="PCM_16")
    with pytest.raises(DecodeError, match="it is not a WAV, AIFF, FLAC, Ogg or MP3 file"):
        decode_audio(file.getvalue())


@pytest.mark.parametrize("kind", KINDS)
def test_changed_bytes_give_samples_or_a_decode_error(kind: str) -> None:
    source = random.Random(7)
    data = encoded(kind, WAVES[:300])
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(source.randint(1, 4)):
            changed[source.choice((source.randrange(len(data)), source.randrange(60)))] = source.randrange(256)
        try:
            samples = decode_audio(changed, max_samples=1 << 20).samples
        except DecodeError:
            continue
        assert samples.size <= 1 << 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": -1}, "start must be at least 0"),
        ({"start": 5, "stop": 5}, "stop must be greater than start=5, got 5"),
        ({"mono": "yes"}, "mono must be True or False"),
        ({"dtype": "float64"}, "dtype must be one of float32, int16"),
        ({"max_samples": 0}, "max_samples must be at least 1"),
    ],
)
def test_invalid_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        decode_audio(encoded("wav"), **arguments)


def test_frames_outside_of_the_file_are_refused() -> None:
    for start, stop in ((0, FRAMES + 1), (FRAMES + 1, None), (FRAMES + 1, FRAMES + 2)):
        with pytest.raises(DecodeError, match="are not part of the sound file, which has 3000 frames"):
            decode_audio(encoded("wav"), start=start, stop=stop)
    assert decode_audio(encoded("wav"), start=FRAMES).samples.shape == (0, 2)


def test_a_missing_soundfile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded("wav")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingExtraError, match=r"aiostream-data\[audio\]"):
        decode_audio(data)


def test_a_dataset_of_files_is_decoded_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.flac").write_bytes(encoded("flac", WAVES[: 500 + number]))
    decode = pickle.loads(pickle.dumps(partial(decode_audio, stop=400, mono=True)))
    dataset = Dataset.from_files(f"{tmp_path}/*.flac").map(lambda file: decode(file["data"]))
    (batch,) = dataset.batch(3)
    assert batch.samples.shape == (3, 400, 1)
    assert batch.rate.tolist() == [RATE] * 3
    (tmp_path / "1.flac").write_bytes(encoded("flac")[:-5])
    with pytest.raises(DecodeError) as raised:
        list(dataset)
    assert "1.flac" in "".join(raised.value.__notes__)
