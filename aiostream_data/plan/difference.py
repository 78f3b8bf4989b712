"""Compare the pipeline in a saved state with the current pipeline.

Raise an error if resuming from the state could lose rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aiostream_data.arguments import shown
from aiostream_data.errors import PlanError, StateMismatchError
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.chain_difference import chain_differences
from aiostream_data.plan.changes import ALWAYS_ALLOWED, CONTENT, REFUSED, Difference
from aiostream_data.plan.fingerprint import Description, Fingerprint, digest
from aiostream_data.plan.global_batch import SIZE, last_batch_size, without_batch_size
from aiostream_data.plan.shard_difference import shard_difference
from aiostream_data.plan.shard_list import ShardSummary
from aiostream_data.plan.stored import WITHOUT_SIZE, chain_of, read_chain

Urls = Mapping[str, Sequence[str]]


def difference(old: Mapping[str, Any], new: Fingerprint, urls: Urls | None = None) -> list[Difference]:
    """Return the differences between the fingerprint in a saved state and the fingerprint of the current plan.

    The comparison covers only the entries that ``new`` has. For example, ``new`` has no entry for shards until the
    shards are listed.

    Args:
        old: Fingerprint from a saved state, as returned by :func:`.stored.stored`; may be damaged.
        new: Fingerprint of the current plan.
        urls: URLs of the current shards for each source, with the same keys as ``new["shards"]``. The URLs are used to
            name new shards in messages.
    """
    found = _plan_differences(old.get("plan"), new["plan"]) if "plan" in new else []
    if "seed" in new and old.get("seed", new["seed"]) != new["seed"]:
        found.append(Difference("seed", "seed", f"the seed was {old['seed']!r}, is {new['seed']}"))
    found += _shard_differences(old.get("shards"), new.get("shards", {}), urls or {})
    if "world_size" in new and old.get("world_size", new["world_size"]) != new["world_size"]:
        sentence = f"world_size was {old['world_size']!r}, is {new['world_size']}"
        found.append(Difference("world_size", "world_size", sentence))
    return found


def check_matches(
    old: Mapping[str, Any],
    new: Fingerprint,
    *,
    force: bool = False,
    allow: Collection[str] = (),
    urls: Urls | None = None,
) -> list[Difference]:
    """Raise an error if the saved pipeline differs in a way that is not allowed; otherwise return the differences.

    Args:
        old, new, urls: Same arguments as for :func:`difference`.
        force: If True, allow every difference.
        allow: Kinds ("shards") or names ("shuffle.buffer_size") of allowed differences.

    Raises:
        StateMismatchError: Some differences are not allowed. The error lists them.
        PlanError: An entry of ``allow`` is neither a kind nor a name.
    """
    allowed = checked_allow(allow)
    found = difference(old, new, urls)
    not_allowed = refused(found, allowed)
    if not_allowed and not force:
        raise StateMismatchError(not_allowed, _cure(not_allowed))
    return found


def refused(found: Collection[Difference], allow: Collection[str]) -> list[Difference]:
    """Return the differences that are not allowed.

    Args:
        allow: Kinds or names of allowed differences.

    Raises:
        PlanError: An entry of ``allow`` is neither a kind nor a name.
    """
    allowed = checked_allow(allow)
    return [one for one in found if one.kind not in ALWAYS_ALLOWED and not {one.kind, one.name} & allowed]


def checked_allow(allow: Collection[str], plan: Node | None = None) -> frozenset[str]:
    """Validate the argument ``allow``, and return its kinds and names as a set.

    Args:
        plan: Plan whose operator labels may occur in names; None accepts any label.

    Raises:
        PlanError: An entry of ``allow`` is neither a kind nor a name.
    """
    operators = None if plan is None else {node.label for node in walk(plan)}
    known = REFUSED | {CONTENT}
    for one in (allow,) if isinstance(allow, str) else allow:
        if not isinstance(one, str) or not (one in known | ALWAYS_ALLOWED or _is_argument(one, operators)):
            kinds = ", ".join(sorted(known))
            of_plan = f" of {', '.join(sorted(operators))}" if operators else ""
            raise PlanError(
                f"allow must contain kinds ({kinds}) or arguments ('shuffle.buffer_size'){of_plan}, got {shown(one)}"
            )
    return frozenset((allow,) if isinstance(allow, str) else allow)


def _is_argument(name: str, operators: Collection[str] | None) -> bool:
    operator, dot, argument = name.partition(".")
    return bool(dot and argument) and (operators is None or operator in operators)


def _cure(refused: Sequence[Difference]) -> str:
    kinds = ", ".join(f'"{kind}"' for kind in sorted({one.kind for one in refused}))
    if all(one.name == CONTENT for one in refused):
        return (
            f'If the records are unchanged (touch, copy, repair), pass allow=["{CONTENT}"]. If the records changed, '
            'pass allow=["shards"], which refuses shards that rows were read from'
        )
    return (
        f"Open the pipeline that the state was saved from, or pass allow=[{kinds}] (changes of "
        f"{'this kind' if ',' not in kinds else 'these kinds'}) or force=True (any change)"
    )


def _plan_differences(old: object, new: Description) -> list[Difference]:
    if isinstance(old, dict) and isinstance(old.get("digest"), str):
        return _digest_differences(old, new)
    chain = read_chain(old)
    if chain is None:
        return [Difference("plan", "plan", "the plan stored in the state is damaged")]
    return chain_differences(chain, chain_of(new))


def _digest_differences(old: Mapping[str, Any], new: Description) -> list[Difference]:
    if old["digest"] == digest(new):
        return []
    if SIZE in old and old.get(WITHOUT_SIZE) == digest(without_batch_size(new)):
        sentence = f"batch: batch_size was {old[SIZE]}, is {last_batch_size(new)}"
        return [Difference("argument", "batch.batch_size", sentence)]
    return [Difference("plan", "plan", "the plan changed (the state stores only its hash)")]


def _shard_differences(old: object, new: Mapping[str, ShardSummary], urls: Urls) -> list[Difference]:
    if old is None or not new:
        return []
    if not isinstance(old, Mapping):
        return [Difference("plan", "plan", "the shard list stored in the state is damaged")]
    found = [
        shard_difference(old[name], summary, urls.get(name, ()), name if len(new) > 1 else "")
        for name, summary in new.items()
        if name in old
    ]
    return [one for one in found if one is not None]
