"""The client's side of SCRAM, for tests."""

from __future__ import annotations

import base64
import re

from odradek.broker.security.sasl.scram import SCRAM_SHA_256, ScramCredential, ScramMechanism

SALT = b"salt-salt-salt"


def credential_of(password: str, mechanism: ScramMechanism = SCRAM_SHA_256, iterations: int = 4096) -> ScramCredential:
    """The credential that a broker keeps of a user with this password."""
    salted = mechanism.salted_password(password, SALT, iterations)
    return mechanism.credential(salted, SALT, iterations)


class ScramClient:
    """One login of a user."""

    def __init__(
        self,
        user: str,
        password: str,
        mechanism: ScramMechanism = SCRAM_SHA_256,
        *,
        nonce: str = "client-nonce",
        header: bytes = b"n,,",
    ) -> None:
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}".encode()
        self._header = header
        self.first = header + self._bare
        self._password = password
        self._mechanism = mechanism
        self.signature = b""
        """What the server must prove, once `final` has been called."""

    def final(self, challenge: bytes, nonce: bytes | None = None) -> bytes:
        """The last message, in response to the server's first. `nonce` is in place of the server's."""
        match = re.fullmatch(rb"r=([^,]+),s=([^,]+),i=(\d+)", challenge)
        assert match is not None, challenge
        hmac, mechanism = self._mechanism.hmac, self._mechanism
        salted = mechanism.salted_password(self._password, base64.b64decode(match[2]), int(match[3]))
        without_proof = b"c=" + base64.b64encode(self._header) + b",r=" + (nonce or match[1])
        signed = b",".join((self._bare, challenge, without_proof))
        client_key = hmac(salted, b"Client Key")
        signature = hmac(mechanism.hash(client_key), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self.signature = b"v=" + base64.b64encode(hmac(hmac(salted, b"Server Key"), signed))
        return without_proof + b",p=" + base64.b64encode(proof)
