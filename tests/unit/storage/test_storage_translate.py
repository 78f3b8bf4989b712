"""Errors of others become ours, in one sentence and without secrets."""

from __future__ import annotations

import pickle
import socket

import pytest

from aiostream_data.errors import (
    AccessDeniedError,
    AiostreamError,
    ObjectNotFoundError,
    StorageError,
    StoreTimeoutError,
    StoreUnreachableError,
)
from aiostream_data.storage.translate import shorten, translate_error, translate_status, translating


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (FileNotFoundError(), ObjectNotFoundError, "no such object"),
        (IsADirectoryError(), ObjectNotFoundError, "directory"),
        (NotADirectoryError(), ObjectNotFoundError, "no such object"),
        (PermissionError(13, "Permission denied"), AccessDeniedError, "Permission denied"),
        (TimeoutError(), StoreTimeoutError, "did not answer in time"),
        (ConnectionRefusedError(), StoreUnreachableError, "refused"),
        (ConnectionResetError(), StoreUnreachableError, "connection failed"),
        (socket.gaierror(), StoreUnreachableError, "resolved"),
        (ValueError("token=hunter2"), StorageError, "ValueError"),
        (RuntimeError("token=hunter2"), StorageError, "RuntimeError"),
    ],
)
def test_each_error_has_its_own(error: Exception, kind: type[StorageError], words: str) -> None:
    translated = translate_error("s3://bucket/x", error)
    assert type(translated) is kind
    assert words in str(translated)
    assert "s3://bucket/x" in str(translated)
    assert "hunter2" not in str(translated)


def test_our_own_errors_pass_and_others_are_chained() -> None:
    ours = AiostreamError("ours")
    with pytest.raises(AiostreamError) as caught, translating("x", translate_error):
        raise ours
    assert caught.value is ours
    theirs = KeyError("theirs")
    with pytest.raises(StorageError) as translated, translating("x", translate_error):
        raise theirs
    assert translated.value.__cause__ is theirs


def test_an_error_travels_between_processes_with_its_fields() -> None:
    error = pickle.loads(pickle.dumps(translate_status("https://u:p@h/x?sig=1", 503, detail="busy", request_id="R")))
    assert error.url == "https://***@h/x?sig=***"
    assert str(error) == f"{error.url}: {error.reason}"


def test_what_a_server_says_is_quoted_on_one_short_line() -> None:
    assert shorten("a\n\x00b\t c") == "a b c"
    assert len(shorten("x" * 10_000)) == 200
