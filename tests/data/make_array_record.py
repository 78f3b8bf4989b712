"""Write the ArrayRecord files of ``tests/data/array_record`` with Google's library, and the hashes of their records.

    pip install array-record && python tests/data/make_array_record.py

The files are compressed, because each contains 100 KB of padding. The tests compare the records with ``expected.json``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
from pathlib import Path

OPTIONS = {
    "default": "",
    "grouped": "group_size:7",
    "plain": "group_size:1,uncompressed",
    "plain_grouped": "group_size:20,uncompressed",
    "brotli": "group_size:7,brotli:5",
    "snappy": "group_size:7,snappy",
    "padded": "group_size:12,zstd:1,pad_to_block_boundary:true",
    "transposed": "group_size:7,transpose:true",
    "empty": "",
}
"""Options of the writer, by the name of the file."""

ROWS = 40


def record(row: int) -> bytes:
    """Return a record: most are short, one is empty, and two are longer than a block of the file."""
    pattern = b"".join(hashlib.sha256(b"%d %d" % (row, part)).digest() for part in range(3))
    size = {0: 0, 11: 100_000, 12: 66_000}.get(row, 3 * row)
    return (pattern * (size // len(pattern) + 1))[:size]


def main() -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    folder = Path(__file__).parent / "array_record"
    folder.mkdir(exist_ok=True)
    records = [record(row) for row in range(ROWS)]
    with tempfile.TemporaryDirectory() as temporary:
        for name, options in OPTIONS.items():
            path = Path(temporary) / f"{name}.array_record"
            writer = ArrayRecordWriter(str(path), options)
            for one in records if name != "empty" else ():
                writer.write(one)
            writer.close()
            (folder / f"{name}.array_record.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    expected = [[len(one), hashlib.sha256(one).hexdigest()] for one in records]
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
