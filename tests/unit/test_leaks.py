"""The checker for leaks finds each kind of leak, and only leaks."""

from __future__ import annotations

import asyncio
import gc
import mmap
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from leaks import leaves_nothing


def test_a_block_that_begins_nothing_passes() -> None:
    with leaves_nothing():
        pass


def test_a_thread_that_ends_in_time_is_no_leak() -> None:
    with leaves_nothing():
        threading.Timer(0.05, lambda: None).start()


def test_a_thread_is_found() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait, name="left behind")
    with pytest.raises(AssertionError, match="thread left behind"), leaves_nothing(within_s=0.02):
        thread.start()
    go.set()
    thread.join()


def running_child() -> subprocess.Popen[bytes]:
    """Return a process that runs already, so that its command can be read."""
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def test_a_child_process_is_found_by_its_command() -> None:
    with pytest.raises(AssertionError, match=r"process [0-9]+: .*stdin\.read"), leaves_nothing(within_s=0.02):
        child = running_child()
    child.communicate()


def test_an_open_file_is_found_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"descriptor of .*kept\.bin"), leaves_nothing(within_s=0.0):
        kept = os.open(tmp_path / "kept.bin", os.O_CREAT | os.O_WRONLY)
    os.close(kept)


def test_an_open_socket_is_found_with_what_it_connects() -> None:
    with (
        pytest.raises(AssertionError, match=r"descriptor of socket:\[\d+\] AF_INET \('127\.0\.0\.1', \d+\) to nobody"),
        leaves_nothing(within_s=0.0),
    ):
        kept = socket.create_server(("127.0.0.1", 0))
    kept.close()


def _mapped(name: str) -> mmap.mmap:
    descriptor = os.memfd_create(name)
    os.ftruncate(descriptor, mmap.PAGESIZE)
    try:
        return mmap.mmap(descriptor, mmap.PAGESIZE)
    finally:
        os.close(descriptor)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="shared memory without a name is Linux's")
def test_shared_memory_that_is_still_mapped_is_found() -> None:
    with pytest.raises(AssertionError, match="mapping of /memfd:kept"), leaves_nothing(within_s=0.0):
        kept = _mapped("kept")
    kept.close()


def test_shared_memory_without_a_file_is_found() -> None:
    with pytest.raises(AssertionError, match="mapping of /dev/zero"), leaves_nothing(within_s=0.0):
        kept = mmap.mmap(-1, mmap.PAGESIZE)
    kept.close()


def test_a_new_file_in_a_watched_folder_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"file .*rest\.tmp"), leaves_nothing(within_s=0.0, folders=[tmp_path]):
        (tmp_path / "rest.tmp").touch()


def test_a_task_that_is_destroyed_while_pending_is_found() -> None:
    async def for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    def lose_a_task() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(for_ever())
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        del task
        gc.collect()

    with pytest.raises(AssertionError, match="Task was destroyed"), leaves_nothing(within_s=0.0):
        lose_a_task()


def test_the_error_of_the_block_itself_comes_first() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait)

    def fail() -> None:
        with leaves_nothing(within_s=0.0):
            thread.start()
            raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        fail()
    go.set()
    thread.join()
