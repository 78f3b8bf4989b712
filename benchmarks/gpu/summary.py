"""A run as a table that fits on a screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.gpu.part import FINDINGS
from benchmarks.gpu.parts.loaders import COMPUTES_MS

WIDTH = 110


def summary(result: dict[str, Any]) -> str:
    """Return what a run found, the loaders' table last but for the verdict."""
    parts = result["parts"]
    lines = [f"GPU: {result['device']}; {result['date']}; commit {result['circumstances']['commit'][:12]}"]
    lines += [
        f"{name}: {found['ending'].splitlines()[-1][:WIDTH]}, {found['seconds']} s" for name, found in parts.items()
    ]
    lines += ["", "Questions"]
    for part in FINDINGS:
        lines += [_answer(key, found) for key, found in parts.get(part, {}).items() if isinstance(found, dict)]
    lines += ["", "Tests", *_tests(parts.get("suite", {})), "", "Predictions"]
    lines += [_prediction(name, result) for name in result["predictions"]]
    lines += ["", "Two GPUs", *_two_gpus(parts.get("two_gpus", {}))]
    lines += ["", "Loaders: ms per step, lowest to highest, and share of time in which the device was idle"]
    for part in ("loaders", "loaders_jax"):
        for size, group in parts.get(part, {}).items():
            if isinstance(group, dict):
                lines += _group(size, group)
    lines += ["", "End to end, pictures per second", *_end_to_end(parts.get("end_to_end", {})), "", _verdict(result)]
    return "\n".join(lines)


def _answer(key: str, found: dict[str, Any]) -> str:
    said = found["answer"].strip().splitlines()[-1]
    return f"{key}{'' if found['settled'] else ' (NOT SETTLED)'}: {said[:WIDTH]}"


def _tests(suite: dict[str, Any]) -> Iterator[str]:
    if "passed" in suite:
        yield f"{suite['passed']} passed, {len(suite['failed'])} failed, {len(suite['skipped'])} skipped"
        yield from (f"failed: {name}" for name in suite["failed"])


def _prediction(name: str, result: dict[str, Any]) -> str:
    prediction, judged = result["predictions"][name], result["judged"][name]
    outcome = {True: "held", False: "FAILED", None: "not measured"}[judged["held"]]
    measured = "" if judged["measured"] is None else f": {judged['measured']:.4g} {prediction['unit']}"
    return f"{outcome}{measured} | {prediction['says']}{' (required)' if prediction['required'] else ''}"


def _two_gpus(found: dict[str, Any]) -> Iterator[str]:
    if "skipped" in found:
        yield f"skipped: {found['skipped']}"
    for name, visit in found.get("visits", {}).items():
        contexts = ", ".join(f"cuda:{index}" for index in visit["contexts"])
        yield f"  {f'{name} on cuda:1':32}contexts on {contexts}"
    yield from (f"  {name:32}{_speeds(found[name])}" for name in ("link", "stages") if name in found)
    yield from (f"  {name:32}{why[:WIDTH]}" for name, why in found.get("errors", {}).items())


def _speeds(compared: dict[str, Any]) -> str:
    both = {when: [each["median"] for each in compared[when].values()] for when in ("alone", "at_once")}
    alone, at_once = (" and ".join(f"{rate:.1f}" for rate in rates) for rates in both.values())
    return f"{alone} GB/s alone, {at_once} GB/s at once"


def _group(size: str, group: dict[str, Any]) -> Iterator[str]:
    yield f"{size}: {group['nbytes']:,} bytes"
    lengths = [str(milliseconds) for milliseconds in COMPUTES_MS]
    yield f"  {'':32}" + "".join(f"{f'steps of {length} ms':>27}" for length in lengths)
    for name, by_length in group["steps"].items():
        yield f"  {name:32}" + "".join(f"{_cell(by_length.get(length)):>27}" for length in lengths)
    for steps, copies in (("beside steps", group["copies"]), ("alone", group["copies_alone"])):
        if copies:
            yield _copies(steps, copies)
    for name, why in {**group["missing"], **group["errors"]}.items():
        yield f"  {name:32}{why.strip().splitlines()[-1][:WIDTH]}"


def _copies(steps: str, copies: dict[str, Any]) -> str:
    return (
        f"  ours, timed by the device {steps}: {copies['h2d_gbps'] or 0:.1f} GB/s, {copies['host_copies']:.2f} copies "
        f"on the host, {copies['launches_per_batch']:.1f} launches per batch, slowest: {copies['slowest']}"
    )


def _cell(measured: dict[str, Any] | None) -> str:
    if measured is None:
        return "-"
    step = measured["step_ms"]
    idle = f" {measured['idle']['median']:4.0%}" if "idle" in measured else ""
    return f"{step['median']:.2f} ({step['min']:.2f}-{step['max']:.2f}){idle}"


def _end_to_end(found: dict[str, Any]) -> Iterator[str]:
    for name, rates in found.get("pictures_per_s", {}).items():
        yield f"  {name:32}{rates['median']:,.0f} ({rates['min']:,.0f}-{rates['max']:,.0f})"
    for name, why in {**found.get("missing", {}), **found.get("errors", {})}.items():
        yield f"  {name:32}{why.strip().splitlines()[-1][:WIDTH]}"


def _verdict(result: dict[str, Any]) -> str:
    if result["passed"]:
        still = f"; still open: {', '.join(result['open'])}" if result["open"] else ""
        return f"PASSED on {result['device']}: the record is written{still}"
    if result["failed"]:
        return "\n".join(["FAILED", *(f"- {each[: 3 * WIDTH]}" for each in result["failed"])])
    return "No part failed; without a GPU, or with parts left out, nothing is verified"
