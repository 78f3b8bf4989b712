"""Refuse files that match no rule of the tree, such as what a compiler or an editor left behind.

A new kind of file needs a new rule here, in the same commit.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

NAME: Final = r"[a-z_][a-z0-9_]*"
MODULE: Final = rf"({NAME}/)*{NAME}\.py"

RULES: Final = (
    r"(README|ARCHITECTURE|CHANGELOG|CONTRIBUTING)\.md|LICENSE|MANIFEST\.in|Makefile|pyproject\.toml|setup\.py",
    r"\.gitignore|\.dockerignore|\.pre-commit-config\.yaml|\.ci/run|tests/README\.md",
    rf"(\.ci|aiostream_data|tests|benchmarks|examples)/{MODULE}",
    rf"aiostream_data/_native/{NAME}\.(pyx|pxd|pyi|h)",
    r"aiostream_data/py\.typed|aiostream_data/device/gpu_verified\.json",
    r"tests/data/tfdata_outcomes\.jsonl\.xz",
    r"tests/data/tfdata_docstrings\.json",
    rf"tests/data/csv/{NAME}\.(csv|tsv|json)",
    rf"tests/data/mds/(expected\.json|{NAME}/(index\.json|shard\.[0-9]{{5}}\.mds(\.gz|\.zstd)?))",
    rf"tests/data/tfds/(expected\.json|{NAME}/({NAME}(\.labels\.txt|\.json)|{NAME}-{NAME}\.tfrecord-[0-9]{{5}}-of-[0-9]{{5}}))",
    rf"tests/data/jsonl/{NAME}\.(jsonl(\.gz)?|json)",
    rf"tests/data/array_record/({NAME}\.array_record\.gz|expected\.json)",
    rf"tests/data/arrow/{NAME}\.(arrow|json)",
    rf"tests/data/golden/{NAME}\.(json|tar(\.gz)?|tfrecord(\.gz|\.zlib)?)",
    rf"benchmarks/(README\.md|requirements(-{NAME})?\.txt|results/{NAME}\.json)",
    rf"benchmarks/gpu/results/{NAME}_[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(_[0-9]+)?\.json",
    r"tests/real_cupy/requirements-[0-9]+\.txt",
    rf"docs/((contributing|migrate)/)?{NAME}\.md|examples/{NAME}/README\.md",
    r"docker/(Dockerfile\.(cpu|cuda)|compose\.yaml|\.yamllint)",
)
"""What may be in the tree: each rule is matched against a whole path from the root."""

MAX_NBYTES: Final = 1_000_000
"""Larger files do not belong into a repository of sources."""

_ALLOWED: Final = re.compile("|".join(f"(?:{rule})" for rule in RULES))


def stray(paths: list[str]) -> list[str]:
    """Return the paths that match no rule."""
    return [path for path in paths if _ALLOWED.fullmatch(path) is None]


def tree(root: Path) -> list[str]:
    """Return all files under version control, and those that are neither that nor ignored."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted(path for path in listed.split("\0") if path and (root / path).exists())


def main() -> None:
    root = Path(__file__).resolve().parent.parent
    paths = tree(root)
    found = [f"{path}: matches no rule of the tree" for path in stray(paths)]
    sizes = {path: (root / path).stat().st_size for path in paths}
    found += [
        f"{path}: {nbytes:,} bytes (limit {MAX_NBYTES:,})" for path, nbytes in sizes.items() if nbytes > MAX_NBYTES
    ]
    if found:
        sys.exit("\n".join([*found, "remove these, or add a rule to .ci/check_tree.py"]))
    print(f"{len(paths)} files, all of which match a rule of the tree")


if __name__ == "__main__":
    main()
