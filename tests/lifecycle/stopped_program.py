"""A program that trains on a data set in a process with workers of its own: ``python stopped_program.py``.

Prints these processes when it has seen two workers; then trains until it is ended.
"""

from __future__ import annotations

from stopped_functions import process_ids

from aiostream_data import Dataset

loader = Dataset.range(10_000_000).map(process_ids, executor="process", concurrency=2).in_subprocess().open()
processes: set[int] = set()
for host_and_worker in loader:
    processes.update(host_and_worker)
    if len(processes) == 3:
        break
print(*processes, flush=True)  # noqa: T201 - read by the test
for _ in loader:
    pass
