"""A dead-letter log that is closed while somebody writes to it is closed by whoever writes, and then takes nothing."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data.failing.dead_letter_log import DeadLetterLog, read_entries


def entry(number: int) -> dict[str, Any]:
    return {"url": "a", "name": [number], "row": {}}


def test_closing_waits_for_nobody_and_the_writer_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    log = DeadLetterLog(str(path))
    entered, go = threading.Event(), threading.Event()
    write = os.write

    def slow_write(file: int, data: bytes) -> int:
        entered.set()
        assert go.wait(10)
        return write(file, data)

    with leaves_nothing():
        monkeypatch.setattr(os, "write", slow_write)
        writer = threading.Thread(target=log.append, args=([entry(1)],))
        writer.start()
        assert entered.wait(10)
        log.close()
        go.set()
        writer.join()
        monkeypatch.undo()
    assert [json.loads(line)["name"] for line in path.read_text().splitlines()] == [[1]]


def test_nothing_is_written_or_opened_after_it_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = DeadLetterLog(str(path))
    log.close()
    with leaves_nothing():
        log.append([entry(1)])
    assert not path.exists()


def test_closing_twice_closes_once(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = DeadLetterLog(str(path))
    log.append([entry(1)])
    log.close()
    with path.open("rb") as other:  # which may have got the number of the closed descriptor
        log.close()
        assert other.read()
    assert len(list(read_entries(path))) == 1
