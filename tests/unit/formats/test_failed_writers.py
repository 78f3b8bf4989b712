"""A writer that failed refuses further calls, stores nothing, and leaves no temporary file."""

from __future__ import annotations

import errno
import json
import os
import pickle
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from leaks import leaves_nothing

from aiostream_data import Dataset, TFRecordWriter, write_index
from aiostream_data.errors import (
    AiostreamError,
    DeadLetterError,
    WriteError,
    WriterClosedError,
    WriterFailedError,
)
from aiostream_data.failing.dead_letter_log import DeadLetterLog, read_entries

MIB = 1 << 20


@contextmanager
def file_size_limit(nbytes: int) -> Iterator[None]:
    """Let the system refuse to write files beyond ``nbytes``, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_all(writer: TFRecordWriter, *records: bytes) -> None:
    for record in records:
        writer.write(record)


def write_and_raise(writer: TFRecordWriter, error: BaseException) -> None:
    writer.write(b"one")
    raise error


class Interrupting(bytes):
    def __len__(self) -> int:
        raise KeyboardInterrupt


def test_a_failed_writer_refuses_further_calls_and_never_commits(tmp_path: Path) -> None:
    writer = TFRecordWriter(tmp_path / "x.tfrecord")
    with (
        file_size_limit(MIB),
        pytest.raises(WriteError, match=r"x\.tfrecord: cannot write the file: File too") as first,
    ):
        write_all(writer, *[bytes(MIB)] * 4)
    assert first.value.errno == errno.EFBIG
    for call in (partial(writer.write, b"next"), writer.close, writer.close):
        with pytest.raises(WriterFailedError, match="an earlier call of this TFRecordWriter failed") as refused:
            call()
        assert refused.value.__cause__ is first.value
    writer.discard()
    assert files_in(tmp_path) == []


def test_a_failure_that_the_block_swallows_is_raised_at_its_end(tmp_path: Path) -> None:
    with pytest.raises(WriterFailedError), TFRecordWriter(tmp_path / "x") as writer, suppress(TypeError):
        writer.write("text")  # type: ignore[arg-type]
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("compression", ["", "gzip", "zstd"])
def test_a_full_disk_at_close_leaves_no_file(tmp_path: Path, compression: str) -> None:
    (tmp_path / "x").write_bytes(b"older")
    with leaves_nothing(folders=[tmp_path]):
        writer = TFRecordWriter(tmp_path / "x", compression)
        writer.write(np.random.default_rng(0).bytes(4000))
        with file_size_limit(1000), pytest.raises(WriteError) as first:
            writer.close()
        with pytest.raises(WriterFailedError) as again:
            writer.close()
        assert again.value.__cause__ is first.value
    assert (tmp_path / "x").read_bytes() == b"older"


def test_a_rename_that_fails_leaves_no_temporary_file(tmp_path: Path) -> None:
    writer = TFRecordWriter(tmp_path / "x")
    (tmp_path / "x").mkdir()
    with pytest.raises(WriteError) as failed:
        writer.close()
    assert failed.value.errno == errno.EISDIR
    assert files_in(tmp_path) == ["x"]


def test_a_folder_that_is_removed_fails_the_writer(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    writer = TFRecordWriter(folder / "x")
    shutil.rmtree(folder)
    with pytest.raises(WriteError) as failed:
        writer.close()
    assert failed.value.errno == errno.ENOENT


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit, ValueError])
def test_an_exception_in_the_block_discards_the_file(tmp_path: Path, raised: type[BaseException]) -> None:
    with leaves_nothing(folders=[tmp_path]):
        cause = raised()
        with pytest.raises(raised), TFRecordWriter(tmp_path / "x") as writer:
            write_and_raise(writer, cause)
        writer.close()
        with pytest.raises(WriterClosedError) as late:
            writer.write(b"late")
        assert late.value.__cause__ is cause


def test_an_interrupted_write_fails_the_writer(tmp_path: Path) -> None:
    writer = TFRecordWriter(tmp_path / "x")
    with pytest.raises(KeyboardInterrupt):
        writer.write(Interrupting())
    with pytest.raises(WriterFailedError, match=r"failed \(KeyboardInterrupt\)"):
        writer.close()
    assert files_in(tmp_path) == []


@contextmanager
def interrupt_at_line(nth: int) -> Iterator[Callable[[], bool]]:
    """Raise KeyboardInterrupt at the nth line that the writer's modules run; give a function that tells if it did."""
    left = nth

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(("tfrecord_writer.py", "output_file.py")):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: left <= 0
    finally:
        sys.settrace(before)


def test_a_writer_interrupted_at_any_line_stores_no_record_twice_and_no_part_of_one(tmp_path: Path) -> None:
    path, nth, reached = tmp_path / "x", 0, True
    records = [bytes(2 * MIB), b"two", b"three"]
    while reached:
        nth += 1
        writer = TFRecordWriter(path)
        with interrupt_at_line(nth) as was_reached:
            for record in records:
                with suppress(KeyboardInterrupt, WriterFailedError):
                    writer.write(record)
            with suppress(KeyboardInterrupt, WriterFailedError):
                writer.close()
        reached = was_reached()
        with suppress(WriterFailedError):
            writer.close()
        writer.discard()
        assert not list(tmp_path.glob("*.partial")), nth
        stored = list(Dataset.from_tfrecord(path)) if path.exists() else []
        # A call that was interrupted before it began, or after it ended, fails nothing.
        assert stored in (records, records[1:], records[::2], records[:2], []), nth
        path.unlink(missing_ok=True)
    assert nth > 20


