"""Entry point of a child process: sets up signals and the watcher thread, then calls the target function."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

from aiostream_data.executors.exchange import Exchange
from aiostream_data.executors.forks import keep_from_forks
from aiostream_data.executors.lifeline import end_with

also_told: list[Callable[[], str]] = []
"""Functions that add text to the child process's stack report.

The watcher thread of the child process calls the functions in this list.
"""

STACKS_HEAD = struct.Struct("<II")
"""Header of a stack report: the number of the request, and the size of the text in bytes."""


def main() -> None:
    """Call the function named on the command line, and pass this process's end of the exchange."""
    name, target, max_nbytes, *descriptors = sys.argv[1:]
    sys.argv[1:] = []
    link, watch, lifeline = map(int, descriptors)
    for descriptor in (link, watch, lifeline):
        os.set_inheritable(descriptor, False)
    _settle_signals(lifeline)
    if sys.stderr is not None:
        with suppress(OSError, ValueError):  # a closed standard error has no descriptor
            faulthandler.enable()
    threading.current_thread().name = name
    Watcher(socket.socket(fileno=watch)).start()
    exchange = Exchange(socket.socket(fileno=link), int(max_nbytes))
    module, _, function = target.partition(":")
    try:
        getattr(import_module(module), function)(exchange)
    finally:
        exchange.close()


def _settle_signals(lifeline: int) -> None:
    """Ignore Ctrl-C, which the parent handles. Let the system end this process when the lifeline pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGIO):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGIO})
    end_with(lifeline, os.getpid())


class Watcher(threading.Thread):
    """Thread that sends the stacks of all threads when the parent process requests them.

    When the parent process ends, this thread ends the child process.
    """

    def __init__(self, wire: socket.socket) -> None:
        super().__init__(name="watcher", daemon=True)
        self._wire = wire
        keep_from_forks(self)

    def run(self) -> None:
        asked = 0
        with suppress(OSError):
            while self._wire.recv(1):
                asked += 1
                text = stacks_text(without=threading.get_ident()).encode()
                self._wire.sendall(STACKS_HEAD.pack(asked, len(text)) + text)
        os._exit(0)

    def let_go(self) -> None:
        self._wire.close()


def stacks_text(without: int = 0) -> str:
    """Return a report with the output of ``also_told`` and the stacks of all threads except ``without``."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    text = [f"process {os.getpid()}"]
    for told in also_told:
        with suppress(Exception):  # a report may fail because other threads change its data
            text.append(told())
    for ident, frame in sys._current_frames().items():
        if ident != without:
            text += [f"thread {names.get(ident, ident)}:", "".join(traceback.format_stack(frame)).rstrip()]
    return "\n".join(text) + "\n"
