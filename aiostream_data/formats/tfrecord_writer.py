"""Write TFRecord files to local paths or, with fsspec, to other stores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self

from aiostream_data import _native
from aiostream_data.arguments import local_path
from aiostream_data.codecs.compression import canonical
from aiostream_data.codecs.compressors import compressor
from aiostream_data.errors import ArgumentTypeError, WriterClosedError, WriterFailedError
from aiostream_data.formats.output_file import open_target
from aiostream_data.formats.tfrecord import FOOTER, HEADER

_LENGTH_NBYTES = 8
_WRITE_NBYTES = 1 << 20
_CURES = {str: ": pass text.encode()", dict: ": pass encode_example(features)"}


def frame(record: bytes | bytearray | memoryview) -> bytes:
    """Encode ``record`` as a TFRecord frame: length, checksum, payload, checksum."""
    if not isinstance(record, bytes):
        try:
            record = memoryview(record).tobytes()  # for other buffers, len() may count items instead of bytes
        except TypeError:
            cure = _CURES.get(type(record), "")
            raise ArgumentTypeError(f"a record must be bytes, got a {type(record).__name__}{cure}") from None
    length = len(record).to_bytes(_LENGTH_NBYTES, "little")
    header = HEADER.pack(len(record), _native.masked_crc32c(length))
    return b"".join((header, record, FOOTER.pack(_native.masked_crc32c(record))))


class _Phase(Enum):
    OPEN = auto()
    BROKEN = auto()
    """State of the writer during a call, and after a call failed or was interrupted."""
    CLOSED = auto()
    DISCARDED = auto()


class TFRecordWriter:
    """Writer of one TFRecord file, like ``tf.io.TFRecordWriter``. Not thread-safe.

    Use the writer as a context manager. The file gets its final name only when all records are written. If the ``with``
    block raises an exception, the writer discards the file. Some stores upload data immediately. Stores that cannot
    defer an upload may therefore show an incomplete file.

    If any call raises an error, the writer discards the file and rejects further records. After the error,
    :meth:`close` raises :class:`WriterFailedError` with the first error as its cause.

    Args:
        path_or_url: Local path, ``file://`` URL, or any URL that fsspec can write.
        compression: A name of :data:`.COMPRESSIONS`, in upper or lower case; ``""`` is none.
        storage_options: Options for fsspec.

    Raises:
        PlanError: The compression is unknown, or an option uses another library's name.
        MissingExtraError: fsspec or the compression's package is not installed.
        OSError: The file cannot be created.
    """

    def __init__(
        self,
        path_or_url: str | os.PathLike[str],
        compression: str = "",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._compressor = compressor(canonical(compression))
        self._pending = bytearray()
        self._failure: BaseException | None = None
        self._phase = _Phase.OPEN
        self._url = local_path("path_or_url", path_or_url, "a path or URL")
        self._target = open_target(self._url, storage_options or {})

    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Append one record.

        Raises:
            WriterClosedError: The writer is already closed, or its file was discarded.
            WriterFailedError: An earlier call of the writer failed.
            WriteError: The file could not be written, for example because the disk is full.
            ArgumentTypeError: The record is not bytes.
        """
        self._begin()
        try:
            self._pending += self._compressor.compress(frame(record))
            if len(self._pending) >= _WRITE_NBYTES:
                self._target.write(bytes(self._pending))
                self._pending.clear()
        except BaseException as error:
            self._fail(error)
            raise
        self._phase = _Phase.OPEN

    def close(self) -> None:
        """Finish the file and store it under its final name.

        Do nothing if the writer is already closed or the file was discarded.

        Raises:
            WriterFailedError: An earlier call failed, so no file was stored.
            WriteError: The file could not be written.
        """
        if self._phase in (_Phase.CLOSED, _Phase.DISCARDED):
            return
        self._begin()
        try:
            self._target.write(bytes(self._pending) + self._compressor.flush())
            self._target.commit()
        except BaseException as error:
            self._fail(error)
            raise
        self._phase = _Phase.CLOSED
        self._pending.clear()

    def discard(self) -> None:
        """Remove the unfinished file.

        Repeated calls of :meth:`discard`, and calls after a successful close, have no effect.
        """
        if self._phase is _Phase.CLOSED:
            return
        if self._phase is _Phase.OPEN:
            self._phase = _Phase.DISCARDED
        self._pending.clear()
        self._target.discard()

    def _begin(self) -> None:
        """Start a call to the writer. Mark the writer as broken until the call succeeds."""
        if self._phase is not _Phase.OPEN:
            raise self._refusal() from self._failure
        self._phase = _Phase.BROKEN

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        try:
            self.discard()
        except OSError as left:
            error.add_note(f"the temporary file could not be removed: {left}")

    def _refusal(self) -> WriterClosedError:
        if self._phase is not _Phase.BROKEN:
            return WriterClosedError(self._url, f"this TFRecordWriter was {self._phase.name.lower()}; open a new one")
        cause = "was interrupted" if self._failure is None else f"failed ({type(self._failure).__name__})"
        return WriterFailedError(
            self._url,
            f"an earlier call of this TFRecordWriter {cause}, and nothing was stored; write the file again",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif self._phase is not _Phase.CLOSED:
            self._phase = _Phase.DISCARDED
            self._fail(error)
