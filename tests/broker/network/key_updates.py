"""KeyUpdate messages of a TLS 1.3 client. Python's `ssl` sends none; these are made from the secrets of a session.

    (A) `log_secrets` must come before the session. The session's cipher is AES in GCM, as OpenSSL prefers.
    (B) Each message is encrypted with the keys before it, and the next one with those after it.

Source: RFC 8446, sections 4.6.3, 5.2 and 7.
"""

from __future__ import annotations

import hmac
import ssl
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ASKING_FOR_ONE = b"\x18\0\0\1\1"
"""The message KeyUpdate that asks the other side for one."""
HANDSHAKE = b"\x16"
TAG_BYTES = 16
SHA384_BYTES = 48


def log_secrets(context: ssl.SSLContext, file: Path) -> None:
    """Has the sessions of a context write their secrets into a file (A)."""
    context.keylog_filename = str(file)


class KeyUpdates:
    """Those of the session whose secrets were logged last. `records_before`: how many records it has sent since its
    handshake.
    """

    def __init__(self, file: Path, records_before: int = 0) -> None:
        lines = [line.split() for line in file.read_text().splitlines()]
        secret = [words[2] for words in lines if words[0] == "CLIENT_TRAFFIC_SECRET_0"][-1]
        self._secret = bytes.fromhex(secret)
        self._number = records_before

    def records(self, count: int) -> bytes:
        """Returns so many further messages."""
        return b"".join(self._record() for _ in range(count))

    def _record(self) -> bytes:
        plain = ASKING_FOR_ONE + HANDSHAKE
        header = struct.pack(">BHH", 0x17, 0x0303, len(plain) + TAG_BYTES)
        key_bytes = 32 if len(self._secret) == SHA384_BYTES else 16
        nonce = int.from_bytes(self._derived(b"iv", 12), "big") ^ self._number
        record = header + AESGCM(self._derived(b"key", key_bytes)).encrypt(nonce.to_bytes(12, "big"), plain, header)
        self._secret = self._derived(b"traffic upd", len(self._secret))
        self._number = 0
        return record

    def _derived(self, label: bytes, length: int) -> bytes:
        """HKDF-Expand-Label; one block is long enough for all that is asked."""
        label = b"tls13 " + label
        info = struct.pack(">HB", length, len(label)) + label + b"\0\x01"
        return hmac.digest(self._secret, info, "sha384" if len(self._secret) == SHA384_BYTES else "sha256")[:length]
