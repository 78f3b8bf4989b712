"""Compare two plans, each a chain of nodes from source to end, and describe their differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from aiostream_data.plan.alignment import align
from aiostream_data.plan.changes import Difference, Kind
from aiostream_data.plan.functions import FunctionIdentity, parse_identity
from aiostream_data.plan.stored import MERGED, NEVER_MERGED, Chain, StoredEntry, merged, short

T = TypeVar("T")

_KINDS: dict[str, Kind] = {"seed": "seed", "patterns": "shards"}
_USUAL_FUNCTIONS = ("function", "predicate", "factory")
_OPPOSITE = {"True": "False", "False": "True"}
_MAX_SHOWN = 80
_REPLACED = 1.9
_CHANGED = 0.5
_MOST_CHANGED = 0.9


def chain_differences(old: Chain, new: Chain, branch: str = "") -> list[Difference]:
    """Return the differences between two chains of nodes, in the order from source to end.

    Args:
        old: Chain of nodes from a saved state. Argument values in the saved chain may be replaced by hashes.
        new: Chain of nodes of the current plan. Argument values in the current chain may be replaced by hashes.
        branch: Name of the chain in a plan with several inputs, such as "input 2 of zip".
    """
    found: list[Difference] = []
    for i, j in align(old, new, _cost):
        if i is None or j is None:
            found.append(_left_over(old, new, i, j, branch))
        elif old[i]["op"] != new[j]["op"]:
            where = _place(new, j, branch)
            was, name = old[i]["op"], new[j]["op"]
            found.append(Difference("operator", name, f"{name} ({where}) replaced {was}"))
        else:
            found += _entry_differences(old[i], new[j], _place(new, j, branch))
    return found


def _cost(old: StoredEntry, new: StoredEntry) -> float:
    if old["op"] != new["op"]:
        return _REPLACED
    changes = len(_entry_differences(old, new, ""))
    return min(_CHANGED + changes / 10, _MOST_CHANGED) if changes else 0.0


def cost_of_inputs(old: Chain, new: Chain) -> float:
    """Return the cost of pairing two inputs of a plan. The cost grows with the number of differences."""
    return min(len(chain_differences(old, new)) / 4, _REPLACED)


def _left_over(old: Chain, new: Chain, i: int | None, j: int | None, branch: str) -> Difference:
    chain, at, what = (old, i, "was removed") if i is not None else (new, j, "is new")
    assert at is not None
    name = chain[at]["op"]
    return Difference("operator", name, f"{name} ({_place(chain, at, branch)}) {what}")


def _place(chain: Chain, at: int, branch: str) -> str:
    of, within = (f" of {branch}", f", {branch}") if branch else ("", "")
    if "inputs" not in chain[0]:
        return f"operator {at} from the source{within}" if at else f"the source{of}"
    return f"operator {at} after {chain[0]['op']}{within}" if at else f"of {len(chain[0]['inputs'])} inputs{within}"


def _entry_differences(old: StoredEntry, new: StoredEntry, where: str) -> list[Difference]:
    op = new["op"]
    changes = [*_changed_arguments(old, new), *_changed_functions(old, new), *_changed_notes(old, new)]
    found = [Difference(kind, f"{op}.{name}", f"{op} ({where}): {what}") for kind, name, what in changes]
    return found + _changed_inputs(op, old.get("inputs", []), new.get("inputs", []))


def _changed_arguments(old: StoredEntry, new: StoredEntry) -> list[tuple[Kind, str, str]]:
    before, after = old.get("args", {}), new.get("args", {})
    names = [*after, *(name for name in before if name not in after)]
    found: list[tuple[Kind, str, str]] = []
    if MERGED in names:
        names = [name for name in names if name in NEVER_MERGED]
        if before.get(MERGED, merged(before)) != after.get(MERGED, merged(after)):
            found.append(("argument", MERGED, "its arguments changed (the state stores only their hash)"))
    return found + [
        (_KINDS.get(name, "argument"), name, _sentence(name, before.get(name), after.get(name)))
        for name in names
        if not _same(before.get(name), after.get(name))
    ]


def _same(old: str | None, new: str | None) -> bool:
    return old == new or (old is not None and new is not None and (old == short(new) or short(old) == new))


def _sentence(name: str, old: str | None, new: str | None) -> str:
    if old is None or new is None:
        default = _OPPOSITE.get(old or new or "", "not set")
        return f"{name} was {_shown(default if old is None else old)}, is {_shown(default if new is None else new)}"
    if old.startswith("#"):
        return f"{name} changed" + ("" if new.startswith("#") else f", is {_shown(new)}")
    return (
        f"{name} changed, was {_shown(old)}" if new.startswith("#") else f"{name} was {_shown(old)}, is {_shown(new)}"
    )


def _shown(text: str) -> str:
    return "a long value" if text.startswith("#") else text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _changed_functions(old: StoredEntry, new: StoredEntry) -> list[tuple[Kind, str, str]]:
    before, after = old.get("functions", {}), new.get("functions", {})
    names = [*after, *(name for name in before if name not in after)]
    found = [(name, _function_change(name, before.get(name), after.get(name))) for name in names]
    return [("function", name, what) for name, what in found if what]


def _function_change(argument: str, old: str | None, new: str | None) -> str:
    what = "the function" if argument in _USUAL_FUNCTIONS else argument
    before, after = parse_identity(old or ""), parse_identity(new or "")
    if before is None or after is None:
        return (
            "" if old == new else f"{what} {'is new' if old is None else 'was removed' if new is None else 'changed'}"
        )
    if not _same(before.name, after.name):
        return _sentence(what, before.name, after.name)
    if _code_differs(before, after):
        return f"{what} changed ({_shown(after.name)})"
    return "" if before.values == after.values else f"the values captured by {what} changed ({_shown(after.name)})"


def _code_differs(old: FunctionIdentity, new: FunctionIdentity) -> bool:
    # Source code cannot be compared with bytecode, and bytecode only within one Python version.
    return old.how == new.how and old.code != new.code


def _changed_notes(old: StoredEntry, new: StoredEntry) -> list[tuple[Kind, str, str]]:
    before, after = (entry.get("notes", {}).get("ordered", "True") for entry in (old, new))
    return [] if before == after else [("ordered", "ordered", _sentence("ordered", before, after))]


def _changed_inputs(op: str, old: Sequence[Chain], new: Sequence[Chain]) -> list[Difference]:
    found: list[Difference] = []
    for i, j in align(old, new, cost_of_inputs):
        if i is None or j is None:
            at, chain, what = (i, old, "was removed") if j is None else (j, new, "is new")
            assert at is not None
            found.append(Difference("operator", op, f"{op}: input {at + 1} ({chain[at][-1]['op']}) {what}"))
        else:
            found += chain_differences(old[i], new[j], f"input {j + 1} of {op}")
    return found
