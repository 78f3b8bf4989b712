"""The command line: ``aiostream-data doctor``, ``head``, ``count``, ``inspect`` and ``--version``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial

from aiostream_data import __version__
from aiostream_data.cli import reading
from aiostream_data.cli.doctor import describe_native, diagnose
from aiostream_data.errors import AiostreamError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (default: ``sys.argv``). Return the exit code.

    The exit code is 1 if data cannot be read. The error is one message on standard error, without a traceback.
    """
    parser = argparse.ArgumentParser(prog="aiostream-data", description="Look at data, and at an installation.")
    parser.add_argument("--version", action="version", version=f"aiostream-data {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser("doctor", help="say what is installed, what is missing, and how to get it")
    doctor.add_argument("--native", action="store_true", help="say only whether the native core was built")
    doctor.set_defaults(run=_diagnosis)
    reading.add_commands(commands)
    chosen = parser.parse_args(arguments)
    try:
        for line in chosen.run(chosen):
            print(_printable(line), flush=True)
    except BrokenPipeError:  # the reader closed the pipe, for example ``head``
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except AiostreamError as error:
        print(f"aiostream-data: {error}", file=sys.stderr)
        return 1
    return 0


def _printable(line: str) -> str:
    """Return a line with escapes, as in JSON, in place of characters that the encoding of the output does not have."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        return "".join(map(partial(_escaped, encoding), line))
    return line


def _escaped(encoding: str, character: str) -> str:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(character)[1:-1]
    return character


def _diagnosis(chosen: argparse.Namespace) -> Iterator[str]:
    return iter([describe_native()]) if chosen.native else diagnose()
