"""Ways in which a whole process ends that has a loader open, each at a moment that is given.

How this works. Starting Python and importing the package takes longer than most endings. So the process that calls
:func:`end_a_program` imports everything once, starts no thread, and forks for each ending; the fork runs the program
and then ends as any program does, since :class:`Program` is raised out of everything and run at the very bottom.
Processes that a program leaves behind become children of the caller, which therefore sees every one of them.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import select
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from aiostream_data import Dataset

EXIT_S = 3.0
"""Seconds within which a program that was interrupted or ends by itself has to be gone."""

ORPHANS_S = 5.0
"""Seconds within which its children have to be gone."""

BETWEEN_S = 1.0
"""Seconds that another program on this machine may leave shared memory between making and mapping or naming it."""

LONG_S = 30.0
"""How long a program would go on if nothing ended it."""

SWALLOWED_S = 0.5
"""Seconds in which an interrupt that was swallowed shows."""

_SWALLOWED = re.compile(r"Exception ignored in: <[^\n]*\n(?:(?!Exception ignored)[^\n]*\n)*?KeyboardInterrupt: *\n")
_UNCLOSED = re.compile(
    r"Exception ignored in: <_io[^\n]*\n(?:(?!Exception ignored)[^\n]*\n)*?ResourceWarning: [^\n]*\n"
)
"""Python complains of a file that it was just opening, as warnings are errors here."""

_PR_SET_CHILD_SUBREAPER = 36

kept: Any = None
"""What a program leaves open, and refers to, when it ends."""

_telling = -1
"""In a program: where to write when it begins to open its data set, and when it begins to end by itself."""


@dataclass(frozen=True)
class Ending:
    """How a program ends.

    Attributes:
        program: What runs until its moment comes or for ever.
        code: What it has to exit with; negative for a signal.
        sent: Signal that it gets at the moment; None when it ends by itself.
        to_group: The signal goes to all its processes, as the terminal sends Ctrl-C.
        last_line: How what it prints as errors has to end; None when it may print nothing.
    """

    program: Callable[[Dataset[Any], float], None]
    code: int
    sent: signal.Signals | None = None
    to_group: bool = False
    last_line: str | None = None


class Program(BaseException):
    """Raised in the fork, to be caught at the bottom of the program and run there."""

    def __init__(self, program: Callable[[Dataset[Any], float], None], dataset: Dataset[Any], after_s: float) -> None:
        super().__init__()
        self._run = (program, dataset, after_s)

    def run(self) -> None:
        program, dataset, after_s = self._run
        program(dataset, after_s)


def _say_begun() -> None:
    os.write(_telling, b".")


def _say_ending() -> None:
    os.write(_telling, b"!")


def for_ever(dataset: Dataset[Any], after_s: float) -> None:
    _say_begun()
    with dataset.open() as loader:
        for _ in loader:
            pass
        time.sleep(LONG_S)


def for_ever_without_a_block(dataset: Dataset[Any], after_s: float) -> None:
    _say_begun()
    for _ in dataset:
        pass
    time.sleep(LONG_S)


def for_ever_in_an_async_loop(dataset: Dataset[Any], after_s: float) -> None:
    async def main() -> None:
        _say_begun()  # no earlier, as asyncio itself complains when it is interrupted while it begins
        async with dataset.open() as loader:
            async for _ in loader:
                pass
            await asyncio.sleep(LONG_S)

    asyncio.run(main())


def left_open(dataset: Dataset[Any], after_s: float, *, tell: bool = True) -> None:
    global kept
    _say_begun()
    began_at = time.monotonic()
    kept = [dataset.open(), None]
    kept[1] = iter(kept[0])
    while time.monotonic() < began_at + after_s and next(kept[1], None) is not None:
        pass
    if tell:
        _say_ending()


def left_open_and_failed(dataset: Dataset[Any], after_s: float) -> NoReturn:
    left_open(dataset, after_s)
    raise SystemExit(7)


def left_in_an_async_loop(dataset: Dataset[Any], after_s: float) -> None:
    async def main() -> None:
        global kept
        _say_begun()
        began_at = time.monotonic()
        kept = dataset.open()
        async for _ in kept:
            if time.monotonic() >= began_at + after_s:
                break
        _say_ending()

    asyncio.run(main())


def forked_and_left_open(dataset: Dataset[Any], after_s: float) -> None:
    """Fork while a loader is open, and let both end as programs do."""
    left_open(dataset, after_s, tell=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads: what is tested here
        pid = os.fork()
    _, status = (0, 0) if pid == 0 else os.waitpid(pid, 0)
    if pid:
        _say_ending()
    if status:
        raise SystemExit(f"the fork ended with {status}")


def cut_off(dataset: Dataset[Any], after_s: float) -> NoReturn:
    left_open(dataset, after_s)
    os._exit(3)


def _ctrl_c(program: Callable[[Dataset[Any], float], None]) -> Ending:
    return Ending(program, -signal.SIGINT, signal.SIGINT, to_group=True, last_line="KeyboardInterrupt")


def _killed(program: Callable[[Dataset[Any], float], None], sent: signal.Signals) -> Ending:
    return Ending(program, -sent, sent)


OUTSIDE: dict[str, Ending] = {
    "Ctrl-C": _ctrl_c(for_ever),
    "Ctrl-C without a block": _ctrl_c(for_ever_without_a_block),
    "Ctrl-C in an async loop": _ctrl_c(for_ever_in_an_async_loop),
    "SIGTERM": _killed(for_ever, signal.SIGTERM),
    "SIGTERM in an async loop": _killed(for_ever_in_an_async_loop, signal.SIGTERM),
    "SIGKILL": _killed(for_ever, signal.SIGKILL),
    "exit with a loader open": Ending(left_open, 0),
    "exit after an async loop was left": Ending(left_in_an_async_loop, 0),
    "SystemExit with a loader open": Ending(left_open_and_failed, 7),
    "exit of a fork, and then exit": Ending(forked_and_left_open, 0),
    "os._exit": Ending(cut_off, 3),
}
"""By name."""


def end_a_program(ending: Ending, dataset: Dataset[Any], after_s: float, folder: Path) -> tuple[float, str]:
    """Run a program in a fork, let it end, and look at what it left.

    Args:
        after_s: Seconds from its beginning to its end.
        folder: For its temporary files and what it prints; it must be empty.

    Returns:
        Seconds from the moment until everything was gone, and what was wrong, empty when nothing was.

    Raises:
        Program: In the fork.
    """
    _become_the_parent_of_orphans()
    shared = _shared_memory()
    temporary, printed = folder / "temporary", folder / "printed"
    temporary.mkdir()
    told, telling = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _become_a_program(temporary, printed, telling)
        raise Program(ending.program, dataset, after_s)
    os.close(telling)
    os.read(told, 1)
    if ending.sent is not None:
        time.sleep(after_s)
        (os.killpg if ending.to_group else os.kill)(pid, ending.sent)
    else:
        select.select([told], [], [], LONG_S)  # at the element that comes next after the moment
    os.close(told)
    at = time.monotonic()
    if ending.last_line is not None:
        _press_again_where_swallowed(pid, printed)
    faults = [_fault_of_exit(pid, ending, at), _fault_of_orphans(at), *_faults_of_files(temporary, shared)]
    took_s = time.monotonic() - at
    text = printed.read_text(errors="replace")
    if any(faults) or not _is_as_expected(text, ending):
        faults.append(f"it printed: {text}")
    printed.unlink()
    temporary.rmdir()
    return took_s, "; ".join(fault for fault in faults if fault)


def _become_the_parent_of_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _become_a_program(temporary: Path, printed: Path, telling: int) -> None:
    global _telling
    _telling = telling
    os.setsid()
    output = os.open(printed, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _press_again_where_swallowed(pid: int, printed: Path) -> None:
    """Repeat each interrupt that came inside a finaliser of Python's own libraries, where Python drops it."""
    pressed, deadline = 1, time.monotonic() + SWALLOWED_S
    while time.monotonic() < deadline and _is_running(pid):
        if len(_SWALLOWED.findall(printed.read_text(errors="replace"))) >= pressed:
            os.killpg(pid, signal.SIGINT)
            pressed, deadline = pressed + 1, time.monotonic() + SWALLOWED_S
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def _is_as_expected(text: str, ending: Ending) -> bool:
    if ending.last_line is None:
        return not text
    rest = _SWALLOWED.sub("", _UNCLOSED.sub("", text))
    return rest.rstrip().endswith(ending.last_line) and "ignored" not in rest


