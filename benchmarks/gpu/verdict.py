"""Decide whether a run passed: whether the device code did on a GPU all that it promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.gpu.part import FINDINGS

NEEDS_TWO = "needs two GPUs"
"""How the reason begins for which a test is skipped on a machine with one GPU."""

OURS = "ours"
"""How the names of our contenders begin. That another loader fails is a finding about it alone."""


def what_failed(parts: Mapping[str, Any], self_check: bool) -> list[str]:
    """Return what stands against a run, in words; nothing when it passed.

    In a self-check tests may be skipped, as there is no GPU, and no question may break. On a GPU one that breaks is
    as open as one that is not settled, and says nothing against the device code. Where there is one GPU, tests for two
    may be skipped.
    """
    return [*_broken(parts), *_tests(parts, self_check), *(_breaks(parts) if self_check else ()), *_contenders(parts)]


def still_open(parts: Mapping[str, Any]) -> list[str]:
    """Return the questions that have no answer, and ``two GPUs`` where there was one."""
    two_gpus = ["two GPUs"] if "skipped" in parts.get("two_gpus", {}) else []
    return [*(key for key, found in _questions(parts) if not found["settled"]), *two_gpus]


def _broken(parts: Mapping[str, Any]) -> Iterator[str]:
    for name, found in parts.items():
        if found["ending"] != "done":
            yield f"{name}: {found['ending']}"


def _tests(parts: Mapping[str, Any], self_check: bool) -> Iterator[str]:
    suite = parts.get("suite")
    if suite is None or "passed" not in suite:
        return
    yield from (f"test {name}: {message}" for name, message in suite["failed"].items())
    if not self_check:
        skipped = {name: reason for name, reason in suite["skipped"].items() if not reason.startswith(NEEDS_TWO)}
        yield from (f"test {name} was skipped: {reason}" for name, reason in skipped.items())
        if not suite["passed"]:
            yield "no test passed"


def _breaks(parts: Mapping[str, Any]) -> Iterator[str]:
    for key, found in _questions(parts):
        if found["measured"].get("failed"):
            yield f"{key}: {found['answer']}"


def _questions(parts: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in FINDINGS:
        yield from ((key, found) for key, found in parts.get(part, {}).items() if isinstance(found, dict))


def _contenders(parts: Mapping[str, Any]) -> Iterator[str]:
    groups = [found for name in ("loaders", "loaders_jax") for found in parts.get(name, {}).values()]
    groups = [group for group in groups if isinstance(group, dict)]
    for group in [*groups, *(parts[name] for name in ("two_gpus", "end_to_end") if name in parts)]:
        for name, error in group.get("errors", {}).items():
            if name.startswith(OURS):
                yield f"{name}: {error}"
