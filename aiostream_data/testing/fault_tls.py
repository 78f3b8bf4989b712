"""A fault server's end of a connection that speaks TLS."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from typing import Final

from aiostream_data.testing.fault_socket import FaultSocket

_PIECE_NBYTES: Final = 256 << 10


class TlsFaultSocket(FaultSocket):
    """One accepted connection, whose handshake is made as its first bytes arrive.

    Its end is told by the connection alone, as many servers do: nothing of TLS says goodbye.

    Args:
        context: Of the server.
        shook_hands: Is told after the handshake whether an earlier session was taken up.
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
        """Send part of a file, which has to be read and encrypted.

        Raises:
            ConnectionError: The client is not there any more, or the file is shorter than it was.
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
            while self._tls.pending():  # what is decrypted already wakes nobody
                data += self._tls.recv(nbytes)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:  # the client does not like what it sees
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
    """Return the context of a server.

    Args:
        certificate: A PEM file with the private key, the server's certificate, and those that it was signed with.

    Raises:
        OSError: There is no such file, or it does not hold them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["http/1.1"])
    return context
