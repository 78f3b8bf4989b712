"""Fuzz the decoders of values: hostile bytes may only ever give a bounded array or a DecodeError.

Run it with atheris when that is installed, or as a loop of seeded random mutations::

    python tests/fuzz/fuzz_codecs.py corpus/
    python tests/fuzz/fuzz_codecs.py --runs 100000 --seed 1

The first byte of an input chooses the decoder. Decoders whose library is missing are left out.
"""

from __future__ import annotations

import importlib.util
import io
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from fuzzing import Target, run_target

from aiostream_data.codecs import decode_audio, decode_image, decode_npy, decode_random_crop, decode_video
from aiostream_data.errors import DecodeError

LIMIT = 1 << 18
"""Maximum number of pixels or samples."""

DECODERS: dict[int, Callable[[bytes], Any]] = {
    0: decode_npy,
    1: lambda data: decode_image(data, max_pixels=LIMIT),
    2: lambda data: decode_image(data, max_pixels=LIMIT, size=(5, 7)),
    3: lambda data: decode_audio(data, max_samples=LIMIT).samples,
    4: lambda data: decode_audio(data, max_samples=LIMIT, start=3, stop=90, dtype="int16", mono=True).samples,
    5: lambda data: decode_video(data, max_pixels=LIMIT).frames,
    6: lambda data: decode_video(data, max_pixels=LIMIT, frames=[5, 1], size=(4, 4)).frames,
    7: lambda data: decode_random_crop(data, np.random.default_rng(1), max_pixels=LIMIT, size=(5, 7)),
}


def check(data: bytes) -> None:
    """Decode ``data`` with the decoder that its first byte chooses."""
    if data:
        with suppress(DecodeError):
            found = DECODERS[data[0] % len(DECODERS)](data[1:])
            assert found.nbytes <= 4 * LIMIT + len(data)


def seeds() -> list[bytes]:
    """Return valid files for each decoder."""
    found = [bytes([0]) + npy()]
    for image in images():
        found += [bytes([number]) + image for number in (1, 2, 7)]
    if importlib.util.find_spec("soundfile"):
        found += [bytes([number]) + sound for sound in sounds() for number in (3, 4)]
    if importlib.util.find_spec("av"):
        found += [bytes([number]) + video for video in videos() for number in (5, 6)]
    return found


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(6).reshape(2, 3))
    return file.getvalue()


def images() -> list[bytes]:
    from PIL import Image

    found = []
    for kind in ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF"):
        file = io.BytesIO()
        Image.linear_gradient("L").resize((20, 14)).convert("RGB").save(file, kind)
        found.append(file.getvalue())
    return found


def sounds() -> list[bytes]:
    import soundfile

    found = []
    for format, subtype in (("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("AIFF", "PCM_24")):
        file = io.BytesIO()
        soundfile.write(file, np.sin(np.arange(400) / 9).reshape(200, 2), 8_000, format=format, subtype=subtype)
        found.append(file.getvalue())
    return found


def videos() -> list[bytes]:
    import av

    found = []
    for format in ("mp4", "matroska", "avi", "mpegts"):
        file = io.BytesIO()
        with av.open(file, "w", format=format) as container:
            stream = container.add_stream("mpeg4", rate=10)
            stream.width, stream.height = 16, 16
            for shade in range(6):
                pixels = np.full((16, 16, 3), 40 * shade, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            container.mux(stream.encode())
        found.append(file.getvalue())
    return found


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return a file with a few bytes changed, removed or repeated, mostly near its start."""
    body = bytearray(data[1:])
    for _ in range(source.randint(1, 4)):
        at = source.randrange(min(len(body), source.choice((64, 512, 1 << 20))) or 1)
        change = source.randrange(5)
        if change == 0 and at < len(body):
            body[at] ^= 1 << source.randrange(8)
        elif change == 1:
            body[at : at + 1] = source.randbytes(1)
        elif change == 2:
            body[at : at + 4] = source.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4)))
        elif change == 3:
            del body[at : at + source.choice((1, 8, len(body)))]
        else:
            body[at:at] = body[at : at + 16]
    return data[:1] + bytes(body)


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
