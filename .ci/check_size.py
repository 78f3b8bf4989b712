"""Refuse Python files of more than 400 lines, except those listed with a reason."""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Final

from check_tree import tree

MAX_LINES: Final = 400

LONGER: Final = {
    "aiostream_data/_engine/engine.py": "one engine from open to close; its parts share one loop and thread",
    "aiostream_data/dataset/dataset.py": "the public class, whose operators return it; most lines are docstrings",
    "aiostream_data/errors.py": "every public error; most lines are docstrings",
    "aiostream_data/formats/stream.py": "compression, blocks and records of one stream are not separated yet",
    "aiostream_data/loading/loader.py": "the public class: most lines are docstrings of its methods",
    "aiostream_data/plan/advice.py": "one rule for each kind of advice",
    "aiostream_data/storage/wire/connection.py": "head, body and end of one response share one state",
    "tests/integration/test_changed_shards.py": "one table of changes and one set of plans for all cases",
    "tests/integration/test_deadlines.py": "one family of slow servers for all stores",
    "tests/integration/test_elements_of_other_libraries.py": "one case for each kind of element",
    "tests/integration/test_error_policies.py": "the same failing sources for each policy",
    "tests/integration/test_loader_workers.py": "one stand-in for a DataLoader in all cases",
    "tests/integration/test_ranks.py": "one set of ranks in all cases",
    "tests/integration/test_source_policies.py": "the same damaged sources for each policy",
    "tests/integration/test_user_functions_odd.py": "one case for each odd function",
    "tests/lifecycle/state_mutants.py": "one damage for each part of a state",
    "tests/lifecycle/test_r49_stall_watchdog.py": "one stalled pipeline for each kind of stage",
    "tests/properties/test_device_invariants.py": "fourteen invariants of one device stage",
    "tests/unit/dataset/typed_expressions.py": "one expression for each type of each operator",
    "tests/unit/device/test_device_failures.py": "one case for each failure of a GPU",
    "tests/unit/device/test_device_filling.py": "one slot and its threads in all cases",
    "tests/unit/device/test_device_handover.py": "the same cases for each framework",
    "tests/unit/device/test_device_leases.py": "one set of slots and streams in all cases",
    "tests/unit/device/test_device_shared_slots.py": "one exchange of blocks in all cases",
    "tests/unit/executors/test_exchange.py": "one exchange and its two ends in all cases",
    "tests/unit/executors/test_process_executor.py": "one executor in all cases",
    "tests/unit/plan/test_advice.py": "one case for each rule of advice",
    "tests/unit/storage/test_shard_cache_folder.py": "one cache folder in all cases",
    "tests/unit/storage/test_storage_local_reads.py": "one set of local files in all cases",
    "tests/unit/testing/test_fault_server.py": "one case for each fault of the server",
    "tests/unit/testing/test_fault_server_dialects.py": "the same cases for S3, GCS and HTTP",
}
"""Files that are longer today, and why. Remove a file here when it gets shorter."""


def too_long(lines: Mapping[str, int], listed: Container[str]) -> list[str]:
    """Return complaints about files over the limit that are not listed."""
    return [
        f"{path}: {count} lines (limit {MAX_LINES})"
        for path, count in lines.items()
        if count > MAX_LINES and path not in listed
    ]


def listed_for_nothing(lines: Mapping[str, int], listed: Mapping[str, str]) -> list[str]:
    """Return complaints about listed files that are gone or short enough."""
    return [f"{path}: needs no exception any more" for path in listed if lines.get(path, 0) <= MAX_LINES]


def main() -> None:
    root = Path(__file__).resolve().parent.parent
    lines = {path: len((root / path).read_text().splitlines()) for path in tree(root) if path.endswith(".py")}
    found = too_long(lines, LONGER) + listed_for_nothing(lines, LONGER)
    if found:
        sys.exit("\n".join([*found, "split these, or change LONGER in .ci/check_size.py with a reason"]))
    print(f"{len(lines)} Python files, {len(LONGER)} of them listed as longer than {MAX_LINES} lines")


if __name__ == "__main__":
    main()
