"""A process grows by the memory limit and a tenth of it, and by one record larger than the limit, whatever it reads.

Files compress a thousandfold, so every compressed one is a bomb. A case is a format, a compression, a record size and a
number of open shards. ``ASD_FULL_SIZE=1`` runs all combinations; a usual run those that were worst.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from growth_files import COMPRESSIONS, FORMATS, MIB, OPEN, RECORD_SIZES, TWICE, case, record

import aiostream_data as asd
from aiostream_data import Dataset, _native
from aiostream_data.testing.leaks import leaves_nothing

PROGRAM = Path(__file__).parent / "growth_program.py"
IN_FULL = os.environ.get("ASD_FULL_SIZE") == "1"

USUAL = [
    ("text", "", 0, 64),
    ("text", "gzip", 0, 8),
    ("text", "gzip", 1, 64),
    ("text", "zstd", 0, 8),
    ("text", "gzip", TWICE, 8),
    ("tfrecord", "", 0, 64),
    ("tfrecord", "", MIB, 64),
    ("tfrecord", "", TWICE, 8),
    ("tfrecord", "gzip", 100, 64),
    ("tfrecord", "zlib", MIB, 8),
    ("tfrecord", "zstd with a large window", 100, 1),
    ("fixed_length", "zstd of one segment", 1, 8),
    ("fixed_length", "gzip", TWICE, 8),
    ("whole_file", "", TWICE, 8),
    ("whole_file", "zstd", MIB, 8),
]
ALL = [each for each in product(FORMATS, COMPRESSIONS, RECORD_SIZES, OPEN) if each[::2] != ("fixed_length", 0)]

needs_proc = pytest.mark.skipif(
    not os.path.exists("/proc/self/clear_refs"), reason="only Linux tells the highest value"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("growth")


def measured(case: dict[str, Any]) -> dict[str, Any] | None:
    """Run a case in a process of its own; return None where the loader refuses decompressors that cannot fit."""
    command = [sys.executable, str(PROGRAM), json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if case["may_refuse"] and "MemoryBudgetError: cannot decompress" in done.stderr:
        return None
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_proc
@pytest.mark.parametrize(("format", "compression", "record_nbytes", "open_at_once"), ALL if IN_FULL else USUAL)
def test_a_process_grows_by_the_limit_and_one_large_record(
    folder: Path, format: str, compression: str, record_nbytes: int, open_at_once: int
) -> None:
    pytest.importorskip("zstandard")
    read = case(folder, format, compression, record_nbytes, open_at_once)
    found = measured(read)
    if found is None:
        return
    assert found["elements"] > 0
    assert found["growth"] <= read["allowed"], found
    assert found["growth"] <= found["bound"] + read["beside"], found
    assert found["peak"] <= found["rows"] * 1.1 + 2 * read["beside"], found


@needs_proc
def test_decompressors_that_cannot_fit_together_are_an_error_that_says_what_to_do(folder: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    compressor = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=23))
    stream = compressor.compressobj()
    path = folder / "large windows"
    path.write_bytes(stream.compress(b"1234567\n" * (8 * MIB // 8)) + stream.flush())
    lines = Dataset.from_text([str(path)] * 8, cycle_length=8)
    with leaves_nothing(), lines.open(memory_limit=32 * MIB) as loader:
        with pytest.raises(asd.MemoryBudgetError, match="use a smaller cycle_length, a larger memory_limit"):
            deque(loader, maxlen=0)
        assert loader.stats().memory.peak <= 33 * MIB
    assert sum(1 for _ in lines.take(1)) == 1


def test_a_length_beyond_the_end_of_the_file_is_an_error_before_the_rest_is_gathered(tmp_path: Path) -> None:
    path = tmp_path / "claims.tfrecord"
    path.write_bytes(record("tfrecord", 100, 1) + _claim(900 * MIB) + bytes(40 * MIB))
    with leaves_nothing(), Dataset.from_tfrecord([str(path)]).open(memory_limit=64 * MIB) as loader:
        with pytest.raises(asd.CorruptRecordError, match="bytes into a record of 943718416 bytes"):
            list(loader)
        assert loader.stats().memory.peak < 20 * MIB


def _claim(nbytes: int) -> bytes:
    """Return the header of a TFRecord."""
    length = nbytes.to_bytes(8, "little")
    return length + _native.masked_crc32c(length).to_bytes(4, "little")
