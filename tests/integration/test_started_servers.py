"""Servers that are programs serve, and leave nothing behind however they end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from leaks import leaves_nothing

from aiostream_data.errors import MissingExtraError, StorageError, StoreUnreachableError
from aiostream_data.testing import real_servers
from aiostream_data.testing.real_servers import (
    HttpFolder,
    RealServer,
    juicefs_server,
    nginx_server,
    rclone_server,
    seaweedfs_server,
)

SERVERS: dict[str, Callable[[], AbstractContextManager[RealServer | HttpFolder]]] = {
    "weed": seaweedfs_server,
    "juicefs": juicefs_server,
    "rclone": rclone_server,
    "nginx": nginx_server,
}

PARENT = """
import sys
from aiostream_data.testing.real_servers import juicefs_server
with juicefs_server() as server:
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


@pytest.mark.parametrize("program", SERVERS)
def test_a_server_ends_with_its_block_and_leaves_nothing(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not real_servers.is_installed(program):
        pytest.skip(f"{program} is not installed")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with leaves_nothing(within_s=5.0, folders=[tmp_path]), SERVERS[program]() as server:
        assert is_listening(server.endpoint_url)
    assert not is_listening(server.endpoint_url)
    port = server.endpoint_url.rpartition(":")[2]
    assert [name for name in os.listdir("/tmp") if name.endswith(f"-{port}.sock")] == []


@pytest.mark.skipif(not real_servers.is_installed("juicefs"), reason="juicefs is not installed")
def test_a_server_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    command, environment = [sys.executable, "-c", PARENT], {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        endpoint_url = parent.stdout.readline().strip()
        assert is_listening(endpoint_url)
        parent.kill()
        parent.wait()
        while is_listening(endpoint_url):  # the pipe's end is noticed in its own time; pytest bounds it
            pass


@pytest.mark.skipif(not real_servers.is_installed("juicefs"), reason="juicefs is not installed")
def test_a_bucket_that_is_not_there_is_an_error_that_says_so() -> None:
    with juicefs_server() as server:
        server.create_bucket("again")
        server.create_bucket("again")
        with pytest.raises(StorageError, match="404"):
            server.put("s3://missing-bucket/key", b"data")


def test_a_program_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_servers, "_find", lambda program: None)
    with pytest.raises(MissingExtraError, match="servers"), rclone_server():
        pytest.fail("it started without being there")
    with pytest.raises(MissingExtraError, match="install nginx"), nginx_server():
        pytest.fail("it started without being there")


def test_a_program_that_ends_at_once_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "rclone"
    broken.write_text("#!/bin/sh\necho 'this cannot work' >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(real_servers, "_find", lambda program: str(broken))
    with pytest.raises(StoreUnreachableError, match="this cannot work"), rclone_server():
        pytest.fail("it started without working")
