"""Fuzz the readers of bytes: hostile input may only ever give records or a CorruptRecordError.

If atheris is installed, it chooses inputs by the code that they reach::

    python tests/fuzz/fuzz_framing.py corpus/

Without atheris, a loop makes random mutations from a seed::

    python tests/fuzz/fuzz_framing.py --runs 100000 --seed 1
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

import numpy as np
from fuzzing import Target, run_target

from aiostream_data import _native
from aiostream_data._native import framing_py
from aiostream_data.codecs.compression import COMPRESSIONS
from aiostream_data.formats.base import Format
from aiostream_data.formats.csv import CsvFormat
from aiostream_data.formats.csv_rules import CsvSyntax
from aiostream_data.formats.fixed_length import FixedLengthFormat
from aiostream_data.formats.json_lines import JsonLinesFormat
from aiostream_data.formats.text import TextFormat
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.formats.whole_file import WholeFileFormat
from aiostream_data.testing.formats import compressed, read_blocks

LIMIT = 1 << 16
FORMATS: tuple[Format, ...] = (
    TFRecordFormat(max_record_nbytes=LIMIT),
    TFRecordFormat(verify=False, max_record_nbytes=LIMIT),
    TextFormat(max_line_nbytes=LIMIT),
    TextFormat(encoding="cp1252", max_line_nbytes=64),
    CsvFormat(header=False, max_line_nbytes=64),
    CsvFormat(syntax=CsvSyntax("o", None), header=False, encoding=None, max_line_nbytes=LIMIT),
    JsonLinesFormat(max_line_nbytes=64),
    FixedLengthFormat(record_nbytes=3, header_nbytes=2, footer_nbytes=5),
    WholeFileFormat(max_record_nbytes=LIMIT),
)


def check(data: bytes) -> None:
    """Read ``data`` in one of many ways, its first bytes say which; fail on a difference or a foreign exception."""
    if len(data) < 3:
        return
    description = FORMATS[data[0] % len(FORMATS)]
    asked = (*COMPRESSIONS, "auto")[data[1] % (len(COMPRESSIONS) + 1)]
    step, stream = data[2] + 1, data[3:]
    whole = read_blocks(description, stream, [], 0, asked)
    cut = read_blocks(description, stream, [step] * (len(stream) // step), step % 50, asked)
    assert (whole.records, str(whole.error)) == (cut.records, str(cut.error))
    buffer = np.frombuffer(stream, np.uint8)
    native, twin = (
        kernel(buffer, 0, len(buffer), True, LIMIT) for kernel in (_native.frame_tfrecords, framing_py.frame_tfrecords)
    )
    assert native[0].tolist() == twin[0].tolist()
    assert native[2:] == twin[2:]


def seeds() -> list[bytes]:
    """Return one valid input per format and compression."""
    plain = b"".join(frame(b"record %d\n" % i * i) for i in range(6)) + b"line\r\nline\n"
    return [
        bytes([kind, how, 20]) + compressed(plain, compression)
        for kind in range(len(FORMATS))
        for how, compression in enumerate(COMPRESSIONS)
    ]


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` with a few bytes flipped, dropped, repeated or replaced behind the three that steer."""
    body = bytearray(data[3:])
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(body) + 1)
        end = min(len(body), at + source.choice((1, 1, 4, 30)))
        change = source.randrange(4)
        if change == 0 and at < len(body):
            body[at] ^= 1 << source.randrange(8)
        elif change == 1:
            del body[at:end]
        elif change == 2:
            body[at:at] = body[at:end]
        else:
            body[at:end] = source.randbytes(end - at)
    return bytes([data[0], data[1] if source.random() < 0.8 else 4, source.randrange(256)]) + bytes(body)


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
