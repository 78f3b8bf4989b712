"""Make a fingerprint small enough for a state, keeping as much of what it says as fits.

A plan becomes a *chain*: its nodes from the source up, each with the arguments that it has. Where all of them
do not fit, long values are replaced by hashes first, then all of a node's arguments by one hash (beginning with
the nodes that have most to say), and at last the whole plan by its digest. Beside that stand the size of the last
batches and a digest without it, as other ranks may have batches of another size. The longer form can always be
compared with the shorter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NotRequired, TypeAlias, TypedDict

from aiostream_data.plan.fingerprint import Description, Fingerprint, digest
from aiostream_data.plan.functions import parse_identity
from aiostream_data.plan.global_batch import SIZE, last_batch_size, without_batch_size
from aiostream_data.plan.shard_list import MAX_MARKED, ShardSummary
from aiostream_data.plan.values import hashed, joined_hash

MAX_PLAN_NBYTES: Final = 1536
"""JSON bytes that a plan takes in a state at most."""

MERGED: Final = "*"
"""Stands for the arguments of a node whose values were merged into one hash."""

NEVER_MERGED: Final = frozenset({"seed", "patterns", SIZE})
"""Arguments whose differences are of a kind of their own, or allowed to other ranks."""

WITHOUT_SIZE: Final = "without_batch_size"
"""Key of a second digest, which ranks of another number can compare."""

# Characters of the longest value, and of all values of one node, before they are hashed.
_LEVELS = ((96, 1 << 20), (24, 1 << 20), (24, 160), (24, 80), (24, 40), (24, 0))
_HASHES = len(" py3.11 01234567 01234567")
_MAX_ENTRIES = 500
_TEXTS = ("args", "functions", "notes")


class StoredEntry(TypedDict):
    """One node of a chain; as :class:`~.fingerprint.Description`, with what is empty left out.

    Attributes:
        inputs: The chains that it reads, where it reads several; only the first entry has it.
    """

    op: str
    args: NotRequired[dict[str, str]]
    functions: NotRequired[dict[str, str]]
    notes: NotRequired[dict[str, str]]
    inputs: NotRequired[list[list[StoredEntry]]]


Chain: TypeAlias = list[StoredEntry]


def stored(fingerprint: Fingerprint, max_plan_nbytes: int = MAX_PLAN_NBYTES) -> dict[str, Any]:
    """Return what a state keeps of a fingerprint: JSON-safe, at most 3 KB and some for its keys."""
    found: dict[str, Any] = dict(fingerprint)
    if "plan" in fingerprint:
        found["plan"] = stored_plan(fingerprint["plan"], max_plan_nbytes)
    if "shards" in fingerprint:
        found["shards"] = _with_bounded_marks(fingerprint["shards"])
    return found


def stored_plan(description: Description, max_nbytes: int = MAX_PLAN_NBYTES) -> Chain | dict[str, str]:
    """Return the most detailed form of a plan that takes up to ``max_nbytes`` as JSON."""
    chain = chain_of(description)
    for width, most in _LEVELS:
        found = _reduced(chain, width, most)
        if _nbytes(found) <= max_nbytes:
            return found
    size = last_batch_size(description)
    without_size = {} if size is None else {SIZE: size, WITHOUT_SIZE: digest(without_batch_size(description))}
    return {"digest": digest(description), **without_size}


def chain_of(description: Description) -> Chain:
    """Return the nodes of a description from the source up, with all they say."""
    chain: Chain = []
    node = description
    while True:
        entry = StoredEntry(op=node["op"])
        for part in _TEXTS:
            if node.get(part):
                entry[part] = node[part]  # type: ignore[literal-required]
        chain.append(entry)
        if len(node["inputs"]) != 1:
            break
        node = node["inputs"][0]
    if node["inputs"]:
        entry["inputs"] = [chain_of(child) for child in node["inputs"]]
    return chain[::-1]


def short(text: str) -> str:
    """Return the hash that stands for a long text."""
    return f"#{hashed(text)}"


def short_name(identity: str) -> str:
    """Return a function's identity with a hash for its name, and all else as it is."""
    found = parse_identity(identity)
    return short(identity) if found is None else str(found._replace(name=short(found.name)))


def merged(args: Mapping[str, str]) -> str:
    """Return the hash that stands for the arguments of a node, as far as they are ever merged."""
    return f"#{joined_hash(text for pair in sorted(args.items()) for text in pair if pair[0] not in NEVER_MERGED)}"


def _reduced(chain: Chain, width: int, most: int) -> Chain:
    return [_reduced_entry(entry, width, most) for entry in chain]


def _reduced_entry(entry: StoredEntry, width: int, most: int) -> StoredEntry:
    found = entry.copy()
    if "args" in entry:
        args = {name: text if len(text) <= width else short(text) for name, text in entry["args"].items()}
        nchars = sum(len(name) + len(text) for name, text in args.items())
        kept = {name: text for name, text in args.items() if name in NEVER_MERGED}
        found["args"] = args if nchars <= most or kept == args else {MERGED: merged(entry["args"]), **kept}
    if "functions" in entry:
        found["functions"] = {
            name: text if len(text) <= width + _HASHES else short_name(text)
            for name, text in entry["functions"].items()
        }
    if "inputs" in entry:
        found["inputs"] = [_reduced(inner, width, most) for inner in entry["inputs"]]
    return found


def _nbytes(chain: Chain) -> int:
    return len(json.dumps(chain))


def _with_bounded_marks(shards: Mapping[str, ShardSummary]) -> dict[str, dict[str, Any]]:
    room = MAX_MARKED
    found = {}
    for name, summary in shards.items():
        marked = "marks" in summary and summary["count"] <= room
        room -= summary["count"] if marked else 0
        found[name] = {key: part for key, part in summary.items() if marked or key not in ("marks", "version_marks")}
    return found


def read_chain(plan: object) -> Chain | None:
    """Return the chain that a state keeps, or None where what it keeps is not one."""
    return plan if _is_chain(plan, [_MAX_ENTRIES]) else None  # type: ignore[return-value]


def _is_chain(plan: object, room: list[int]) -> bool:
    return isinstance(plan, list) and bool(plan) and all(_is_entry(entry, room) for entry in plan)


def _is_entry(entry: object, room: list[int]) -> bool:
    room[0] -= 1
    if room[0] < 0 or not isinstance(entry, dict) or not isinstance(entry.get("op"), str):
        return False
    inputs = entry.get("inputs", [])
    if not isinstance(inputs, list) or not all(_is_chain(chain, room) for chain in inputs):
        return False
    return all(_is_texts(entry.get(part, {})) for part in _TEXTS)


def _is_texts(texts: object) -> bool:
    return isinstance(texts, dict) and all(isinstance(text, str) for pair in texts.items() for text in pair)
