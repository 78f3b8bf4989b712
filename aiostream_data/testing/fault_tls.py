"""Server side of a TLS connection to a fault server."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from typing import Final

from aiostream_data.testing.fault_socket import FaultSocket

_PIECE_NBYTES: Final = 256 << 10


class TlsFaultSocket(FaultSocket):
    """Accepted TLS connection of the server; the handshake runs when the first bytes arrive.

    The server ends the connection without a TLS close notification, as many real servers do.

    Args:
        context: TLS context of the test server.
        shook_hands: Function called after the handshake; its argument is True if the client resumed an earlier session.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        shook_hands: Callable[[bool], None],
        *,
        bytes_per_s: float | None = None,
    ) -> None:
        self._tls = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._shook_hands = shook_hands
        self._is_open = False
        super().__init__(self._tls, bytes_per_s=bytes_per_s)

    async def send_file(self, descriptor: int, offset: int, nbytes: int) -> None:
        """Send part of a file. TLS requires reading and encrypting the bytes first.

        Raises:
            ConnectionError: The client has disconnected, or the file was truncated.
        """
        stop = offset + nbytes
        while offset < stop:
            data = os.pread(descriptor, min(_PIECE_NBYTES, stop - offset), offset)
            if not data:
                raise ConnectionAbortedError("the file that is served has become shorter")
            await self.send(data)
            offset += len(data)
            self.filed_nbytes += len(data)

    def _receive_some(self, nbytes: int) -> bytes:
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
                self._shook_hands(bool(self._tls.session_reused))
            data = self._tls.recv(nbytes)
            while self._tls.pending():  # decrypted data does not wake the event loop
                data += self._tls.recv(nbytes)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:  # the client rejects the connection
            raise ConnectionAbortedError(str(error)) from error
        return data

    def _send_some(self, data: memoryview) -> int:
        try:
            return self._tls.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise ConnectionAbortedError(str(error)) from error


def server_context(certificate: str | os.PathLike[str]) -> ssl.SSLContext:
    """Create the TLS context of a server.

    Args:
        certificate: Path of a PEM file with the private key, the server certificate and its chain.

    Raises:
        OSError: The certificate file does not exist, or lacks the key or the certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["http/1.1"])
    return context
