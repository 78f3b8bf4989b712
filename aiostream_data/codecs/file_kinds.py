"""Recognize files of well-known formats by their first bytes, and suggest a reader for these formats."""

from __future__ import annotations

import codecs
from typing import Final, NamedTuple
from unicodedata import category

from aiostream_data import _native

START_NBYTES: Final = 512
"""Number of bytes to inspect at the start of a file. A tar header has this size."""

_MARKED_NBYTES: Final = 64
"""Number of bytes that must be valid text after a byte order mark."""

_BZIP2_BLOCK: Final = b"1AY&SY"
_BMP_HEADERS: Final = tuple(size.to_bytes(4, "little") for size in (12, 40, 52, 56, 64, 108, 124))
_ARROW_ROOT: Final = 256
"""Upper limit of the place of the root table in an Arrow message. It usually is 16."""

_TAR_CHECKSUM: Final = slice(148, 156)
TFRECORD_NBYTES: Final = 12
"""Size of a TFRecord length and its checksum."""


_COMPRESSED: Final = "pass compression="
TWICE: Final = "so decompress it once"
"""What to do about a compressed stream inside another one."""


class FileKind(NamedTuple):
    """A file format that the record readers cannot read.

    Attributes:
        name: Name of the format with its article, for error messages.
        cure: Advice to the user, for error messages.
        is_certain: True if the format's magic number is long enough to reject the file even in readers of raw bytes.
    """

    name: str
    cure: str
    is_certain: bool = True

    @property
    def is_compression(self) -> bool:
        """True for a compressed stream."""
        return self.cure.startswith(_COMPRESSED)


_DECODED: Final = "use from_files(), and decode the bytes in a function passed to map()"
_GENERATOR: Final = "read it with {} in a function passed to from_generator()"

TAR: Final = FileKind("a tar archive", "use from_webdataset(), or unpack it and use from_files()")
ZIP: Final = FileKind(
    "a zip archive",
    f"unpack it and use from_files(), or {_GENERATOR.format('zipfile')}; use from_npy() for a .npz file",
)
PARQUET: Final = FileKind("a Parquet file", "use from_parquet()")
ARROW: Final = FileKind("an Arrow file", "use from_arrow()")
ARROW_STREAM: Final = FileKind("an Arrow stream", "use from_arrow()", is_certain=False)
HDF5: Final = FileKind("an HDF5 file", "use from_hdf5()")
ARRAY_RECORD: Final = FileKind("an ArrayRecord file", "use from_array_record()")
NPY: Final = FileKind("a NumPy file", "use from_npy()")
PNG: Final = FileKind("a PNG image", _DECODED, is_certain=False)
JPEG: Final = FileKind("a JPEG image", _DECODED, is_certain=False)
GIF: Final = FileKind("a GIF image", _DECODED, is_certain=False)
WEBP: Final = FileKind("a WebP image", _DECODED, is_certain=False)
BMP: Final = FileKind("a BMP image", _DECODED, is_certain=False)
TIFF: Final = FileKind("a TIFF image", _DECODED, is_certain=False)
IMAGES: Final = (PNG, JPEG, GIF, WEBP, BMP, TIFF)
PDF: Final = FileKind("a PDF document", _DECODED, is_certain=False)
SOUND: Final = FileKind("a sound file", "use from_files(), and codecs.decode_audio() in map()", is_certain=False)
VIDEO: Final = FileKind("a video", "use from_files(), and codecs.decode_video() in map()", is_certain=False)
ORC: Final = FileKind("an ORC file", _GENERATOR.format("pyarrow.orc"))
AVRO: Final = FileKind("an Avro file", _GENERATOR.format("fastavro"))
SQLITE: Final = FileKind("an SQLite database", "use from_sql() with a connection of sqlite3")
BZIP2: Final = FileKind("a bzip2 stream", "pass compression='bz2'", is_certain=False)
XZ: Final = FileKind("an xz stream", "pass compression='xz'", is_certain=False)
LZ4: Final = FileKind("an lz4 stream", "pass compression='lz4'", is_certain=False)
SNAPPY: Final = FileKind("a snappy stream", "pass compression='snappy'", is_certain=False)
SEVEN_ZIP: Final = FileKind("a 7z archive", "unpack it, and use from_files()")
LFS: Final = FileKind("a Git LFS pointer instead of the file", "fetch the file with 'git lfs pull'")
TFRECORD: Final = FileKind("a TFRecord file", "use from_tfrecord()", is_certain=False)
GZIP: Final = FileKind("a gzip stream", "pass compression='gzip'", is_certain=False)
ZSTD: Final = FileKind("a zstd stream", "pass compression='zstd'", is_certain=False)

_UTF8: Final = "convert it to UTF-8, as with iconv -f {} -t UTF-8"
UTF16: Final = FileKind("UTF-16 text", _UTF8.format("UTF-16"), is_certain=False)
UTF32: Final = FileKind("UTF-32 text", _UTF8.format("UTF-32"), is_certain=False)

