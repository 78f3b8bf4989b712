"""The formats whose records are runs of bytes, each put through the suite for formats."""

from __future__ import annotations

from aiostream_data.formats.fixed_length import FixedLengthFormat
from aiostream_data.formats.text import TextFormat
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.formats.whole_file import WholeFileFormat
from aiostream_data.testing.formats import Damage, FormatSuite

RECORDS = [b"first", b"", b"x" * 100, b"\n\0\xff", b"last"]
FRAMES = [frame(record) for record in RECORDS]


def flipped(stream: bytes, at: int) -> bytes:
    return stream[:at] + bytes([stream[at] ^ 0x10]) + stream[at + 1 :]


class TestTFRecord(FormatSuite):
    description = TFRecordFormat(max_record_nbytes=1000)
    stream = b"".join(FRAMES)
    records = RECORDS
    damaged = (
        Damage(stream[:-1], RECORDS[:4], len(stream) - len(FRAMES[-1])),
        Damage(stream + b"\0", RECORDS, len(stream)),
        Damage(flipped(stream, len(FRAMES[0]) + 3), RECORDS[:1], len(FRAMES[0])),
        Damage(flipped(stream, len(stream) - 5), RECORDS[:4], len(stream) - len(FRAMES[-1])),
        Damage(FRAMES[0] + frame(b"y" * 1001) + FRAMES[1], RECORDS[:1], len(FRAMES[0])),
    )


class TestTFRecordWithoutVerification(FormatSuite):
    description = TFRecordFormat(verify=False)
    stream = FRAMES[0] + flipped(FRAMES[2], 50)
    records = (b"first", flipped(FRAMES[2], 50)[12:-4])
    damaged = (Damage(flipped(stream, len(FRAMES[0]) + 1), RECORDS[:1], len(FRAMES[0])),)


class TestText(FormatSuite):
    description = TextFormat(max_line_nbytes=40)
    stream = "\ufeffplain\r\n\nwört € 𝄞\r\r\nlast, without newline\r".encode()
    records = ("plain", "", "wört € 𝄞\r", "last, without newline\r")
    damaged = (
        Damage(b"good\nalso\nb\xc3d\nnever\n", ["good", "also"], 10),
        Damage(b"good\n" + b"z" * 41 + b"\nnever\n", ["good"], 5),
        Damage(b"good\n" + b"z" * 60, ["good"], 5),
        Damage(b"good\ncut \xe2\x82", ["good"], 5),
    )


class TestTextAsBytes(FormatSuite):
    description = TextFormat(encoding=None)
    stream = b"\xef\xbb\xbfmark\r\nany \xff byte\n"
    records = (b"\xef\xbb\xbfmark", b"any \xff byte")


class TestTextInAnotherEncoding(FormatSuite):
    description = TextFormat(encoding="cp1252")
    stream = "Käse\r\r\n5 €\n\n".encode("cp1252")
    records = ("Käse\r", "5 €", "")
    damaged = (Damage(b"good\n\x81\n", ["good"], 5),)


class TestFixedLength(FormatSuite):
    description = FixedLengthFormat(record_nbytes=3, header_nbytes=5, footer_nbytes=4)
    stream = b"HEADEaaabbbcccFOOT"
    records = (b"aaa", b"bbb", b"ccc")
    damaged = (
        Damage(b"HEADEaaabFOOT", [b"aaa"], 8),
        Damage(b"HEADEFOO", [], 5),
        Damage(b"HEA", [], 3),
    )


class TestFixedLengthWithoutHeaderAndFooter(FormatSuite):
    description = FixedLengthFormat(record_nbytes=2)
    stream = b"aabb"
    records = (b"aa", b"bb")
    damaged = (Damage(b"aab", [b"aa"], 2),)


class TestWholeFile(FormatSuite):
    description = WholeFileFormat(max_record_nbytes=50)
    stream = b"one object\nis one record"
    records = (stream,)
    damaged = (Damage(b"too long" * 7, [], 0),)


class TestEmptyWholeFile(FormatSuite):
    description = WholeFileFormat()
    stream = b""
    records = (b"",)


class TestEmptyTFRecord(FormatSuite):
    description = TFRecordFormat()
    stream = b""
    records = ()
