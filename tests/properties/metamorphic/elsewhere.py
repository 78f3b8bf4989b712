"""The program of a new process that goes on with a run: reads a leg from stdin, writes what it gives to stdout."""

from __future__ import annotations

import pickle
import sys

from metamorphic.running import run_leg


def main() -> None:
    """Run one leg."""
    task, leg, state = pickle.load(sys.stdin.buffer)
    try:
        result: object = run_leg(task, leg, state)
    except Exception as error:
        error.add_note("raised in a new process")
        result = error
    sys.stdout.buffer.write(pickle.dumps(result))


if __name__ == "__main__":
    main()
