"""Common parts of the object store dialects (HTTP APIs), and the protocol that each dialect implements."""

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
    """Target of a request.

    Attributes:
        kind: Kind of the request, such as ``get`` or ``list``.
        bucket: Name of the bucket; "" for plain HTTP.
        key: Key of the requested object, or prefix of a listing.
    """

    kind: Kind
    bucket: str
    key: str

    @property
    def name(self) -> str:
        """Name of the requested object in :class:`Objects`."""
        return f"{self.bucket}/{self.key}" if self.bucket else self.key


class Dialect(Protocol):
    """Stateless HTTP dialect (API) of one kind of object store."""

    def target(self, request: Request) -> Target:
        """Return the object that the request addresses."""

    def refusal(self, request: Request, accounts: Sequence[Account], now_s: float) -> str | None:
        """Return the reason for rejecting the credentials (:data:`~aiostream_data.testing.faults.Refusal`), or None."""

    def refuse(self, request: Request, target: Target, reason: str, number: int) -> Answer:
        """Return the HTTP response to rejected credentials."""

    def error(self, request: Request, target: Target, status: int, code: str, number: int) -> Answer:
        """Return an error response; an empty ``code`` selects the dialect's usual code for the status."""

    def read(self, request: Request, target: Target, stored: StoredObject, number: int) -> Answer:
        """Answer a request for an existing object with the object, a range, or the status of an unmet condition."""

    def other(self, request: Request, target: Target, objects: Objects, number: int) -> Answer:
        """Answer a listing, a bucket request, or a request for a missing object."""
