"""Control commands of a fault server. Tests send the same text commands by a direct call or over HTTP."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aiostream_data.errors import PlanError
from aiostream_data.testing.fault_rules import RuleBook
from aiostream_data.testing.fault_site import FaultSite
from aiostream_data.testing.faults import Fault, Rule
from aiostream_data.testing.object_api.accounts import Account
from aiostream_data.testing.request_log import SeenRequest, ServerCounters
from aiostream_data.testing.wire_model import WireModel

PREFIX = "/__control/"
"""URL path prefix of control requests; object names cannot start with this prefix."""


def answer(site: FaultSite, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    """Execute one control command and return an HTTP status and a text. Errors return status 400."""
    try:
        return 200, _carry_out(site, method, path, body)
    except (PlanError, ValueError, TypeError, KeyError, OSError) as error:
        return 400, f"{type(error).__name__}: {error}".encode()


def _carry_out(site: FaultSite, method: str, path: str, body: bytes) -> bytes:
    what, _, rest = path.partition("/")
    match method, what:
        case "PUT", "object":
            site.objects.put(unquote(rest), body)
        case "DELETE", "object":
            site.objects.delete(unquote(rest))
        case "PUT", "bucket":
            site.objects.buckets.add(unquote(rest))
        case "PUT", "folder":
            return str(site.objects.put_folder(unquote(rest), Path(body.decode()))).encode()
        case "PUT", "rules":
            site.rules = RuleBook([_rule(told) for told in json.loads(body)], site.seed)
        case "PUT", "wire":
            site.set_wire(WireModel(**json.loads(body)))
        case "PUT", "accounts":
            site.accounts = tuple(Account(**told) for told in json.loads(body))
        case "GET", "log":
            return json.dumps([asdict(entry) for entry in list(site.log.entries)]).encode()
        case "GET", "counters":
            return json.dumps(asdict(site.log.counters)).encode()
        case "DELETE", "log":
            site.log.clear()
        case "DELETE", "connections":
            site.drop_connections()
        case _:
            raise ValueError(f"there is no command {method} {what}")
    return b""


def rules_text(rules: tuple[Rule, ...]) -> bytes:
    """Serialize fault rules as JSON; omit fields with default values."""
    told = [
        {**_changed(rule), "fault": _changed(rule.fault), "others": [_changed(fault) for fault in rule.others]}
        for rule in rules
    ]
    return json.dumps(told, default=_encode).encode()


def read_log(text: bytes) -> list[SeenRequest]:
    """Parse the JSON form of a request log."""
    return [SeenRequest(**told) for told in json.loads(text)]


def read_counters(text: bytes) -> ServerCounters:
    """Parse the JSON form of server counters."""
    told = json.loads(text)
    told["statuses"] = {int(status): times for status, times in told["statuses"].items()}
    return ServerCounters(**told)


def _changed(described: Rule | Fault) -> dict[str, Any]:
    return {
        field.name: value for field in fields(described) if (value := getattr(described, field.name)) != field.default
    }


def _encode(value: object) -> object:
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _decode(value: Any) -> Any:
    """Convert lists to tuples and encoded strings to bytes."""
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    if isinstance(value, Mapping) and set(value) == {"base64"}:
        return b64decode(value["base64"])
    return value


def _rule(told: Mapping[str, Any]) -> Rule:
    rest = {name: _decode(value) for name, value in told.items() if name not in ("fault", "others")}
    return Rule(_fault(told["fault"]), others=tuple(_fault(fault) for fault in told.get("others", ())), **rest)


def _fault(told: object) -> Fault:
    if not isinstance(told, Mapping):
        raise TypeError(f"a fault is written as an object, not as {told!r}")
    return Fault(**{name: _decode(value) for name, value in told.items()})
