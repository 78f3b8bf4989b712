"""Limit the threads that native libraries (BLAS, OpenMP) start for user functions.

NumPy and SciPy call BLAS libraries, which compute with one thread per CPU core. With several worker threads or
processes, the machine then runs many more threads than it has cores.

BLAS libraries have one setting per process, so all worker threads and the training loop share it. OpenMP has one
setting per thread, so only worker threads are limited. New processes receive the limit in environment variables.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final

from aiostream_data.errors import MissingExtraError

_VARIABLES: Final = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS"),
)
"""Environment variables from which native libraries read their number of threads when they are loaded."""


class NativeThreads:
    """Limit of one loader.

    If several loaders of a process have limits, the lowest one applies to BLAS libraries. Numbers of threads that are
    lower than the limit do not change.

    Args:
        most: Maximum number of threads.

    Raises:
        MissingExtraError: threadpoolctl is not installed.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._has_ended = False
        _controller()

    def apply(self) -> None:
        """Limit the libraries that the process has loaded. A worker thread calls this method before each call.

        The libraries are looked up again if modules were imported since the last call.
        """
        seen = (self, len(sys.modules))
        if getattr(_here, "seen", None) == seen:
            return
        with _libraries.lock:
            if not self._has_ended:
                _libraries.limits.add(self)
                _libraries.limit(self.most)
        _here.seen = seen

    def end(self) -> None:
        """Restore the numbers of threads of BLAS libraries, as far as no other loader limits them."""
        with _libraries.lock:
            self._has_ended = True
            if self in _libraries.limits:
                _libraries.limits.remove(self)
                _libraries.restore()


class _Libraries:
    """BLAS libraries of this process that are limited.

    Attributes:
        lock: Lock for all attributes and methods.
        limits: Limits of all loaders that have called a function and have not ended.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.limits: set[NativeThreads] = set()
        self._before: dict[str, tuple[Any, int]] = {}

    def limit(self, most_here: int) -> None:
        """Limit all loaded libraries.

        Args:
            most_here: Limit of libraries with a setting for the current thread.
        """
        most = min(limit.most for limit in self.limits)
        for library in _controller().lib_controllers:
            if _is_per_thread(library):
                _lower(library, most_here)
            else:
                self._before.setdefault(library.filepath, (library, library.num_threads))
                _lower(library, most)
                _release(library)

    def restore(self) -> None:
        """Set the numbers that the remaining limits allow."""
        for library, before in self._before.values():
            library.set_num_threads(min([before, *(limit.most for limit in self.limits)]))
            _release(library)
        if not self.limits:
            self._before.clear()


_here: Final = threading.local()
_libraries: Final = _Libraries()


def limited_environment(most: int | None, environment: Mapping[str, str] = os.environ) -> dict[str, str] | None:
    """Return the environment of a new process with limits for native libraries; None for an unchanged environment.

    Args:
        most: Maximum number of threads, at most the number of CPUs; None for no limit. Lower numbers in the environment
            are kept.
    """
    if most is None:
        return None
    changed = {name: str(most) for name in _VARIABLES if not _is_at_most(most, environment.get(name))}
    return {**environment, **changed}


def _is_at_most(most: int, value: str | None) -> bool:
    first = "" if value is None else value.split(",")[0].strip()
    return first.isdecimal() and 1 <= int(first) <= most


def _is_per_thread(library: Any) -> bool:
    return "openmp" in (library.user_api, getattr(library, "threading_layer", None))


def _lower(library: Any, most: int) -> None:
    found = library.num_threads
    if found is None or found > most:
        library.set_num_threads(most)


def _release(library: Any) -> None:
    """Let other threads set the number of threads. threadpoolctl otherwise ignores them while this thread lives."""
    release = getattr(library, "clear_controlling_thread", None)
    if release is not None:
        release()


def _controller() -> Any:
    try:
        import threadpoolctl
    except ImportError as error:
        raise MissingExtraError(
            "open(native_threads=) needs threadpoolctl: pip install 'aiostream-data[threads]'"
        ) from error
    return threadpoolctl.ThreadpoolController()
