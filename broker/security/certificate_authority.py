"""Makes certificates: an authority, and what it signs, as PEM and as PKCS12. For development, and for tests.

They have what Python 3.13 asks for by OpenSSL's X509_V_FLAG_X509_STRICT: which key has signed them, what their keys are
for, and critical basic constraints. Keys are on the curve P-256.

Needs the package `cryptography`. Callers: `odradek certificates`, and tests.
"""

from __future__ import annotations

import datetime
import ipaddress
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

NO_USE = {
    "digital_signature": False,
    "content_commitment": False,
    "key_encipherment": False,
    "data_encipherment": False,
    "key_agreement": False,
    "key_cert_sign": False,
    "crl_sign": False,
    "encipher_only": False,
    "decipher_only": False,
}
CLOCK_SKEW = datetime.timedelta(hours=1)
"""A certificate holds from so long before it is made: other machines' clocks may be slow."""


class Validity(NamedTuple):
    """From when to when a certificate holds."""

    start: datetime.datetime
    end: datetime.datetime

    @classmethod
    def days(cls, now: datetime.datetime, days: int) -> Validity:
        """So many days from now."""
        return cls(now - CLOCK_SKEW, now + datetime.timedelta(days=days))


class Signed(NamedTuple):
    """A key with its certificate, and the certificate of who has signed it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self.key)

    @property
    def chain_pem(self) -> bytes:
        return b"".join(each.public_bytes(Encoding.PEM) for each in (self.certificate, self.authority))

    @property
    def pem(self) -> bytes:
        """Key and chain in one file: a key store of type PEM."""
        return self.key_pem + self.chain_pem

    def pkcs12(self, password: str) -> bytes:
        """Key and chain as a key store of type PKCS12."""
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, [self.authority], encryption)


class Authority:
    """Signs certificates."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self.certificate = certificate

    @classmethod
    def create(cls, name: str, validity: Validity) -> Authority:
        """Makes an authority that has signed itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = named(name)
        builder = _builder(subject, subject, key, key, validity)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(**{**NO_USE, "key_cert_sign": True, "crl_sign": True})
        return cls(key, builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, key_pem: bytes, certificate_pem: bytes) -> Authority:
        """Reads an authority that was made before. Raises ValueError."""
        key = load_pem_private_key(key_pem, None)
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ValueError("the key is not that of the certificate")
        return cls(key, certificate)

    @property
    def pem(self) -> bytes:
        """The certificate: a trust store of type PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self._key)

    def pkcs12(self, password: str) -> bytes:
        """A trust store of type PKCS12, as keytool makes it: a certificate without a key. Java needs its mark that the
        certificate is trusted.
        """
        encryption = PrivateFormat.PKCS12.encryption_builder().hmac_hash(hashes.SHA256()).build(password.encode())
        trusted = pkcs12.PKCS12Certificate(self.certificate, b"authority")
        return pkcs12.serialize_java_truststore([trusted], encryption)

    def sign(self, name: str | x509.Name, *addresses: str, validity: Validity) -> Signed:
        """Makes a key and its certificate. `addresses`: the host names and IP addresses of a server; without any it is
        a client.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = named(name) if isinstance(name, str) else name
        builder = _builder(subject, self.certificate.subject, key, self._key, validity)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.KeyUsage(**{**NO_USE, "digital_signature": True}), critical=True)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if addresses:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_general_name(address) for address in addresses])
            builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        return Signed(key, builder.sign(self._key, hashes.SHA256()), self.certificate)


def named(common_name: str) -> x509.Name:
    """Returns a name that has only a common name. Raises ValueError if it is empty or too long."""
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    validity: Validity,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.start)
        .not_valid_after(validity.end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
