"""Trainers that save after every step, to be killed at any moment: ``python kill_program.py``.

Each line of standard input is a request in JSON, with the keys storage_options, bucket, seed, folder (of the trainer's
files), and pace_s (how long a step computes). A process is forked for it, before which nothing was opened: it saves
what the imports cost. The trainer goes on from what its folder holds:

- ``rows.log``: a line of JSON for every step, with the rows received and where they came from; only ever appended to.
- ``saved.json``: how many bytes of the log count, and the loader's state behind them; replaced as a whole.

To standard output go 8 digits of the trainer's process id, ``.`` before the data set is opened and after every step
that was saved, and ``e`` at the end. An empty line of input asks how the trainer ended, which is answered with its
exit status as 4 digits, negative after a signal. Until then its process id stays its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import s3fs  # noqa: F401 - so that it is there before a trainer is forked

from aiostream_data import Dataset, Loader

WEB_FILES, CODE_FILES = 24, 12
WEB_ROWS, CODE_ROWS = 60, 90
"""Of each file."""

BATCH_SIZE = 16
SCHEDULE = [(0, {"web": 0.7, "code": 0.3}), (1_000, {"web": 0.5, "code": 0.5})]
MEMORY = 512 * 1024
"""Less than the files hold, so that there is something to read, to wait for and to give back at every moment."""


def is_wanted(record: bytes) -> bool:
    return record[-1] % 4 != 1


def augmented(record: bytes, rng: np.random.Generator) -> str:
    return f"{record[-12:].decode()}+{rng.integers(1 << 30)}"


def record_of(source: str, file: int, row: int) -> bytes:
    """Return a record of some 500 bytes that ends in its own name."""
    return f"{source} {file:02d}-{row:02d}".rjust(500, ".").encode()


def mixture(bucket: str, options: dict[str, Any]) -> Dataset[Any]:
    """Return filter, shuffle, mixture, an augmentation and batches over two kinds of files, for two epochs of one."""
    web = Dataset.from_tfrecord(f"s3://{bucket}/web-*", cycle_length=3, shuffle_shards=True, storage_options=options)
    code = Dataset.from_text(
        f"s3://{bucket}/code-*", compression="gzip", encoding=None, cycle_length=2, storage_options=options
    )
    sources: dict[str, Dataset[Any]] = {
        "web": web.filter(is_wanted).shuffle(200).repeat(2),
        "code": code.filter(is_wanted).shuffle(100).repeat(),
    }
    return Dataset.sample_from(sources, SCHEDULE).map(augmented).batch(BATCH_SIZE)


def line_of(loader: Loader[Any], batch: Any) -> bytes:
    """Return a step's rows, and the record and epoch that each came from, as they are logged."""
    return json.dumps([batch.tolist(), [str(origin) for origin in loader.origins(batch)]]).encode() + b"\n"


def train(request: dict[str, Any], folder: Path) -> None:
    """Go on where the folder says, to the end of the stream; at the end, save its hash as well."""
    saved_file, log_file = folder / "saved.json", folder / "rows.log"
    saved: dict[str, Any] = {"log_nbytes": 0, "state": None}
    if saved_file.exists():
        saved = json.loads(saved_file.read_bytes())
    log = os.open(log_file, os.O_RDWR | os.O_CREAT)
    os.truncate(log, saved["log_nbytes"])
    log_nbytes = os.lseek(log, 0, os.SEEK_END)
    say_so()
    dataset = mixture(request["bucket"], request["storage_options"])
    with dataset.open(saved["state"], seed=request["seed"], memory_limit=MEMORY, rank=0, world_size=1) as loader:
        for batch in loader:
            time.sleep(request["pace_s"])
            log_nbytes += os.write(log, line_of(loader, batch))
            save({"log_nbytes": log_nbytes, "state": loader.state_dict()}, saved_file)
            say_so()
        save({"log_nbytes": log_nbytes, "state": loader.state_dict(), "hash": loader.stream_hash}, saved_file)


def save(values: dict[str, Any], file: Path) -> None:
    """Write a file that is there with all of these values, or with those from before."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(values))
    os.replace(new, file)


def say_so(text: str = ".") -> None:
    os.write(1, text.encode())


def supervise() -> None:
    """Start a trainer per request, one after the other."""
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            run_and_exit(request)
        sys.stdin.readline()
        _, status = os.waitpid(pid, 0)
        say_so(f"={os.waitstatus_to_exitcode(status):4d}")


def run_and_exit(request: dict[str, Any]) -> NoReturn:
    """Train in a process that was just forked, and end it."""
    exit_code = 1
    try:
        say_so(f"{os.getpid():8d}")
        train(request, Path(request["folder"]))
        exit_code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        say_so("e")
        os._exit(exit_code)


if __name__ == "__main__":
    supervise()
