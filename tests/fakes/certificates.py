"""Certificates for servers of tests, made when they are asked for: good ones, and such as nobody should accept."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

import trustme

_PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM form: of an authority, and of servers that it has signed.

    Attributes:
        authority: The authority's certificate, for clients to trust.
        good: Of a server at 127.0.0.1 and localhost.
        misnamed: Of a server that has another name.
        expired: Of one whose time is over.
    """

    authority: Path
    good: Path
    misnamed: Path
    expired: Path


def make_certificates(folder: Path) -> Certificates:
    """Write all of them into ``folder``."""
    authority = trustme.CA()
    here = ("127.0.0.1", "localhost")
    servers = {
        "good": authority.issue_cert(*here),
        "misnamed": authority.issue_cert("elsewhere.example"),
        "expired": authority.issue_cert(*here, not_before=_PAST, not_after=_PAST + datetime.timedelta(days=1)),
    }
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    for name, server in servers.items():
        server.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))
    return Certificates(folder / "authority.pem", *(folder / f"{name}.pem" for name in servers))
