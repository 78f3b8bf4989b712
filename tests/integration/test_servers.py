"""The embedded servers serve, and leave nothing behind."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys

import pytest

from aiostream_data.errors import MissingExtraError
from aiostream_data.testing.servers import gcs_server

PARENT = """
import sys
from aiostream_data.testing.servers import gcs_server
with gcs_server() as server:
    print(server.endpoint_url, flush=True)
    sys.stdin.read()
"""


def is_listening(endpoint_url: str) -> bool:
    host, _, port = endpoint_url.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_server_ends_with_its_block() -> None:
    with gcs_server() as server:
        assert is_listening(server.endpoint_url)
    assert not is_listening(server.endpoint_url)


def test_a_server_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        endpoint_url = parent.stdout.readline().strip()
        assert is_listening(endpoint_url)
        parent.kill()
        parent.wait()
        # The pipe's end is noticed by the server's own process, at its own time; pytest bounds it.
        while is_listening(endpoint_url):
            pass


def test_creating_a_bucket_again_changes_nothing() -> None:
    with gcs_server() as server:
        server.create_bucket("again")
        server.create_bucket("again")
        server.put("gs://again/x", b"1")


def test_a_missing_server_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="demo"), gcs_server():
        pytest.fail("the server started without its package")