_MAGICS: Final = (
    (b"PAR1\x15", PARQUET),  # \x15 begins the first page; plain text may begin with PAR1
    (b"ARROW1\0\0", ARROW),
    (b"\x89HDF\r\n\x1a\n", HDF5),
    (b"\x83\xafp\xd1\r\x88J?\0\0\0\0\0\0\0\0@\0\0\0\0\0\0\0", ARRAY_RECORD),  # the first block of a Riegeli file
    (b"\x89PNG\r\n\x1a\n", PNG),
    (b"\x93NUMPY", NPY),
    (b"%PDF-1.", PDF),
    (b"%PDF-2.", PDF),
    (b"GIF87a", GIF),
    (b"GIF89a", GIF),
    (b"fLaC\0\0\0\x22", SOUND),
    (b"ORC\x08\x03", ORC),
    (b"Obj\x01", AVRO),
    (b"SQLite format 3\0", SQLITE),
    (b"\xfd7zXZ\0", XZ),
    (b"\x04\x22\x4d\x18", LZ4),
    (b"\xff\x06\x00\x00sNaPpY", SNAPPY),
    (b"7z\xbc\xaf\x27\x1c", SEVEN_ZIP),
    (b"version https://git-lfs.github.com/spec/", LFS),
    (b"\x1f\x8b\x08", GZIP),
    (b"\x28\xb5\x2f\xfd", ZSTD),
)
_BYTE_ORDER_MARKS: Final = (
    (b"\xff\xfe\0\0", "utf-32-le", UTF32),
    (b"\0\0\xfe\xff", "utf-32-be", UTF32),
    (b"\xff\xfe", "utf-16-le", UTF16),
    (b"\xfe\xff", "utf-16-be", UTF16),
)
_WHITE_SPACE: Final = frozenset("\t\n\v\f\r")
_NO_TEXT: Final = frozenset(("Cc", "Cn", "Co", "Cs"))
"""Unicode categories of control and unassigned characters, which do not occur in text."""


FIRST_PAIRS: Final = frozenset(
    [magic[:2] for magic, _ in _MAGICS]
    + [mark[:2] for mark, _, _ in _BYTE_ORDER_MARKS]
    + [b"PK", b"\xff\xd8", b"BZ", b"RI", b"BM", b"II", b"MM", b"\xff\xff", b"\0\0"]  # see kind_of()
)
"""First two bytes of all file kinds that :func:`kind_of` detects, except TFRecord and tar files."""


def kind_of(start: bytes) -> FileKind | None:
    """Detect the format of a file from its first ``START_NBYTES`` bytes (or fewer). Return None if unknown."""
    for magic, kind in _MAGICS:
        if start.startswith(magic):
            return kind
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")) and start[5:6] == b"\0":
        return ZIP
    if start.startswith(b"\xff\xd8\xff") and start[3:4] >= b"\xc0":
        return JPEG
    if start.startswith(b"BZh") and start[4:10] == _BZIP2_BLOCK:
        return BZIP2
    if start.startswith(b"RIFF") and start[8:16] == b"WAVEfmt ":
        return SOUND
    if start.startswith(b"RIFF") and start[8:15] == b"WEBPVP8":
        return WEBP
    if start.startswith(b"BM") and start[6:10] == bytes(4) and start[14:18] in _BMP_HEADERS:
        return BMP
    if start.startswith((b"II*\0", b"MM\0*")):
        return TIFF
    if _starts_arrow_stream(start):
        return ARROW_STREAM
    if start.startswith(b"\0\0\0") and start[4:8] == b"ftyp":
        return VIDEO
    if starts_tfrecord(start):
        return TFRECORD
    return TAR if _starts_tar(start) else _marked_text(start)


def holds_image(element: object) -> bool:
    """Return True if an element, or one of its fields, contains the bytes of a JPEG or PNG image."""
    parts = element.values() if type(element) is dict else element if type(element) is tuple else (element,)
    return any(type(part) is bytes and kind_of(part[:START_NBYTES]) in (JPEG, PNG) for part in parts)


def starts_tfrecord(start: bytes) -> bool:
    """Return True if the bytes begin with a TFRecord length whose checksum matches."""
    if len(start) < TFRECORD_NBYTES:
        return False
    return _native.masked_crc32c(start[:8]) == int.from_bytes(start[8:12], "little")


def _starts_arrow_stream(start: bytes) -> bool:
    """Return True if the bytes begin with the mark of an Arrow message, its size, and the place of its root table."""
    if len(start) < 16 or not start.startswith(b"\xff\xff\xff\xff"):
        return False
    size, root = (int.from_bytes(start[at : at + 4], "little") for at in (4, 8))
    return size % 8 == 0 and 4 <= root < min(size, _ARROW_ROOT) and root % 2 == 0


def _marked_text(start: bytes) -> FileKind | None:
    """Return the kind of text indicated by a byte order mark.

    Return None if the bytes after the mark are not text of this kind.

    A file in another format can begin with the two bytes of the UTF-16 byte order mark by accident. If valid UTF-8
    follows this mark, the file is not UTF-16. Damage in the first bytes of a UTF-8 file must not make the file
    unreadable.
    """
    for mark, encoding, kind in _BYTE_ORDER_MARKS:
        if start.startswith(mark):
            behind = start[len(mark) : len(mark) + _MARKED_NBYTES]
            if _is_text(behind, encoding) and not (behind and _is_text(behind, "utf-8")):
                return kind
    return None


def _is_text(data: bytes, encoding: str) -> bool:
    """Return True if ``data`` decodes to assigned, non-control characters. ``data`` may end inside a character."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data)
    except UnicodeDecodeError:
        return False
    return all(character in _WHITE_SPACE or category(character) not in _NO_TEXT for character in text)


def _starts_tar(start: bytes) -> bool:
    """Return True if the bytes begin with a tar header whose checksum matches."""
    if len(start) < START_NBYTES or not start[_TAR_CHECKSUM].strip(b" \0"):
        return False
    try:
        told = int(start[_TAR_CHECKSUM].strip(b" \0"), 8)
    except ValueError:
        return False
    return told == sum(start[: _TAR_CHECKSUM.start]) + 8 * ord(" ") + sum(start[_TAR_CHECKSUM.stop : START_NBYTES])
