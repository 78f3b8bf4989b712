"""A stand-in for the process that hosts part of a plan: a thread of this process, over a real link, started at once."""

from __future__ import annotations

import threading
from importlib import import_module

from aiostream_data.errors import WorkerDiedError
from aiostream_data.executors.exchange import linked


class ThreadChild:
    """Has what is used of :class:`aiostream_data.executors.child_process.Child`."""

    def __init__(self, target: str, name: str, max_nbytes: int, native_threads: int | None = None) -> None:
        module, _, function = target.partition(":")
        self.exchange, theirs = linked(max_nbytes)
        self._theirs = theirs
        self._function = getattr(import_module(module), function)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._function(self._theirs)
        finally:
            self._theirs.close()

    @property
    def is_stopped(self) -> bool:
        return False

    def stop(self) -> None:
        self._theirs.close()

    def kill(self) -> None:
        self._theirs.close()

    def wait(self, timeout_s: float) -> bool:
        self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def bury(self, grace_s: float = 0.0) -> int:
        self.exchange.close()
        self._thread.join(10)
        return 0

    def obituary(self) -> WorkerDiedError:
        self.bury()
        return WorkerDiedError("the thread that stands in for a process has ended")