def test_two_writers_of_one_name_do_not_mix(tmp_path: Path) -> None:
    first, second = TFRecordWriter(tmp_path / "x"), TFRecordWriter(tmp_path / "x")
    first.write(b"first")
    second.write(b"second")
    second.close()
    first.close()
    assert list(Dataset.from_tfrecord(tmp_path / "x")) == [b"first"]
    assert files_in(tmp_path) == ["x"]


@pytest.mark.parametrize("record", [np.arange(3).data, bytearray(b"abc"), np.arange(6).reshape(2, 3)[:, 1:].data])
def test_a_buffer_is_written_with_its_length_in_bytes(tmp_path: Path, record: memoryview) -> None:
    with TFRecordWriter(tmp_path / "x") as writer:
        writer.write(record)
    assert list(Dataset.from_tfrecord(tmp_path / "x")) == [memoryview(record).tobytes()]


def test_a_device_or_directory_is_refused_and_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(WriteError, match="not a regular file"):
        TFRecordWriter(tmp_path / "pipe")
    with pytest.raises(WriteError, match="is a directory"):
        TFRecordWriter(tmp_path / "folder")
    assert files_in(tmp_path) == ["folder", "pipe"]


@pytest.mark.parametrize("kind", [WriterClosedError, WriterFailedError, WriteError])
def test_errors_of_writers_pickle_with_url_and_number(kind: type[Any]) -> None:
    error = kind("https://user:word@host/x", "reason")
    error.errno = errno.ENOSPC
    error.add_note("a note")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.errno, back.__notes__) == (kind, str(error), errno.ENOSPC, ["a note"])
    assert "word" not in str(back)
    assert isinstance(back, AiostreamError)


class FailingFile(AbstractBufferedFile):  # type: ignore[misc]
    """An upload whose second part fails."""

    def _initiate_upload(self) -> None:
        self.parts = 0

    def _upload_chunk(self, final: bool = False) -> bool:
        self.parts += 1
        if self.parts == 2:
            raise ConnectionError("the line is cut")
        return True

    def commit(self) -> None:
        self.fs.log.append("commit")

    def discard(self) -> None:
        self.fs.log.append("discard")


class FailingStore(AbstractFileSystem):  # type: ignore[misc]
    protocol = "failing"
    cachable = False
    log: ClassVar[list[str]] = []

    def _open(self, path: str, mode: str = "rb", autocommit: bool = True, **options: Any) -> FailingFile:
        return FailingFile(self, path, mode, block_size=MIB, autocommit=autocommit)


def test_an_upload_that_fails_is_discarded_and_never_committed() -> None:
    fsspec.register_implementation("failing", FailingStore, clobber=True)
    FailingStore.log.clear()
    writer = TFRecordWriter("failing://bucket/x")
    with pytest.raises(OSError, match="cut") as first:
        write_all(writer, *[bytes(2 * MIB)] * 3)
    with pytest.raises(WriterFailedError) as refused:
        writer.close()
    assert refused.value.__cause__ is first.value
    assert set(FailingStore.log) == {"discard"}


@pytest.mark.parametrize("scheme", ["memory://bucket", "local://"])
def test_no_file_is_shown_before_it_is_complete(tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}{tmp_path}/x"
    filesystem, path = fsspec.core.url_to_fs(url)
    writer = TFRecordWriter(url)
    writer.write(b"one")
    with pytest.raises(TypeError):
        writer.write(None)  # type: ignore[arg-type]
    with pytest.raises(WriterFailedError):
        writer.close()
    assert not filesystem.exists(path)
    with TFRecordWriter(url) as writer:
        writer.write(b"one")
    assert filesystem.exists(path)
    filesystem.rm(path)


def test_an_index_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text("line\n")
    target = tmp_path / "indexes"
    target.mkdir()
    with file_size_limit(500), pytest.raises(WriteError):
        write_index(str(tmp_path / "*.txt"), target / "index")
    assert files_in(target) == []


def entry(number: int, text: str = "") -> dict[str, Any]:
    return {"url": "a", "name": [number], "row": {}, "text": text}


def test_a_dead_letter_log_takes_back_a_cut_line_and_refuses_further_records(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log, other = DeadLetterLog(str(path)), DeadLetterLog(str(path))
    log.append([entry(1)])
    with file_size_limit(1000), pytest.raises(DeadLetterError, match="cannot be written") as first:
        log.append([entry(2, "x" * 5000)])
    with pytest.raises(DeadLetterError, match="after an earlier failure") as refused:
        log.append([entry(3)])
    assert refused.value.__cause__ is first.value
    other.append([entry(4)])
    log.close()
    other.close()
    assert [json.loads(line)["name"] for line in path.read_text().splitlines()] == [[1], [4]]


def test_a_dead_letter_line_cut_at_any_byte_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = DeadLetterLog(str(path))
    log.append([entry(1)])
    log.close()
    line = path.read_bytes()
    for cut in range(len(line) - 1):
        path.write_bytes(line + line[:cut])
        log = DeadLetterLog(str(path))
        log.append([entry(2)])
        log.close()
        assert [found["name"] for found in read_entries(path)] == [[1], [2]], cut


def test_a_failed_dead_letter_log_holds_no_file(tmp_path: Path) -> None:
    log = DeadLetterLog(str(tmp_path / "log"))
    with leaves_nothing():
        with file_size_limit(10), pytest.raises(DeadLetterError):
            log.append([entry(1)])
        log.close()
    assert (tmp_path / "log").read_bytes() == b""
