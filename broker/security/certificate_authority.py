"""Makes certificates for development and tests: an authority, and what it signs.

    authority = new_authority("My Authority", now=now, days=365)
    broker = issue(authority, "broker", hosts=["localhost", "127.0.0.1"], now=now, days=365)

    (A) All keys are EC P-256, which Java, OpenSSL and every client know, and which take a fraction of a millisecond.
    (B) The certificates have all that `ssl.VERIFY_X509_STRICT` asks for, which is on by default since Python 3.13.
    (C) A certificate is good for both sides of a connection, since a broker is a client of other brokers.
    (D) It is valid from an hour before `now`, because the clocks of machines differ, until `days` after it.
    (E) Keys and serial numbers come from the system's randomness; everything else is in the arguments.

It needs the package `cryptography`, so import it where it is used, and say so if that fails.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCKS_DIFFER = timedelta(hours=1)
LONGEST_COMMON_NAME = 64


class Authority(NamedTuple):
    """An authority's certificate, which the others trust, and the key that signs, both in PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Authority()"


class Issued(NamedTuple):
    """A private key with its certificate, both in PEM."""

    certificate: bytes
    key: bytes

    @property
    def pem(self) -> bytes:
        """Both, as `ssl.keystore.location` names them."""
        return self.key + self.certificate

    def __repr__(self) -> str:
        return "Issued()"


def new_authority(name: str, *, now: datetime, days: int) -> Authority:
    """Returns a new authority. Raises ValueError for a name that no certificate can have."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = _builder(subject, subject, key.public_key(), now, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(of_authority=True), critical=True)
    return Authority(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def issue(authority: Authority, name: str, *, hosts: Iterable[str] = (), now: datetime, days: int) -> Issued:
    """Returns a key and a certificate that the authority has signed. `name`: a common name (`alice`), or a whole
    subject (`CN=alice,O=Example`). `hosts`: the host names and IP addresses of a server. Raises ValueError.
    """
    signer = load_pem_private_key(authority.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not one of elliptic curves")
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_subject(name), issuer.subject, key.public_key(), now, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(of_authority=False), critical=True)
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(signed_by, critical=False)
    names = [_host(host) for host in hosts]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Issued(_pem(builder.sign(signer, hashes.SHA256())), _key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, of_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not of_authority,
        key_cert_sign=of_authority,
        crl_sign=of_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(name: str) -> x509.Name:
    if "=" in name:
        try:
            return x509.Name.from_rfc4514_string(name)
        except ValueError as error:
            raise ValueError(f"{name!r} is not a subject such as CN=alice,O=Example") from error
    if not 0 < len(name) <= LONGEST_COMMON_NAME:
        raise ValueError(f"a common name has 1 to {LONGEST_COMMON_NAME} characters, not {len(name)}")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