def _fault_of_exit(pid: int, ending: Ending, at: float) -> str:
    code = _wait_for(pid, at + EXIT_S)
    if code is None:
        os.kill(pid, signal.SIGABRT)  # which lets it print the stacks of its threads
        _wait_for(pid, time.monotonic() + 1.0)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        return f"still running after {EXIT_S:g} s"
    return "" if code == ending.code else f"exit code {code}"


def _wait_for(pid: int, until: float) -> int | None:
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)  # with a bound, which waitpid() has not
    return None


def _fault_of_orphans(at: float) -> str:
    """Wait for the processes that the program left behind, which have become children of this one."""
    while time.monotonic() < at + ORPHANS_S:
        try:
            done, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ""
        if not done:
            time.sleep(0.002)
    left = [int(child) for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    commands = [Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode() for child in left]
    for child in left:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return f"processes left after {ORPHANS_S:g} s: {commands}"


def _faults_of_files(temporary: Path, shared: set[str]) -> list[str]:
    left = [str(path.relative_to(temporary)) for path in temporary.rglob("*")]
    for name in left:
        (temporary / name).unlink()
    held_by_nobody = [name for name in _shared_memory() - shared if not _is_mapped(name)]
    deadline = time.monotonic() + BETWEEN_S
    while held_by_nobody and time.monotonic() < deadline:
        time.sleep(0.01)
        held_by_nobody = [name for name in _shared_memory().intersection(held_by_nobody) if not _is_mapped(name)]
    return [f"file {name}" for name in left] + [f"shared memory {name}" for name in held_by_nobody]


def _shared_memory() -> set[str]:
    """Return the names of shared memory that a Python program can have made; others run on this machine, too."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("psm_", "sem.mp-", "pym-", "asd"))}


def _is_mapped(name: str) -> bool:
    """Whether a living process uses this shared memory, one of another program then."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if f"/dev/shm/{name}" in maps.read_text():
                return True
    return False
