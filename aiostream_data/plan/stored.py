"""Reduce a plan fingerprint to the size limit of a saved state.

A plan is stored as a *chain*: its nodes from source to end, with their arguments. If the chain exceeds the size limit,
it is shortened in steps. First, hashes replace long values. Next, a single hash replaces all arguments of a node,
starting with the nodes that have the longest arguments. The last step stores only a digest (hash) of the complete plan.
The last step also stores the last batch size and a digest that ignores it, because the size may depend on the number of
ranks. Shortened and unshortened forms of a plan can be compared.
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
"""Maximum size of a plan in a saved state, in bytes of JSON."""

MERGED: Final = "*"
"""Key of the single hash that replaces all arguments of a node."""

NEVER_MERGED: Final = frozenset({"seed", "patterns", "version", "snapshot_id", "schema_id", SIZE})
"""Arguments that are never replaced by a common hash, because changes of these arguments are handled separately."""

WITHOUT_SIZE: Final = "without_batch_size"
"""Key of the digest that excludes the batch size. The digest without the batch size does not depend on the number of
ranks."""

# For each step of shortening: maximum characters of a value, and of all arguments of a node.
_LEVELS = ((96, 1 << 20), (24, 1 << 20), (24, 160), (24, 80), (24, 40), (24, 0))
_HASHES = len(" py3.11 01234567 01234567")
_MAX_ENTRIES = 500
_TEXTS = ("args", "functions", "notes")


class StoredEntry(TypedDict):
    """One node of a chain: a :class:`~.fingerprint.Description` without its empty entries.

    Attributes:
        inputs: One chain for each input, if the node has several inputs. Only the first entry of a chain can have
            inputs.
    """

    op: str
    args: NotRequired[dict[str, str]]
    functions: NotRequired[dict[str, str]]
    notes: NotRequired[dict[str, str]]
    inputs: NotRequired[list[list[StoredEntry]]]


Chain: TypeAlias = list[StoredEntry]


def stored(fingerprint: Fingerprint, max_plan_nbytes: int = MAX_PLAN_NBYTES) -> dict[str, Any]:
    """Return a fingerprint in the form for a saved state: JSON-compatible, at most about 3 KB."""
    found: dict[str, Any] = dict(fingerprint)
    if "plan" in fingerprint:
        found["plan"] = stored_plan(fingerprint["plan"], max_plan_nbytes)
    if "shards" in fingerprint:
        found["shards"] = _with_bounded_marks(fingerprint["shards"])
    return found


def stored_plan(description: Description, max_nbytes: int = MAX_PLAN_NBYTES) -> Chain | dict[str, str]:
    """Return the most detailed form of a plan that fits into ``max_nbytes`` bytes of JSON."""
    chain = chain_of(description)
    for width, most in _LEVELS:
        found = _reduced(chain, width, most)
        if _nbytes(found) <= max_nbytes:
            return found
    size = last_batch_size(description)
    without_size = {} if size is None else {SIZE: size, WITHOUT_SIZE: digest(without_batch_size(description))}
    return {"digest": digest(description), **without_size}


def chain_of(description: Description) -> Chain:
    """Convert a plan description to a chain of nodes from source to end, without shortening."""
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
    """Return the hash that replaces a long text."""
    return f"#{hashed(text)}"


def short_name(identity: str) -> str:
    """Replace the function name in a function's identity with a hash."""
    found = parse_identity(identity)
    return short(identity) if found is None else str(found._replace(name=short(found.name)))


def merged(args: Mapping[str, str]) -> str:
    """Return a hash that replaces all arguments of a node, except the arguments in ``NEVER_MERGED``."""
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
    """Validate a chain from a saved state. Return None if the chain is invalid."""
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
