"""What the dialects of object stores have in common, and the shape that each of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from aiostream_data.testing.faults import Kind
from aiostream_data.testing.object_api.accounts import Account
from aiostream_data.testing.object_api.messages import Answer, Request
from aiostream_data.testing.object_api.objects import Objects, StoredObject

DialectName: TypeAlias = Literal["s3", "gcs", "http"]


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about.

    Attributes:
        bucket: "" under plain HTTP.
        key: Of an object; of a listing, its prefix.
    """

    kind: Kind
    bucket: str
    key: str

    @property
    def name(self) -> str:
        """The object's name among :class:`Objects`."""
        return f"{self.bucket}/{self.key}" if self.bucket else self.key


class Dialect(Protocol):
    """A store's way of speaking, without state."""

    def target(self, request: Request) -> Target:
        """Return the object that the request addresses."""

    def refusal(self, request: Request, accounts: Sequence[Account], now_s: float) -> str | None:
        """Return why the credentials are refused, one of :data:`~aiostream_data.testing.faults.Refusal`; or None."""

    def refuse(self, request: Request, target: Target, reason: str, number: int) -> Answer:
        """Return the answer to refused credentials."""

    def error(self, request: Request, target: Target, status: int, code: str, number: int) -> Answer:
        """Return an error with a code; the dialect's usual one for the status if the code is empty."""

    def read(self, request: Request, target: Target, stored: StoredObject, number: int) -> Answer:
        """Answer a request for an object that exists: all of it, a part, or that a condition does not hold."""

    def other(self, request: Request, target: Target, objects: Objects, number: int) -> Answer:
        """Answer a listing, a question about a bucket, or a request for an object that does not exist."""
