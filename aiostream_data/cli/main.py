"""The command line: ``aiostream-data doctor`` and ``aiostream-data --version``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from aiostream_data import __version__
from aiostream_data.cli.doctor import describe_native, diagnose


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (default: ``sys.argv``). Return the exit code."""
    parser = argparse.ArgumentParser(prog="aiostream-data", description="Look at an installation of aiostream_data.")
    parser.add_argument("--version", action="version", version=f"aiostream-data {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser("doctor", help="say what is installed, what is missing, and how to get it")
    doctor.add_argument("--native", action="store_true", help="say only whether the native core was built")
    chosen = parser.parse_args(arguments)
    if chosen.native:
        print(describe_native())
        return 0
    try:
        for line in diagnose():
            print(line, flush=True)
    except BrokenPipeError:  # the reader closed the pipe, for example ``head``
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
