"""Certificates and keys for tests: an authority, and what it signs, as PEM and as PKCS12."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

PASSWORD = "changeit"
VALID_DAYS = 3650


class Signed(NamedTuple):
    """A key with its certificate, and the certificate of who has signed it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def pem(self) -> bytes:
        """Key and chain in one file, as ZooKeeper reads a key store of type PEM."""
        return self.key_pem + self.chain_pem

    @property
    def chain_pem(self) -> bytes:
        return b"".join(each.public_bytes(Encoding.PEM) for each in (self.certificate, self.authority))

    def encrypted_pem(self) -> bytes:
        encryption = BestAvailableEncryption(PASSWORD.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption) + self.chain_pem

    def pkcs12(self) -> bytes:
        encryption = BestAvailableEncryption(PASSWORD.encode())
        return pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, [self.authority], encryption)


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "Test Authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = _certificate(name, name, self._key.public_key(), self._key, is_authority=True)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def pkcs12(self) -> bytes:
        """A trust store, as keytool makes it: a certificate without a key."""
        encryption = BestAvailableEncryption(PASSWORD.encode())
        return pkcs12.serialize_key_and_certificates(None, None, None, [self.certificate], encryption)

    def sign(self, name: str | x509.Name, *addresses: str, expired: bool = False) -> Signed:
        """`addresses`: the host names and IP addresses of a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        days = -1 if expired else VALID_DAYS
        signed = _certificate(name, str(issuer), key.public_key(), self._key, addresses=addresses, days=days)
        return Signed(key, signed, self.certificate)


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


def _certificate(
    name: str | x509.Name,
    issuer: str,
    public_key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    addresses: tuple[str, ...] = (),
    is_authority: bool = False,
    days: int = VALID_DAYS,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_named(name) if isinstance(name, str) else name)
        .issuer_name(_named(issuer))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    )
    if addresses:
        names = x509.SubjectAlternativeName([_general_name(address) for address in addresses])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
