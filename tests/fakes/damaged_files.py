"""Damaged files of every format, with twins that hold the records that are left of them, and what is lost."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from skipping_reference import Left, lines, tfrecords

from aiostream_data import Dataset
from aiostream_data.codecs.compressors import compressor
from aiostream_data.formats.tfrecord_writer import frame

Loss = tuple[int, int | None]
Source = Callable[..., Dataset[Any]]


def zstd(data: bytes) -> bytes:
    made = compressor("zstd")
    return made.compress(data) + made.flush()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "zstd": zstd,
}


@dataclass(frozen=True)
class Case:
    """Files of one source.

    Attributes:
        source: Takes a pattern and options.
        damaged, clean: Contents by name. The clean ones hold the records that are left.
        losses: Of each damaged file, (offset, bytes or None); none of those left out.
    """

    source: Source
    damaged: Mapping[str, bytes]
    clean: Mapping[str, bytes]
    losses: Mapping[str, list[Loss]]

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write both kinds of files; return their folders."""
        for kind, files in (("damaged", self.damaged), ("clean", self.clean)):
            (folder / kind).mkdir()
            for name, content in files.items():
                (folder / kind / name).write_bytes(content)
        return folder / "damaged", folder / "clean"

    @property
    def lost(self) -> list[tuple[str, int, int | None]]:
        """All losses as (name, offset, bytes), sorted."""
        return sorted(((name, *loss) for name, found in self.losses.items() for loss in found), key=str)


def flipped(content: bytes, *places: int) -> bytes:
    changed = bytearray(content)
    for place in places:
        changed[place] ^= 0x20
    return bytes(changed)


def holed(content: bytes, start: int, stop: int, filler: bytes = b"") -> bytes:
    return content[:start] + filler + content[stop:]


ROWS = 30


def records(name: str) -> list[bytes]:
    return [f"{name} {row}".encode() * (1 + row % 5) for row in range(ROWS)]


def _frames(name: str) -> bytes:
    return b"".join(map(frame, records(name)))


def _text(name: str) -> bytes:
    return b"".join(record + b"\n" for record in records(name))


TFRECORD_DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a payload": lambda data: flipped(data, 210),
    "a length": lambda data: flipped(data, len(frame(records("b")[0]))),
    "the first header": lambda data: flipped(data, 1),
    "the last payload": lambda data: flipped(data, len(data) - 5),
    "several": lambda data: flipped(data, 100, 300, 301, 500),
    "zeros": lambda data: holed(data, 150, 260, bytes(110)),
    "bytes missing": lambda data: holed(data, 150, 161),
    "bytes too many": lambda data: holed(data, 333, 333, b"something else"),
    "cut in a payload": lambda data: data[:-6],
    "cut in a header": lambda data: data + frame(b"last")[:7],
    "all of it": lambda data: bytes(len(data)),
}
TEXT_DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a line": lambda data: data.replace(b"b 3b", b"b\xff3b"),
    "several lines": lambda data: data.replace(b"b 1\n", b"\xff\n").replace(b"b 2", b"\xc3"),
    "the first and the last line": lambda data: b"\x80" + data + b"last \xff",
}


def _case(source: Source, damaged: bytes, left: Left, clean: Callable[[list[Any]], bytes], compression: str) -> Case:
    make = COMPRESS[compression]
    others = {name: make(clean(records(name))) for name in "acd"}
    return Case(source, {**others, "b": make(damaged)}, {**others, "b": make(clean(left.records))}, {"b": left.losses})


def _as_frames(found: list[bytes]) -> bytes:
    return b"".join(map(frame, found))


def _as_text(found: list[Any]) -> bytes:
    return b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in found)


def _read_tfrecord(files: Any, **options: Any) -> Dataset[Any]:
    return Dataset.from_tfrecord(files, **options)


def _read_text(files: Any, **options: Any) -> Dataset[Any]:
    return Dataset.from_text(files, **options)


def _read_fixed(files: Any, **options: Any) -> Dataset[Any]:
    return Dataset.from_fixed_length(files, 10, header_nbytes=2, compression="auto", **options)


def _read_checked(files: Any, **options: Any) -> Dataset[Any]:
    return Dataset.from_text(files, verify=True, **options)


def cases() -> dict[str, Case]:
    """Return all cases by name."""
    found: dict[str, Case] = {}
    for compression in COMPRESS:
        how = compression or "plain"
        for name, damage in TFRECORD_DAMAGE.items():
            damaged = damage(_frames("b"))
            left = tfrecords(damaged)
            found[f"tfrecord, {how}: {name}"] = _case(_read_tfrecord, damaged, left, _as_frames, compression)
        for name, damage in TEXT_DAMAGE.items():
            damaged = damage(_text("b"))
            left = lines(damaged, "utf-8", 1 << 26)
            found[f"text, {how}: {name}"] = _case(_read_text, damaged, left, _as_text, compression)
        found[f"fixed length, {how}: bytes left over"] = _fixed(compression, 95, [(92, None)], 9)
        found[f"fixed length, {how}: header cut"] = _fixed(compression, 1, [(0, None)], 0)
        if compression:
            found[f"tfrecord, {how}: stream cut"] = _cut(_read_tfrecord, _frames, compression, -3)
            found[f"text, {how}: stream cut"] = _cut(_read_text, _text, compression, -3)
            if compression != "zstd":  # whose only block is lost with its end
                found[f"tfrecord, {how}: stream cut in the middle"] = _cut_in_the_middle(compression)
            found[f"text, {how}: checked first"] = _cut(_read_checked, _text, compression, -1, nothing=True)
    base = found["text, plain: a line"]
    found["text: an image"] = Case(
        _read_text, {**base.damaged, "b": b"\x89PNG\r\n\x1a\n"}, {**base.clean, "b": b""}, {"b": [(0, None)]}
    )
    return found


def _fixed(compression: str, nbytes: int, losses: list[Loss], rows: int) -> Case:
    make = COMPRESS[compression]
    content = b"hd" + b"".join(b"%010d" % row for row in range(ROWS))
    others = {other: make(content) for other in "ac"}
    return Case(
        _read_fixed,
        {**others, "b": make(content[:nbytes])},
        {**others, "b": make(content[: 2 + 10 * rows])},
        {"b": losses},
    )


def _cut(source: Source, content: Callable[[str], bytes], compression: str, cut: int, nothing: bool = False) -> Case:
    """Return a case of a compressed stream that is cut behind its last record, or in front of its checksum."""
    make = COMPRESS[compression]
    others = {other: make(content(other)) for other in "ac"}
    whole = content("b")
    left = b"" if nothing else whole
    return Case(
        source,
        {**others, "b": make(whole)[:cut]},
        {**others, "b": make(left)},
        {"b": [(0 if nothing else len(whole), None)]},
    )


def _cut_in_the_middle(compression: str) -> Case:
    packed = COMPRESS[compression](_frames("b"))
    packed = packed[: len(packed) // 2]
    decompressed = zlib.decompressobj(47).decompress(packed)
    left = tfrecords(decompressed)
    left.losses[:] = left.losses or [(len(decompressed), None)]
    case = _case(_read_tfrecord, b"", left, _as_frames, compression)
    return replace(case, damaged={**case.damaged, "b": packed})
