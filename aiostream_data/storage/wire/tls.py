"""TLS contexts that verify certificates and resume TLS sessions. Resuming saves a round trip per connection."""

from __future__ import annotations

import ssl


class ResumingContext(ssl.SSLContext):
    """Client TLS context that resumes the most recent TLS session for each server name.

    asyncio gives no access to TLS sessions, but creates every TLS object with :meth:`wrap_bio`. This class therefore
    overrides :meth:`wrap_bio`. If the server has discarded a session, the client performs a full handshake. While a
    handshake is in progress, new connections resume an earlier session.
    """

    _objects: dict[str, ssl.SSLObject]
    _sessions: dict[str, ssl.SSLSession]

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        name = server_hostname if isinstance(server_hostname, str) else ""
        objects, sessions = self.__dict__.setdefault("_objects", {}), self.__dict__.setdefault("_sessions", {})
        if (found := _session_of(objects.get(name))) is not None:
            sessions[name] = found  # includes session tickets received after the handshake
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session or sessions.get(name))
        objects[name] = made
        return made


def _session_of(before: ssl.SSLObject | None) -> ssl.SSLSession | None:
    """Return the TLS session of a connection, or None before its handshake has completed."""
    try:
        return None if before is None else before.session
    except ValueError:  # raised while the handshake is in progress
        return None


def client_context(*, verify: bool | str | None = None) -> ssl.SSLContext:
    """Create a TLS context that several connections can share.

    Args:
        verify: File or folder of certificates to trust instead of the system's certificates. False disables
            verification; use False with test servers only.
    """
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif isinstance(verify, str):
        from pathlib import Path

        is_folder = Path(verify).is_dir()
        context.load_verify_locations(cafile=None if is_folder else verify, capath=verify if is_folder else None)
    else:
        context.load_default_certs()
    return context
