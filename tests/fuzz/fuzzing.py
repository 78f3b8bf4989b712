"""Run a fuzz target: with atheris, or in a loop of mutations that needs no other package."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import random
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple


class Target(NamedTuple):
    """What is fuzzed.

    Attributes:
        told: Description of the program.
        check: Function that raises an error for bytes that are handled wrongly.
        seeds: Function that returns valid inputs.
        mutate: Function that returns a mutation of an input. The same state of the generator gives the same one.
        runs: Number of mutations, unless ``--runs`` names another.
    """

    told: str | None
    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    mutate: Callable[[bytes, random.Random], bytes]
    runs: int = 10_000


def run_target(target: Target, arguments: Sequence[str]) -> None:
    """Run atheris on the arguments, or the loop when it is asked for or atheris is not there.

    Atheris starts from the target's seeds, and mutates with its function.
    """
    parser = argparse.ArgumentParser(description=target.told, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, help="run the loop of mutations, this many")
    parser.add_argument("--seed", type=int, default=0)
    options, rest = parser.parse_known_args(arguments)
    if options.runs is None and importlib.util.find_spec("atheris"):
        atheris = importlib.import_module("atheris")
        atheris.instrument_all()
        _write_seeds(target, rest)

        def mutated(data: bytes, most_nbytes: int, seed: int) -> bytes:
            return target.mutate(data or b"\0", random.Random(seed))[:most_nbytes]

        atheris.Setup([sys.argv[0], *rest], target.check, custom_mutator=mutated)
        atheris.Fuzz()
    _run_loop(target, target.runs if options.runs is None else options.runs, options.seed)


def _write_seeds(target: Target, arguments: Sequence[str]) -> None:
    """Write the seeds into the first folder of the arguments, where libFuzzer keeps its corpus."""
    folder = next((Path(argument) for argument in arguments if not argument.startswith("-")), None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for data in target.seeds():
            (folder / f"seed-{sha256(data).hexdigest()[:16]}").write_bytes(data)


def _run_loop(target: Target, runs: int, seed: int) -> None:
    """Check ``runs`` random mutations of valid inputs; the same seed gives the same ones."""
    source = random.Random(seed)
    pool = target.seeds()
    for data in pool:
        target.check(data)
    for _ in range(runs):
        data = target.mutate(source.choice(pool), source)
        try:
            target.check(data)
        except BaseException:
            sys.stderr.write(f"failing input: {data!r}\n")
            raise
