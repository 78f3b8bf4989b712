"""Fingerprint of a data set (plan, seed and listed shards), which is compared with the fingerprint in a saved state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

from aiostream_data._engine.resume.shard_numbers import ShardNumbers
from aiostream_data.plan.base import Node
from aiostream_data.plan.changes import ALWAYS_ALLOWED
from aiostream_data.plan.difference import check_matches, difference, refused
from aiostream_data.plan.fingerprint import Description, Fingerprint, describe_plan
from aiostream_data.plan.gained_inputs import gained_inputs
from aiostream_data.plan.global_batch import keeps_global_batch
from aiostream_data.plan.shard_list import summary_of
from aiostream_data.plan.stored import chain_of, read_chain, stored
from aiostream_data.rows.records import ShardRef


class Identity:
    """Fingerprint of one opened data set. Any thread may use the fingerprint, which is computed on first use.

    Args:
        written: The plan as the user wrote it.
        world_size: Number of ranks (training processes) that share the rows.

    Attributes:
        keys: Numbers of the plan's nodes; None if the numbers count up from 0.
    """

    keys: list[int] | None = None

    def __init__(self, written: Node, world_size: int) -> None:
        self._written = written
        self._world_size = world_size
        self._shards: dict[str, Sequence[ShardRef]] = {}
        self._numbers: dict[str, list[Any]] = {}
        self._lock = Lock()
        self._found: Fingerprint | None = None
        self._stored: dict[str, Any] | None = None

    def found_shards(self, resolved: Mapping[Node, Sequence[ShardRef]], keys: Mapping[Node, int]) -> None:
        """Record the shards that match the file patterns of the plan."""
        self._shards = {str(keys[node]): shards for node, shards in resolved.items() if shards}

    def numbered_shards(self, numbers: Mapping[int, Sequence[ShardNumbers]]) -> None:
        """Record the shard numbers for epochs that began before the shard list changed.

        Call this method before the first state is saved.
        """
        self._numbers = {str(key): [each.as_state() for each in known] for key, known in numbers.items() if known}

    def stored(self) -> dict[str, Any]:
        """Return the fingerprint in the JSON-compatible form that states contain."""
        with self._lock:
            if self._stored is None:
                self._stored = stored(self._fingerprint())
                if self.keys is not None:
                    self._stored["keys"] = self.keys
                for name, numbered in self._numbers.items():
                    self._stored["shards"][name]["numbered"] = numbered
            return self._stored

    def agrees(self, saved: Mapping[str, Any], force: bool, allow: Collection[str]) -> bool | None:
        """Compare the plan in a saved state with the current plan, before shards are listed.

        Returns:
            True if the plans are equal, False if they differ only in ways that the user allowed, None otherwise.
        """
        with self._lock:
            new = Fingerprint(plan=self._plan, world_size=self._world_size)
        changes = [one for one in difference(saved, new) if one.kind not in ALWAYS_ALLOWED]
        if keeps_global_batch(saved, new):
            allow = {*allow, "batch.batch_size"}
        return not changes if force or not refused(changes, allow) else None

    def gained_inputs(self, saved: Mapping[str, Any]) -> list[int] | None:
        """Return the number of inputs that each mixture gained after the save; see :func:`.gained_inputs`."""
        chain = read_chain(saved.get("plan"))
        return None if chain is None else gained_inputs(chain, chain_of(self._plan))

    def check(self, saved: Mapping[str, Any], given_seed: int | None, force: bool, allow: Collection[str]) -> None:
        """Raise StateMismatchError if the state was saved by a different pipeline.

        Args:
            given_seed: Seed that the user passed in addition to the state, or None.

        Raises:
            StateMismatchError: The pipelines differ in a way that the user did not allow; the message lists the
                differences.
        """
        with self._lock:
            new = self._fingerprint()
        if given_seed is not None:
            new = {**new, "seed": given_seed}
        if keeps_global_batch(saved, new):
            allow = {*allow, "batch.batch_size"}
        urls = {name: [shard.url for shard in shards] for name, shards in self._shards.items()}
        check_matches(saved, new, force=force, allow=allow, urls=urls)

    @cached_property
    def _plan(self) -> Description:
        return describe_plan(self._written)

    def _fingerprint(self) -> Fingerprint:
        if self._found is None:
            self._found = {"plan": self._plan, "world_size": self._world_size}
            if self._shards:
                self._found["shards"] = {name: summary_of(shards) for name, shards in self._shards.items()}
        return self._found
