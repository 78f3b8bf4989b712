"""Serve a folder over HTTP until the standard input ends: ``python -m benchmarks.gpu.shard_server FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Say where the files are to be had, and serve them."""
    sys.path.insert(0, str(ROOT / "tests" / "fakes"))
    from http_server import http_server

    with http_server() as server:
        for path in sorted(Path(sys.argv[1]).iterdir()):
            server.put(f"/{path.name}", path.read_bytes())
        print(server.endpoint_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
