"""Certificates and keys for tests: an authority, and what it signs, as PEM and as PKCS12."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from odradek.broker.security import certificate_authority
from odradek.broker.security.certificate_authority import Validity

PASSWORD = "store-secret"
VALID_DAYS = 3650
DAY = datetime.timedelta(days=1)


class Signed(certificate_authority.Signed):
    """A key with its certificate, and the certificate of who has signed it."""

    __slots__ = ()

    def encrypted_pem(self) -> bytes:
        encryption = BestAvailableEncryption(PASSWORD.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption) + self.chain_pem

    def pkcs12(self, password: str = PASSWORD) -> bytes:
        return super().pkcs12(password)


class Authority(certificate_authority.Authority):
    """Signs certificates."""

    def __init__(self, name: str = "Test Authority") -> None:
        made = certificate_authority.Authority.create(name, _valid(expired=False))
        super().__init__(made._key, made.certificate)

    def pkcs12(self, password: str = PASSWORD) -> bytes:
        return super().pkcs12(password)

    def sign(
        self, name: str | x509.Name, *addresses: str, expired: bool = False, validity: Validity | None = None
    ) -> Signed:
        """`addresses`: the host names and IP addresses of a server."""
        return Signed(*super().sign(name, *addresses, validity=validity or _valid(expired=expired)))


def server_context(server: Signed, trusted: Authority | None, directory: Path) -> ssl.SSLContext:
    """A server's side; with `trusted`, clients must show a certificate of it."""
    file = directory / f"{server.certificate.serial_number}.pem"
    file.write_bytes(server.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    if trusted is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=trusted.pem.decode())
    return context


def _valid(*, expired: bool) -> Validity:
    now = datetime.datetime.now(datetime.UTC)
    return Validity(now - 2 * DAY, now - DAY if expired else now + VALID_DAYS * DAY)
