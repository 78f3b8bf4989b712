"""Feed damaged Examples to both parsers: they must agree on the values or on the fault, and never crash.

If atheris is installed, it chooses inputs by the code that they reach::

    python tests/fuzz/fuzz_example.py corpus/

Without atheris, a loop makes random mutations from a seed::

    python tests/fuzz/fuzz_example.py --runs 100000 --seed 1
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from fuzzing import Target, run_target

from aiostream_data._native import example_py, parse_examples
from aiostream_data._native.example_py import ANY_NUMBER, BYTES, FLOAT, INT64, ParseFault, Wanted
from aiostream_data.formats.example_writer import encode_example

WANTED = [
    Wanted(b"i", INT64, ANY_NUMBER, False),
    Wanted(b"f", FLOAT, ANY_NUMBER, False),
    Wanted(b"b", BYTES, ANY_NUMBER, False),
    Wanted(b"i2", INT64, 2, False),
    Wanted(b"f2", FLOAT, 2, False),
    Wanted(b"b2", BYTES, 2, True),
]

SEEDS = [
    encode_example({"b2": [b"one", b""], "i": [1, -1, 300], "f": [0.5, float("nan")], "b": b"x" * 130}),
    encode_example({"b2": [b"", b""], "i2": [2**63 - 1, -(2**63)], "f2": [1.0, 2.0], "else": list(range(200))}),
    encode_example({"b2": [b"a", b"b"]}) + encode_example({"i2": [5, 6], "i": []}) + b"\x78\x05\x7a\x01z",
]


def check(data: bytes) -> None:
    """Parse the bytes, cut into three records, with both parsers and compare."""
    values = np.frombuffer(data, np.uint8)
    third = len(data) // 3
    starts = np.array([0, 0, third], np.int64)
    lengths = np.array([len(data), third, len(data) - third], np.int64)
    for rows in (1, 3):
        native = parse_examples(values, starts[:rows], lengths[:rows], WANTED)
        twin = example_py.parse_examples(values, starts[:rows], lengths[:rows], WANTED)
        assert_equal(native, twin, data)


def assert_equal(native: Any, twin: Any, data: bytes) -> None:
    if isinstance(native, ParseFault) or isinstance(twin, ParseFault):
        assert native == twin, data.hex()
        return
    for one, other in zip(native, twin, strict=True):
        for array, expected in zip(one, other, strict=True):
            assert array.dtype == expected.dtype, data.hex()
            assert array.tobytes() == expected.tobytes(), data.hex()


def mutated(random_state: random.Random, seed: bytes) -> bytes:
    """Return the seed with a few bytes changed, cut out, repeated or inserted."""
    data = bytearray(seed)
    for _ in range(random_state.randrange(4)):
        at = random_state.randrange(len(data) + 1)
        stop = min(len(data), at + random_state.randrange(1, 8))
        choice = random_state.randrange(5)
        if choice == 0 and at < len(data):
            data[at] ^= 1 << random_state.randrange(8)
        elif choice == 1:
            del data[at:stop]
        elif choice == 2:
            data[at:at] = data[at:stop]
        elif choice == 3:
            data[at:at] = random_state.choice([b"\xff" * 10, b"\x80" * 5, b"\x0a\x00", b"\x12\x7f", b"\x08\x01"])
        elif at < len(data):
            data[at] = random_state.choice([0, 1, 0x0A, 0x12, 0x1A, 0x0D, 0x7F, 0x80, 0xFF])
    return bytes(data)


def run_mutations(runs: int, seed: int) -> int:
    """Check ``runs`` mutations; return how many were not found faulty, so that a caller can tell it tried both."""
    random_state = random.Random(seed)
    clean = 0
    for _ in range(runs):
        data = mutated(random_state, random_state.choice(SEEDS))
        check(data)
        whole = np.array([len(data)], np.int64)
        found = parse_examples(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), whole, WANTED)
        clean += not isinstance(found, ParseFault)
    return clean


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, lambda: list(SEEDS), lambda data, source: mutated(source, data)), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
