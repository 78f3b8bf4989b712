"""Fuzz the readers of Delta logs and Iceberg metadata: hostile ones give rows of the data files, or a typed error.

An input is JSON: the kind of the table, and its files. Those of JSON are objects, so that single values are changed.
The fast decoder of pyiceberg for Avro does not check lengths; see ``docs/iceberg.md``. The target uses the slow one.

If atheris is installed, it chooses inputs by the code that they reach::

    python tests/fuzz/fuzz_lake.py corpus/

Without atheris, a loop makes random mutations from a seed::

    python tests/fuzz/fuzz_lake.py --runs 100000 --seed 1
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fuzzing import Target, run_target
from pyiceberg.avro.decoder import StreamingBinaryDecoder

sys.path.append(str(Path(__file__).parents[1] / "fakes"))
from lake_archives import DATA_FILES, archives, unpack
from mutated_json import with_other_value
from parquet_bytes import with_changed_metadata
from table_bytes import rows_of

from aiostream_data.dataset.delta_tables import DeltaTable
from aiostream_data.dataset.iceberg_tables import IcebergTable
from aiostream_data.dataset.table_snapshots import rows_of_snapshot, snapshot_files, with_snapshots
from aiostream_data.errors import AiostreamError
from aiostream_data.plan.operators import Interleave

LIMIT = 1 << 24
HOSTILE = (
    *("../0.parquet", "%2e%2e/0.parquet", "/etc/passwd", "s3://other/0.parquet", "0.parquet?x=1", "memory://lake/a"),
    *("long", "string", "binary", "decimal(99,99)", "identity", "name", "id", "none", "add", "x" * 5000, "}" * 50),
)


def check(data: bytes) -> None:
    """Find the data files of a table, and read those that exist."""
    try:
        archive = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(archive, dict) and isinstance(archive.get("files"), dict):
        with patch("pyiceberg.avro.file.new_decoder", StreamingBinaryDecoder):
            rows_in(archive)


def rows_in(archive: dict[str, Any]) -> list[Any]:
    """Return all rows."""
    found: list[Any] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            location = unpack(archive, Path(folder))
            is_delta = archive.get("kind") == "delta"
            table: Any = DeltaTable.of(folder, None) if is_delta else _iceberg(location)
            source = snapshot_files(table, "version" if is_delta else "snapshot_id", None)
            rows = rows_of_snapshot(None, [("n", "<", 400)] if archive.get("filtered") else None)
            plan = with_snapshots(Interleave(input=source, function=rows, cycle_length=1, block_length=1))
            assert isinstance(plan, Interleave)
            for shard in plan.input.known_files():  # type: ignore[attr-defined]
                content = DATA_FILES.get(shard.url.rpartition("/")[2])
                if content is not None:
                    format = plan.function.files.format_of(shard.url)  # type: ignore[attr-defined]
                    found += rows_of(format, content, 0, LIMIT)
    except AiostreamError:
        return found
    return found


def _iceberg(location: str) -> IcebergTable:
    return IcebergTable(name="db.rows", location=location, properties={"py-io-impl": "memory_io.MemoryIO"})


@cache
def _archives() -> tuple[bytes, ...]:
    return tuple(json.dumps(each).encode() for each in archives())


def seeds() -> list[bytes]:
    """Return valid tables of both kinds."""
    return list(_archives())


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` with other values in its JSON, or other bytes in its other files."""
    try:
        archive = json.loads(data)
        files = archive["files"]
        for _ in range(source.randint(1, 3)):
            name = source.choice(list(files))
            if isinstance(files[name], str):
                files[name] = _with_other_bytes(bytes.fromhex(files[name]), source).hex()
            else:
                files[name] = with_other_value(files[name], source, HOSTILE)
        if source.random() < 0.1:
            archive["filtered"] = not archive.get("filtered")
        return json.dumps(archive).encode()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return source.choice(seeds())


def _with_other_bytes(file: bytes, source: random.Random) -> bytes:
    if file.endswith(b"PAR1") and source.random() < 0.7:
        return with_changed_metadata(file, source)
    body = bytearray(file)
    at = source.randrange(len(body) or 1)
    if source.random() < 0.1:
        del body[at : at + source.choice((1, 4))]
    else:
        body[at : at + 1] = source.choice((b"\0", b"\1", b"\xff", b"\xff\xff\xff\xff\x0f", source.randbytes(1)))
    return bytes(body)


def main(arguments: Sequence[str]) -> None:
    """Run the fuzzer with arguments of the command line."""
    run_target(Target(__doc__, check, seeds, mutate, 2000), arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
