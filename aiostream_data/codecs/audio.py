"""Decode sound files to arrays of samples."""

from __future__ import annotations

import importlib
from io import SEEK_CUR, SEEK_END, SEEK_SET, BytesIO
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.arguments import flag, integer, word
from aiostream_data.codecs.audio_lengths import check_complete
from aiostream_data.codecs.encoded_bytes import encoded_bytes
from aiostream_data.errors import DecodeError, MissingExtraError, PlanError
from aiostream_data.safe_url import shorten

SampleType: TypeAlias = Literal["float32", "int16"]
Samples: TypeAlias = NDArray[Any]

MAX_SAMPLES: Final = 1 << 28
"""Default maximum number of samples of a result: 46 minutes of stereo sound at 48 kHz, 1 GiB as float32."""

SAMPLE_TYPES: Final = ("float32", "int16")

_FORMATS: Final = frozenset({"WAV", "WAVEX", "AIFF", "FLAC", "OGG", "MP3"})
_OF_FLOATS: Final = frozenset({"FLOAT", "DOUBLE", "VORBIS", "OPUS", "MPEG_LAYER_I", "MPEG_LAYER_II", "MPEG_LAYER_III"})
"""Encodings that libsndfile does not scale when it reads integers."""

_PREROLL: Final = 1 << 13
"""Number of frames to decode before ``start``. The first frames behind a seek differ in Vorbis and MP3 files."""

_LOSSY: Final = frozenset({"OGG", "MP3"})
_FULL_SCALE: Final = 1 << 15


class Audio(NamedTuple):
    """Decoded sound.

    Attributes:
        samples: Samples, ``float32[frames, channels]`` between -1 and 1, or ``int16[frames, channels]``.
        rate: Number of frames per second.
    """

    samples: Samples
    rate: int


def decode_audio(
    data: bytes | bytearray | memoryview,
    *,
    start: int = 0,
    stop: int | None = None,
    mono: bool = False,
    dtype: SampleType = "float32",
    max_samples: int = MAX_SAMPLES,
) -> Audio:
    """Decode a WAV, AIFF, FLAC, Ogg (Vorbis, Opus) or MP3 file with soundfile, as ``tf.audio.decode_wav`` does for WAV.

    A frame is one sample of each channel. Only the frames from ``start`` to ``stop`` are decoded. Safe to call from any
    thread; the GIL is released between reads of the encoded bytes.

    Args:
        data: The encoded file.
        start: Number of the first frame.
        stop: Number of the frame behind the last one; None for the end of the file.
        mono: True to return the mean of all channels as one channel.
        dtype: ``"float32"``, or ``"int16"``. Values beyond the range of int16 become its limits.
        max_samples: Maximum number of frames times channels of the part to decode.

    Returns:
        The samples, a new array of shape (frames, channels), and the number of frames per second.

    Raises:
        DecodeError: The file is damaged, truncated, too long or of an unsupported kind, or lacks frames up to ``stop``.
        PlanError: An argument is invalid.
        MissingExtraError: soundfile is not installed (extra ``audio``).
    """
    wanted = _checked(start, stop, mono, dtype, max_samples)
    content = encoded_bytes(data, "a sound file")
    soundfile = _soundfile()
    check_complete(content)
    try:
        with soundfile.SoundFile(_Encoded(content)) as file:
            samples = _decoded(file, wanted)
            return Audio(samples, int(file.samplerate))
    except DecodeError:
        raise
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError, OverflowError) as error:
        reason = shorten(str(error).rpartition(">: ")[2])
        raise DecodeError(f"the sound file cannot be decoded: {type(error).__name__}: {reason}") from error


class _WantedSound(NamedTuple):
    """Checked arguments of ``decode_audio``."""

    start: int
    stop: int | None
    mono: bool
    dtype: str
    max_samples: int


def _checked(start: Any, stop: Any, mono: Any, dtype: Any, max_samples: Any) -> _WantedSound:
    first = integer("start", start, 0)
    last = None if stop is None else integer("stop", stop)
    if last is not None and last <= first:
        raise PlanError(f"stop must be greater than start={first}, got {last}")
    most = integer("max_samples", max_samples, 1)
    return _WantedSound(first, last, flag("mono", mono), word("dtype", dtype, SAMPLE_TYPES), most)


def _decoded(file: Any, wanted: _WantedSound) -> Samples:
    if file.format not in _FORMATS:
        raise DecodeError(f"sound files of the format {file.format} are not supported. Convert them to FLAC or WAV.")
    start, frames, channels = wanted.start, file.frames, file.channels
    stop = frames if wanted.stop is None else wanted.stop
    if start > frames or stop > frames:
        raise DecodeError(f"frames {start} to {stop} are not part of the sound file, which has {frames} frames")
    if (stop - start) * channels > wanted.max_samples:
        found = f"{stop - start} frames of {channels} channels are more than max_samples={wanted.max_samples}"
        raise DecodeError(f"{found}. Pass start and stop to decode a part.")
    is_direct = wanted.dtype == "float32" or not (wanted.mono or file.subtype in _OF_FLOATS)
    samples = _read(file, start, stop, wanted.dtype if is_direct else "float32")
    if wanted.mono:
        samples = samples.mean(axis=1, keepdims=True)
    return samples if is_direct else _as_int16(samples)


def _preroll(file: Any, start: int) -> int:
    """Return the number of frames to decode in front of ``start``."""
    return min(start, _PREROLL) if file.format in _LOSSY else 0


def _read(file: Any, start: int, stop: int, dtype: str) -> Samples:
    before = _preroll(file, start)
    if start > before:
        file.seek(start - before)
    samples: Samples = file.read(before + stop - start, dtype, always_2d=True)
    missing = before + stop - start - len(samples)
    if missing:
        raise DecodeError(f"the sound file is damaged: {missing} of its {file.frames} frames cannot be decoded")
    return samples[before:].copy() if before else samples


def _as_int16(samples: Samples) -> Samples:
    if np.isnan(samples).any():
        raise DecodeError('the sound file contains NaN, which int16 does not have. Pass dtype="float32".')
    scaled = np.rint(samples * np.float32(_FULL_SCALE))
    return scaled.clip(-_FULL_SCALE, _FULL_SCALE - 1).astype(np.int16)


class _Encoded(BytesIO):
    """Encoded bytes as a file. Damaged files make libsndfile seek to negative positions, which become 0."""

    def seek(self, offset: int, whence: int = SEEK_SET, /) -> int:
        base = {SEEK_SET: 0, SEEK_CUR: self.tell(), SEEK_END: self.getbuffer().nbytes}[whence]
        return super().seek(max(0, base + offset))


def _soundfile() -> Any:
    try:
        return importlib.import_module("soundfile")
    except (ImportError, OSError) as error:  # OSError: the library libsndfile is missing
        raise MissingExtraError("decoding sound needs soundfile: pip install 'aiostream-data[audio]'") from error
