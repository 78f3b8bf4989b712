"""Members of ``.npz`` archives: their directory, and where their bytes are."""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import Final

from aiostream_data.codecs.npy_header import MAX_HEADER_NBYTES, NpyHeader, header_nbytes, parse_header
from aiostream_data.errors import CorruptRecordError, PlanError
from aiostream_data.formats.known_ranges import KnownRanges
from aiostream_data.formats.npy_arrays import Deflated, StoredArray
from aiostream_data.formats.row_groups import Steps
from aiostream_data.rows.records import ByteRange
from aiostream_data.safe_url import safe_url

MAX_MEMBERS: Final = 1 << 12
"""Maximum number of arrays of an archive."""

_TAIL_NBYTES: Final = 66 << 10
"""Number of bytes at the end of an archive that contain the end of its directory, also behind a long comment."""

_MAX_DIRECTORY_NBYTES: Final = 8 << 20
_LOCAL: Final = struct.Struct("<4s22xHH")
_HEAD_NBYTES: Final = 1 << 10
_LONG_HEAD_NBYTES: Final = MAX_HEADER_NBYTES + (128 << 10)
"""Maximum number of bytes in front of the items of an array: two names, extra fields, and its header."""

_SUFFIX: Final = ".npy"


def members_of(url: str, nbytes: int, fields: tuple[str, ...] | None) -> Steps[list[StoredArray]]:
    """Read the directory of an archive, and the header of each wanted array.

    Args:
        fields: Names of the arrays to read, or None for all.

    Raises:
        CorruptRecordError: The archive is damaged, or a member is not an array.
        PlanError: The archive has no array of a requested name.
    """
    listed = yield from _listed(url, nbytes)
    wanted = _wanted(url, listed, fields)
    found: list[StoredArray] = []
    heads = yield [_head(member, nbytes, _HEAD_NBYTES) for member in wanted]
    for member, head in zip(wanted, heads, strict=True):
        array = _array(url, nbytes, member, head)
        if array is None:
            (head,) = yield [_head(member, nbytes, _LONG_HEAD_NBYTES)]
            array = _array(url, nbytes, member, head)
        if array is None:
            raise CorruptRecordError(url, member.header_offset, f"the header of {member.filename!r} is cut short")
        found.append(array)
    return found


def _listed(url: str, nbytes: int) -> Steps[list[zipfile.ZipInfo]]:
    """Read the directory at the end of an archive."""
    size = min(nbytes, _TAIL_NBYTES)
    (tail,) = yield [ByteRange(nbytes - size, nbytes)]
    try:
        return _parsed(nbytes, tail)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
        raise CorruptRecordError(url, nbytes - size, f"the directory of the archive is damaged: {error}") from error
    except OSError:
        size = min(nbytes, _MAX_DIRECTORY_NBYTES)
    (tail,) = yield [ByteRange(nbytes - size, nbytes)]
    try:
        return _parsed(nbytes, tail)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, struct.error) as error:
        raise CorruptRecordError(url, nbytes - size, f"the directory of the archive is damaged: {error}") from error


def _parsed(nbytes: int, tail: memoryview) -> list[zipfile.ZipInfo]:
    file = KnownRanges(nbytes, [ByteRange(nbytes - len(tail), nbytes)], [tail])
    with zipfile.ZipFile(file) as archive:
        return archive.infolist()


def _wanted(url: str, listed: list[zipfile.ZipInfo], fields: tuple[str, ...] | None) -> list[zipfile.ZipInfo]:
    """Return the members to read, in the order of the elements."""
    if not 0 < len(listed) <= MAX_MEMBERS:
        raise CorruptRecordError(url, 0, f"the archive has {len(listed)} members instead of 1 to {MAX_MEMBERS}")
    names = [member.filename.removesuffix(_SUFFIX) for member in listed]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CorruptRecordError(url, 0, f"the archive contains {twice!r} twice")
    known = dict(zip(names, listed, strict=True))
    for name in fields or ():
        if name not in known:
            raise PlanError(f"{safe_url(url)} has no array {name!r}. Its arrays are {', '.join(map(repr, names))}.")
    return [known[name] for name in fields or names]


def _head(member: zipfile.ZipInfo, nbytes: int, size: int) -> ByteRange:
    start = min(max(0, member.header_offset), nbytes)
    return ByteRange(start, min(nbytes, start + size))


def _array(url: str, nbytes: int, member: zipfile.ZipInfo, head: memoryview) -> StoredArray | None:
    """Return a member, or None if ``head`` does not contain its whole header."""

    def error(reason: str) -> CorruptRecordError:
        return CorruptRecordError(url, max(0, member.header_offset), f"member {member.filename!r}: {reason}")

    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
        raise error("the member is encrypted, or its compression is neither deflate nor none")
    if member.header_offset < 0 or len(head) < _LOCAL.size or bytes(head[:4]) != b"PK\x03\x04":
        raise error("the directory of the archive points to other bytes")
    _, name_nbytes, extra_nbytes = _LOCAL.unpack_from(head)
    first = _LOCAL.size + name_nbytes + extra_nbytes
    start = member.header_offset + first
    if min(member.file_size, member.compress_size) < 0 or start + member.compress_size > nbytes:
        raise error(f"its {member.compress_size} bytes at byte {start} are not inside of the file")
    is_stored = member.compress_type == zipfile.ZIP_STORED
    if is_stored and member.compress_size != member.file_size:
        raise error(f"it has {member.compress_size} stored bytes, but {member.file_size} bytes of data")
    stored = bytes(head[first : first + member.compress_size])
    try:
        header = _header(stored if is_stored else _begun(stored), len(stored) == member.compress_size)
    except (ValueError, zlib.error) as reason:
        raise error(f"{reason}") from reason
    if header is None:
        return None
    if header.nbytes + header.data_nbytes != member.file_size:
        raise error(f"an array of shape {header.shape} and {header.dtype} does not have {member.file_size} bytes")
    name = member.filename.removesuffix(_SUFFIX)
    if is_stored:
        return StoredArray(url, name, header, start + header.nbytes)
    place = ByteRange(start, start + member.compress_size)
    return StoredArray(url, name, header, start, Deflated(place, member.file_size, member.CRC))


def _begun(stored: bytes) -> bytes:
    """Return the first bytes of a compressed member."""
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(stored, MAX_HEADER_NBYTES + 64)


def _header(start: bytes, is_complete: bool) -> NpyHeader | None:
    """Parse a header, or return None if it may go on behind ``start``."""
    try:
        if not is_complete and header_nbytes(start) > len(start):
            return None
    except ValueError:
        if len(start) < 64:
            return None
        raise
    return parse_header(start)
