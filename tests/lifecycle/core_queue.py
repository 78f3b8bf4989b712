"""Tell what a thread waited for a core, which other programs had: nothing that this package could mend."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

SCHEDULER = "/proc/thread-self/schedstat"


class CoreQueue:
    """How long the thread that enters the block has been ready to run without a core; read it on that thread.

    Seconds stay 0.0 where the system does not tell.
    """

    def __enter__(self) -> Self:
        try:
            self._descriptor = os.open(SCHEDULER, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._descriptor = -1
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._descriptor != -1:
            os.close(self._descriptor)

    def waited_s(self) -> float:
        """Return seconds spent waiting for a core since the thread began."""
        if self._descriptor == -1:
            return 0.0
        _, waited_ns, _ = os.pread(self._descriptor, 100, 0).split()
        return int(waited_ns) / 1e9
