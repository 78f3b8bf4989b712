"""What a child process does before and beside the function that it was started for."""

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
"""What else is told of this process when it is asked for its stacks; called on a thread of its own."""

STACKS_HEAD = struct.Struct("<II")
"""Of an answer with stacks: the number of the question, and the bytes that follow."""


def main() -> None:
    """Call the function that the command line names with this process's end of the exchange."""
    name, target, max_nbytes, *descriptors = sys.argv[1:]
    sys.argv[1:] = []
    link, watch, lifeline = map(int, descriptors)
    for descriptor in (link, watch, lifeline):
        os.set_inheritable(descriptor, False)
    _settle_signals(lifeline)
    if sys.stderr is not None:
        with suppress(OSError, ValueError):  # a standard error that was closed has no descriptor
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
    """Leave Ctrl-C to the parent, and have the system end this process when the lifeline closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGIO):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGIO})
    end_with(lifeline, os.getpid())


class Watcher(threading.Thread):
    """Says what all threads are doing when the parent asks, and ends the process when the parent is gone."""

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
    """Return what there is to tell of this process, and the stack of every thread but one, the last call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    text = [f"process {os.getpid()}"]
    for told in also_told:
        with suppress(Exception):  # it looks at what others change meanwhile, and stacks must be told anyway
            text.append(told())
    for ident, frame in sys._current_frames().items():
        if ident != without:
            text += [f"thread {names.get(ident, ident)}:", "".join(traceback.format_stack(frame)).rstrip()]
    return "\n".join(text) + "\n"
