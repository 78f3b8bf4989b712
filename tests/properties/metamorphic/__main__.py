"""Try many drawn plans, and report what is wrong with which.

    cd tests/properties && python -m metamorphic --plans 20000 --first 0 --processes 2 --log failures.txt

A process tries some plans and is replaced by a new one, also when it hangs. Failures are written to the log as they
are found, and counted by kind at the end. ``--seed 17`` tries one plan. ``--shrink 60`` makes a failing case smaller
for up to 60 seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Timer
from time import perf_counter
from typing import IO, Any

from metamorphic.cases import SLOW, Counted, try_seed
from metamorphic.shrinking import shrunk

PLANS_OF_A_PROCESS = 250
"""Plans after which a process is started anew."""

SILENCE_S = 300.0
"""Seconds without a word after which a process is killed. Every case has a bound of its own, so it is stuck then."""


@dataclass
class Tally:
    """What all processes found together."""

    log: IO[str] | None
    counts: Counter[str] = field(default_factory=Counter)
    seeds: dict[str, list[int]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def take(self, line: dict[str, Any]) -> None:
        """Count what a process has said."""
        with self.lock:
            for name in ("plans", "runs", "not_applicable"):
                self.counts[name] += line.get(name, 0)
            for failure in line.get("failures", ()):
                self.counts[f"failed: {failure['kind']}"] += 1
                self.seeds.setdefault(failure["kind"], []).append(line["seed"])
                if self.log is not None:
                    self.log.write(f"{failure['text']}\n\n")
                    self.log.flush()


def main() -> int:
    """Run the command; 1 when anything failed."""
    parser = argparse.ArgumentParser("metamorphic", description=__doc__)
    parser.add_argument("--plans", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="seed of the first plan")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--slow", type=float, default=SLOW, help="share of legs that start a process")
    parser.add_argument("--log", type=Path, help="file to which failures are written")
    parser.add_argument("--seed", type=int, help="try this plan only")
    parser.add_argument("--shrink", type=float, default=0.0, help="seconds for making a failing case smaller")
    parser.add_argument("--lines", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.seed is not None:
        return _one(given.seed, given.slow, given.shrink)
    if given.lines:
        _lines(range(given.first, given.first + given.plans), given.slow, given.shrink)
        return 0
    return _many(given)


def _one(seed: int, slow: float, shrink_s: float) -> int:
    failures = try_seed(seed, slow)
    for failure in failures:
        print(f"{shrunk(failure, shrink_s) if shrink_s else failure}\n")
    return bool(failures)


def _lines(seeds: range, slow: float, shrink_s: float) -> None:
    """Try plans and print a line of JSON for each."""
    warnings.simplefilter("ignore")  # such as a memory limit that a single row is beyond
    for seed in seeds:
        counted = Counted()
        print(json.dumps({"begun": seed}), flush=True)
        failures = try_seed(seed, slow, counted)
        if shrink_s:
            failures = [shrunk(failure, shrink_s) for failure in failures]
        told = [{"kind": failure.finding.kind, "text": str(failure)} for failure in failures]
        print(json.dumps({"seed": seed, "failures": told, **vars(counted)}), flush=True)


def _many(given: argparse.Namespace) -> int:
    started = perf_counter()
    log = given.log.open("a") if given.log is not None else None
    tally = Tally(log)
    last = given.first + given.plans
    parts = [range(seed, min(seed + PLANS_OF_A_PROCESS, last)) for seed in range(given.first, last, PLANS_OF_A_PROCESS)]
    with ThreadPoolExecutor(given.processes) as threads:
        for part in threads.map(lambda part: _part(part, given, tally), parts):
            print(f"{perf_counter() - started:7.0f} s, seeds below {part.stop}: {dict(tally.counts)}", flush=True)
    for kind, seeds in sorted(tally.seeds.items()):
        print(f"{kind}: {len(seeds)}, seeds {sorted(set(seeds))[:20]}")
    failed = sum(map(len, tally.seeds.values()))
    seconds = perf_counter() - started
    print(f"{tally.counts['plans']} plans, {tally.counts['runs']} runs, {failed} failures, {seconds:.0f} s")
    return bool(failed)


def _part(seeds: range, given: argparse.Namespace, tally: Tally) -> range:
    """Try plans in other processes, one after another; a plan that ends its process, or keeps it, is a failure."""
    left = seeds
    while left:
        last = _process(left, given, tally)
        if last is not None:
            text = f"seed {last}\nthe process that tried it ended, or did not end"
            tally.take({"seed": last, "plans": 1, "failures": [{"kind": "process", "text": text}]})
            left = range(last + 1, seeds.stop)
        else:
            break
    return seeds


def _process(seeds: range, given: argparse.Namespace, tally: Tally) -> int | None:
    """Try plans in one process; return the seed in which it was lost, if it was."""
    options = ["--lines", "--first", seeds.start, "--plans", len(seeds), "--slow", given.slow, "--shrink", given.shrink]
    program = [sys.executable, "-m", "metamorphic", *map(str, options)]
    begun: int | None = seeds.start
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        timer = _killing(process)
        for text in process.stdout:
            timer.cancel()
            timer = _killing(process)
            line = json.loads(text)
            begun = line.get("begun", begun)
            tally.take(line)
        timer.cancel()
    return None if process.returncode == 0 else begun


def _killing(process: subprocess.Popen[str]) -> Timer:
    timer = Timer(SILENCE_S, process.kill)
    timer.daemon = True
    timer.start()
    return timer


if __name__ == "__main__":
    sys.exit(main())
