"""TLS for connections: certificates are verified, and sessions are taken up again, which saves a round trip."""

from __future__ import annotations

import ssl


class ResumingContext(ssl.SSLContext):
    """A client's context that takes up the last session it had with each server name.

    asyncio gives no access to sessions; it makes every TLS object through :meth:`wrap_bio`, and so that is the place.
    A session that a server does not know any more costs nothing: it makes a full handshake. Of an object whose
    handshake is under way there is none yet, and so the one before it counts on.
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
            sessions[name] = found  # with what came after the handshake
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session or sessions.get(name))
        objects[name] = made
        return made


def _session_of(before: ssl.SSLObject | None) -> ssl.SSLSession | None:
    """Return the session of a connection; None where its handshake has not come to one."""
    try:
        return None if before is None else before.session
    except ValueError:  # how OpenSSL's "not yet" arrives here
        return None


def client_context(*, verify: bool | str | None = None) -> ssl.SSLContext:
    """Return a context for many connections.

    Args:
        verify: A file or folder of certificates to trust instead of the system's; False to trust anybody, which
            only a test server is worth.
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
