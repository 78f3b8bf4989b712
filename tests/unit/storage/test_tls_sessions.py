"""Sessions of TLS are taken up where there is one, and nobody stumbles over a handshake that is under way."""

from __future__ import annotations

import ssl

import pytest

from aiostream_data.storage.wire.tls import client_context


def test_a_second_connection_begins_while_the_first_ones_handshake_is_under_way() -> None:
    context = client_context()
    first = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="store.example")
    with pytest.raises(ssl.SSLWantReadError):
        first.do_handshake()
    second = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="store.example")
    with pytest.raises(ssl.SSLWantReadError):
        second.do_handshake()
    assert not second.session_reused
