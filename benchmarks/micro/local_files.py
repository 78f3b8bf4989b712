"""Time reads of local files into reused buffers, beside other ways: ``python -m benchmarks.micro.local_files``.

Rows are ways to read, columns the size and how many reads are in flight. "cold" files were put out of the page cache
(``POSIX_FADV_DONTNEED``) before each pass, "warm" ones read once. Every way reads the same files into the same buffers,
which exist before, and the first bytes of every read are compared. All open each file for the one read of it. "lag" is
the longest that the event loop was held up, in milliseconds; for ways without a loop there is none. aiofiles and
aiofile (caio) are measured where they are installed. "open().read()" reads one file after another in every column.

Each figure is the median of ``--repetitions`` passes, the ways taking turns. ``--out`` writes them as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import os
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.local import LocalStore
from benchmarks.machine import circumstances, versions_of

SIZES = {"8 MiB": 8 << 20, "256 KiB": 256 << 10}
AT_ONCE = (4, 16)
THREADS = 4
TICK_S = 0.001

ReadOne = Callable[[int, memoryview], Awaitable[None]]


class Buffers:
    """Reused memory; every read takes one and gives it back. Filled once, so that its pages are there."""

    def __init__(self, nbytes: int, count: int) -> None:
        self._free = [memoryview(bytearray(os.urandom(1) * nbytes)) for _ in range(count)]

    def take(self) -> memoryview:
        return self._free.pop()

    def give_back(self, number: int, buffer: memoryview) -> None:
        if buffer[:8] != number.to_bytes(8, "little"):
            raise RuntimeError(f"file {number} was not read as it is")
        buffer[:8] = bytes(8)
        self._free.append(buffer)


@dataclass(frozen=True)
class Work:
    """What one pass reads: all of every file, once."""

    paths: list[str]
    nbytes: int
    at_once: int
    buffers: Buffers


def thread_pass(work: Work) -> float:
    """Plain threads, as many as reads in flight."""
    numbers, lock, buffers = iter(range(len(work.paths))), threading.Lock(), work.buffers

    def read_some() -> None:
        while True:
            with lock:
                number = next(numbers, None)
                if number is None:
                    return
                buffer = buffers.take()
            open_and_read(work.paths[number], buffer)
            with lock:
                buffers.give_back(number, buffer)

    _run_on_threads(read_some, work.at_once)
    return 0.0


def bytes_pass(work: Work) -> float:
    """Plain threads that read into a new ``bytes`` object each time, and keep it until the next."""
    numbers, lock = iter(range(len(work.paths))), threading.Lock()

    def read_some() -> None:
        content = b""
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            content = new_bytes(work.paths[number], work.nbytes)
            if content[:8] != number.to_bytes(8, "little"):
                raise RuntimeError(f"file {number} was not read as it is")

    _run_on_threads(read_some, work.at_once)
    return 0.0


def _run_on_threads(function: Callable[[], None], count: int) -> None:
    """Call a function on several threads at the same time, and wait until all calls have returned."""
    threads = [threading.Thread(target=function) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def new_bytes(path: str, nbytes: int) -> bytes:
    """Read a whole file into a new object, blocking."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, nbytes, 0)
    finally:
        os.close(descriptor)


