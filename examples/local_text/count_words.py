"""Count the words of compressed text files: lines, flat_map, batches of strings, no model at all."""

from __future__ import annotations

import gzip
import tempfile
from collections import Counter
from pathlib import Path

import aiostream_data as asd

TEXT = "the quick brown fox jumps over the lazy dog\nthe dog sleeps\n"


def count_words(pattern: str) -> Counter[str]:
    lines = asd.Dataset.from_text(pattern, compression="auto", cycle_length=3)
    words = lines.map(str.split).flat_map(lambda line: line)
    counts: Counter[str] = Counter()
    for batch in words.batch(100):
        counts.update(batch.tolist())
    return counts


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(3):
            (Path(folder) / f"{number}.txt.gz").write_bytes(gzip.compress(TEXT.encode() * 100))
        counts = count_words(f"{folder}/*.txt.gz")
    print(", ".join(f"{word} {count}" for word, count in counts.most_common(3)))
    assert counts["the"] == 3 * 100 * TEXT.split().count("the")


if __name__ == "__main__":
    main()
