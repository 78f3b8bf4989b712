"""Command line entry point: ``python -m aiostream_data doctor`` runs ``aiostream-data doctor``."""

from __future__ import annotations

import sys

from aiostream_data.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