def open_and_read(path: str, buffer: memoryview) -> None:
    """Read a whole file, blocking."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        done = 0
        while done < len(buffer):
            done += os.preadv(descriptor, [buffer[done:]], done)
    finally:
        os.close(descriptor)


def on_loop(make: Callable[[Work, ThreadPoolExecutor], Any]) -> Callable[[Work], float]:
    """Return a pass of ``at_once`` coroutines that read through what ``make`` gives."""

    async def main(work: Work, pool: ThreadPoolExecutor) -> float:
        buffers, numbers = work.buffers, iter(range(len(work.paths)))
        asyncio.get_running_loop().set_default_executor(pool)
        reader = make(work, pool)
        read_one: ReadOne = getattr(reader, "read", reader)

        async def read_some() -> None:
            for number in numbers:
                buffer = buffers.take()
                await read_one(number, buffer)
                buffers.give_back(number, buffer)

        lag = asyncio.create_task(longest_lag())
        async with asyncio.TaskGroup() as group:
            for _ in range(work.at_once):
                group.create_task(read_some())
        lag.cancel()
        if hasattr(reader, "aclose"):
            await reader.aclose()
        return (await asyncio.gather(lag))[0]

    def one_pass(work: Work) -> float:
        with ThreadPoolExecutor(THREADS) as pool:
            return asyncio.run(main(work, pool))

    return one_pass


async def longest_lag() -> float:
    """Return by how many seconds a timer was late at most; ends when it is cancelled."""
    longest = 0.0
    try:
        while True:
            before = perf_counter()
            await asyncio.sleep(TICK_S)
            longest = max(longest, perf_counter() - before - TICK_S)
    except asyncio.CancelledError:
        return longest


class Ours:
    """The store, as a loader has it."""

    def __init__(self, work: Work, pool: ThreadPoolExecutor, **options: Any) -> None:
        loop = asyncio.get_running_loop()

        async def run_blocking(function: Callable[..., Any], *args: Any) -> Any:
            return await loop.run_in_executor(pool, function, *args)

        self._shards = [ShardRef(path, work.nbytes) for path in work.paths]
        self._store = LocalStore(run_blocking, **options)
        self.aclose = self._store.aclose

    async def read(self, number: int, buffer: memoryview) -> None:
        await self._store.read_into(self._shards[number], 0, buffer)


def executor(work: Work, pool: ThreadPoolExecutor) -> ReadOne:
    """One hop per read."""
    loop = asyncio.get_running_loop()

    async def read(number: int, buffer: memoryview) -> None:
        await loop.run_in_executor(pool, open_and_read, work.paths[number], buffer)

    return read


def aiofiles_read(work: Work, pool: ThreadPoolExecutor) -> ReadOne:
    import aiofiles

    async def read(number: int, buffer: memoryview) -> None:
        async with aiofiles.open(work.paths[number], "rb") as file:
            buffer[:] = await file.read()

    return read


def aiofiles_readinto(work: Work, pool: ThreadPoolExecutor) -> ReadOne:
    import aiofiles

    async def read(number: int, buffer: memoryview) -> None:
        async with aiofiles.open(work.paths[number], "rb", buffering=0) as file:
            done = 0
            while done < len(buffer):
                done += await file.readinto(buffer[done:])

    return read


def mapped(work: Work, pool: ThreadPoolExecutor) -> ReadOne:
    """One hop per read, in which the file is mapped and copied into the buffer; a page fault for every few pages."""
    loop = asyncio.get_running_loop()

    def copy(path: str, buffer: memoryview) -> None:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
            pages.madvise(mmap.MADV_SEQUENTIAL)
            with memoryview(pages) as view:
                buffer[:] = view

    async def read(number: int, buffer: memoryview) -> None:
        await loop.run_in_executor(pool, copy, work.paths[number], buffer)

    return read


def plain_pass(work: Work) -> float:
    """As one writes it: one file after another, ``open().read()``, which makes new bytes each time."""
    for number, path in enumerate(work.paths):
        buffer = work.buffers.take()
        with open(path, "rb") as file:
            buffer[:] = file.read()
        work.buffers.give_back(number, buffer)
    return 0.0


def aiofile_read(work: Work, pool: ThreadPoolExecutor) -> ReadOne:
    aiofile = import_module("aiofile")

    async def read(number: int, buffer: memoryview) -> None:
        async with aiofile.async_open(work.paths[number], "rb") as file:
            buffer[:] = await file.read()

    return read


WAYS: dict[str, Callable[[Work], float]] = {
    "aiostream_data": on_loop(Ours),
    "aiostream_data direct": on_loop(lambda work, pool: Ours(work, pool, direct=True)),
    "open().read()": plain_pass,
    "threads + preadv": thread_pass,
    "executor + preadv": on_loop(executor),
    "executor + mmap": on_loop(mapped),
    "aiofiles read": on_loop(aiofiles_read),
    "aiofiles readinto": on_loop(aiofiles_readinto),
    "aiofile (caio)": on_loop(aiofile_read),
}


def measure(way: Callable[[Work], float], work: Work, cold: bool) -> dict[str, float]:
    """Return the figures of one pass."""
    if cold:
        forget(work.paths)
    started, cpu = perf_counter(), process_time()
    lag_s = way(work)
    wall_s, cpu_s = perf_counter() - started, process_time() - cpu
    gigabytes = len(work.paths) * work.nbytes / 1e9
    return {"MB/s": gigabytes * 1e3 / wall_s, "cpu_s_per_GB": cpu_s / gigabytes, "lag_ms": lag_s * 1e3}


def forget(paths: list[str]) -> None:
    """Put files out of the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def write_files(folder: Path, nbytes: int, total: int) -> list[str]:
    """Write files that begin with their number, unless they are there, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(total // nbytes):
        path = folder / f"{number:06}"
        if not path.exists() or path.stat().st_size != nbytes:
            path.write_bytes(number.to_bytes(8, "little") + os.urandom(nbytes - 8))
        paths.append(str(path))
    return paths


def cells(folder: Path, total: int) -> Iterator[tuple[str, Work, bool]]:
    """Yield every column: its name, what is read, and whether it is cold."""
    for name, nbytes in SIZES.items():
        paths = write_files(folder / name.replace(" ", ""), nbytes, total)
        for at_once in AT_ONCE:
            work = Work(paths, nbytes, at_once, Buffers(nbytes, at_once))
            for cold in (False, True):
                yield f"{name}, c={at_once}, {'cold' if cold else 'warm'}", work, cold


def main() -> None:
    """Print a table, and write the figures where ``--out`` says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "aiostream_data_local_files")
    parser.add_argument("--total-mib", type=int, default=512)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", help="these ways alone")
    options = parser.parse_args()
    ways = {name: way for name, way in WAYS.items() if not options.only or any(map(name.startswith, options.only))}
    for name, package in {
        "aiofile (caio)": "aiofile",
        "aiofiles read": "aiofiles",
        "aiofiles readinto": "aiofiles",
    }.items():
        if not versions_of([package]):
            ways.pop(name, None)
    found: dict[str, dict[str, dict[str, float]]] = {}
    runs: dict[str, dict[str, list[dict[str, float]]]] = {}
    for column, work, cold in cells(options.data, options.total_mib << 20):
        forget(work.paths)
        thread_pass(work)
        passes: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        for _ in range(options.repetitions):
            for name, way in ways.items():
                passes[name].append(measure(way, work, cold))
        found[column] = {name: _median(figures) for name, figures in passes.items()}
        runs[column] = passes
        _show(column, found[column])
    if options.out is not None:
        versions = versions_of(["aiofiles", "aiofile", "caio", "uvloop"])
        result = {
            "scenario": "local_files",
            "title": "reads of local files into buffers",
            "circumstances": circumstances(),
            "parameters": {"total_mib": options.total_mib, "repetitions": options.repetitions, "threads": THREADS},
            "versions": versions,
            "median": found,
            "runs": runs,
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n")


def _median(passes: list[dict[str, float]]) -> dict[str, float]:
    return {figure: round(median(one[figure] for one in passes), 3) for figure in passes[0]}


def _show(column: str, ways: dict[str, dict[str, float]]) -> None:
    print(f"\n{column:28}{'MB/s':>10}{'CPU s/GB':>12}{'lag ms':>10}")
    for name, figures in ways.items():
        print(f"{name:28}{figures['MB/s']:10,.0f}{figures['cpu_s_per_GB']:12.2f}{figures['lag_ms']:10.1f}")


if __name__ == "__main__":
    main()
