"""A run over S3 is killed at random moments, again and again, and every time goes on as if it never had been.

Each kill hits a process of its own, which had gone on from what the one before left behind: so most runs are resumed
runs, and what comes after every kill is held against an unbroken run: rows, draws, origins, and the hash at the end.

``AIOSTREAM_DATA_KILLS`` says how many kills there are to be: a few by default, and 1,000 before a release. The seed
of the moments, ``AIOSTREAM_DATA_KILL_SEED``, is drawn and shown with a failure; the moments themselves also depend on
what else the machine does.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import kill_program as program
import pytest
from supervisor import Supervisor

import aiostream_data as asd
from aiostream_data.testing.servers import ObjectServer

KILLS = int(os.environ.get("AIOSTREAM_DATA_KILLS", "30"))
SEED = int(os.environ.get("AIOSTREAM_DATA_KILL_SEED", random.SystemRandom().randrange(1 << 32)))
LANES = 3
"""Trainers at a time."""

STARTS_PER_SUPERVISOR = 5
BUCKET = "kills"


@dataclass(frozen=True)
class Unbroken:
    """What a run gives that nobody kills.

    Attributes:
        log: As the trainer writes it.
        stream_hash: At its end.
    """

    log: bytes
    stream_hash: str


@dataclass
class Lane:
    """Trainers one after the other, each killed, until there were enough kills; then the last run may end.

    Attributes:
        found: How often a kill came at what moment.
    """

    folder: Path
    unbroken: dict[int, Unbroken]
    server: ObjectServer
    chance: random.Random
    found: Counter[str] = field(default_factory=Counter)
    _starts: int = 0
    _running: ExitStack = field(init=False)
    _supervisor: Supervisor = field(init=False)

    def kill(self, kills: int) -> Counter[str]:
        """Return ``found`` after so many kills and the end of the run that was killed last."""
        run = 0
        with ExitStack() as running:
            self._running = running
            while kills > 0:
                kills = self._one_run(run, kills)
                run += 1
        self.found["runs"] = run
        return self.found

    def _one_run(self, number: int, kills: int) -> int:
        """Kill one run until it has ended; return how many kills are left."""
        folder = self.folder / str(number)
        folder.mkdir()
        seed = self.chance.choice(list(self.unbroken))
        begun, ended = b"", False
        while not ended:
            ended = self._one_process(folder, seed, to_be_killed=kills > 0)
            begun = self._check(folder, self.unbroken[seed], begun, ended)
            kills -= not ended
        return kills

    def _one_process(self, folder: Path, seed: int, *, to_be_killed: bool) -> bool:
        """Start a trainer and kill it at some moment; return True when it came to its end by itself before."""
        supervisor = self._supervisor_now()
        pace_s = self.chance.choice([0, 0, 0.005])
        options = self.server.storage_options
        supervisor.start(
            {"bucket": BUCKET, "storage_options": options, "seed": seed, "folder": str(folder), "pace_s": pace_s}
        )
        if to_be_killed:
            self._wait_for_a_moment(supervisor)
            return supervisor.kill()
        supervisor.wait_for_the_end()
        return True

    def _supervisor_now(self) -> Supervisor:
        """Return a supervisor, at times a new one: so a run is also gone on with by other interpreters."""
        if self._starts % STARTS_PER_SUPERVISOR == 0:
            self._running.close()
            self._supervisor = self._running.enter_context(Supervisor(self.folder / "errors"))
        self._starts += 1
        return self._supervisor

    def _wait_for_a_moment(self, supervisor: Supervisor) -> None:
        """Wait for some number of steps, and then a time in which this or several more steps come to their end."""
        steps = self.chance.choice([0, self.chance.randrange(3), self.chance.randrange(60)])
        if supervisor.wait(1 + steps):
            time.sleep(self.chance.uniform(0, 0.5 if steps == 0 else 0.02))

    def _check(self, folder: Path, unbroken: Unbroken, begun: bytes, ended: bool) -> bytes:
        """Hold what a process left against the unbroken run, and return the part of the log that counts."""
        log_file, saved_file = folder / "rows.log", folder / "saved.json"
        log = log_file.read_bytes() if log_file.exists() else b""
        saved = json.loads(saved_file.read_bytes()) if saved_file.exists() else {"log_nbytes": 0, "state": None}
        counts = log[: saved["log_nbytes"]]
        where = f"{folder} after {counts.count(10)} steps (AIOSTREAM_DATA_KILL_SEED={SEED})"
        assert len(counts) == saved["log_nbytes"], where
        assert counts.startswith(begun), where
        assert unbroken.log.startswith(counts), f"{where}: {first_difference(unbroken.log, counts)}"
        if ended:
            assert log == unbroken.log, where
            assert saved["hash"] == unbroken.stream_hash, where
        else:
            self.found[self._moment(begun, counts, log)] += 1
        return counts

    @staticmethod
    def _moment(begun: bytes, counts: bytes, log: bytes) -> str:
        if len(log) > len(counts):
            return "while a step was being saved"
        return "between steps" if len(counts) > len(begun) else "before the first step"


def first_difference(expected: bytes, found: bytes) -> str:
    """Return the first step that differs, and its rows."""
    for step, (wanted, came) in enumerate(zip(expected.splitlines(), found.splitlines(), strict=False)):
        if wanted != came:
            return f"step {step} must be {wanted!r}, is {came!r}"
    return f"{found.count(10)} steps instead of {expected.count(10)}"


@pytest.fixture(scope="module")
def server(s3_endpoint: ObjectServer, tmp_path_factory: pytest.TempPathFactory) -> ObjectServer:
    """Files of two kinds, every record of which is unique."""
    s3_endpoint.create_bucket(BUCKET)
    shard = tmp_path_factory.mktemp("shards") / "shard"
    for file in range(program.WEB_FILES):
        with asd.TFRecordWriter(shard) as writer:
            for row in range(program.WEB_ROWS):
                writer.write(program.record_of("web", file, row))
        s3_endpoint.put(f"s3://{BUCKET}/web-{file:02d}", shard.read_bytes())
    for file in range(program.CODE_FILES):
        lines = b"".join(program.record_of("code", file, row) + b"\n" for row in range(program.CODE_ROWS))
        s3_endpoint.put(f"s3://{BUCKET}/code-{file:02d}", gzip.compress(lines))
    return s3_endpoint


def unbroken_run(server: ObjectServer, seed: int) -> Unbroken:
    log = b""
    dataset = program.mixture(BUCKET, server.storage_options)
    with dataset.open(seed=seed, rank=0, world_size=1) as loader:
        for batch in loader:
            log += program.line_of(loader, batch)
        return Unbroken(log, loader.stream_hash)


@pytest.mark.timeout(120 + 5 * KILLS)
def test_a_run_that_is_killed_at_any_moment_goes_on_like_one_that_never_was(
    server: ObjectServer, tmp_path: Path
) -> None:
    unbroken = {seed: unbroken_run(server, seed) for seed in (1, 2, 3)}
    assert len({run.log for run in unbroken.values()}) == 3
    folders = [tmp_path / str(number) for number in range(LANES)]
    for folder in folders:
        folder.mkdir()
    lanes = [Lane(folder, unbroken, server, random.Random(f"{SEED} {folder.name}")) for folder in folders]
    shares = [KILLS // LANES + (number < KILLS % LANES) for number in range(LANES)]
    with ThreadPoolExecutor(LANES) as pool:
        found = sum(pool.map(Lane.kill, lanes, shares), Counter[str]())
    print(f"{KILLS} kills: {dict(found)}")  # noqa: T201 - for whoever asks pytest for it, with -s
    assert sum(found.values()) - found["runs"] == KILLS
    assert found["between steps"] + found["while a step was being saved"] >= KILLS // 8, found
