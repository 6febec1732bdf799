"""Certificates for development and for tests are good enough for clients that are strict, and no more than they say."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from odradek.broker.security.certificate_authority import Authority, Validity
from odradek.broker.security.certificate_fields import alternative_names
from odradek.broker.security.key_stores import Store, load_key, load_trusted
from odradek.broker.security.tls import shake_hands
from tests.zookeeper import certificates as of_tests

NOW = datetime.datetime.now(datetime.UTC)
VALID = Validity.days(NOW, 30)
EVERY_NAME = ("localhost", "*.example.com", "127.0.0.1", "::1")


def strict(context: ssl.SSLContext) -> ssl.SSLContext:
    """As Python's contexts are since 3.13."""
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def server(pem: bytes, authority: bytes) -> ssl.SSLContext:
    context = strict(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    context.verify_mode = ssl.CERT_REQUIRED
    load_key(context, Store("server.pem", pem))
    load_trusted(context, Store("authority.pem", authority))
    return context


def client(pem: bytes, authority: bytes) -> ssl.SSLContext:
    context = strict(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.check_hostname = False
    load_key(context, Store("client.pem", pem))
    load_trusted(context, Store("authority.pem", authority))
    return context


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("An Authority", VALID)


def test_strict_clients_and_servers_accept_what_an_authority_has_signed(authority: Authority) -> None:
    broker, alice = authority.sign("broker", *EVERY_NAME, validity=VALID), authority.sign("alice", validity=VALID)
    for one, other in ((broker, alice), (broker, broker)):
        shake_hands(server(one.pem, authority.pem), client(other.pem, authority.pem))


def test_strict_clients_and_servers_accept_the_certificates_of_tests() -> None:
    made = of_tests.Authority()
    broker, alice = made.sign("broker", "localhost"), made.sign("alice")
    shake_hands(server(broker.pem, made.pem), client(alice.pem, made.pem))


def test_a_certificate_of_a_client_is_not_one_of_a_server(authority: Authority) -> None:
    alice = authority.sign("alice", validity=VALID)
    with pytest.raises(ssl.SSLError, match="unsuitable certificate purpose"):
        shake_hands(server(alice.pem, authority.pem), client(alice.pem, authority.pem))


def test_what_was_signed_cannot_sign(authority: Authority) -> None:
    alice = authority.sign("alice", validity=VALID)
    forged = Authority(alice.key, alice.certificate).sign("broker", "localhost", validity=VALID)
    chain = forged.pem + authority.pem
    with pytest.raises(ssl.SSLError, match="invalid CA certificate"):
        shake_hands(server(chain, authority.pem), client(alice.pem, authority.pem))


def test_an_authority_can_be_loaded_again(authority: Authority) -> None:
    again = Authority.load(authority.key_pem, authority.pem)
    signed = again.sign("broker", "localhost", validity=VALID)
    shake_hands(server(signed.pem, authority.pem), client(signed.pem, authority.pem))
    with pytest.raises(ValueError, match="not that of the certificate"):
        Authority.load(Authority.create("Other", VALID).key_pem, authority.pem)


def test_stores_of_type_pkcs12_hold_the_same(authority: Authority, tmp_path: Path) -> None:
    broker = authority.sign("broker", "localhost", validity=VALID)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, *_ = load_key(context, Store("broker.p12", broker.pkcs12("secret"), "PKCS12", "secret"))
    assert x509.load_der_x509_certificate(certificate) == broker.certificate
    load_trusted(context, Store("ca.p12", authority.pkcs12("secret"), "PKCS12", "secret"))
    assert len(context.get_ca_certs()) == 1


def test_the_certificate_of_a_key_store_is_returned(authority: Authority) -> None:
    broker = authority.sign("broker", "localhost", validity=VALID)
    for pem in (broker.pem, broker.chain_pem + broker.key_pem):
        certificate, *_ = load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), Store("broker.pem", pem))
        assert x509.load_der_x509_certificate(certificate) == broker.certificate


def test_alternative_names_are_read(authority: Authority) -> None:
    signed = authority.sign("broker", *EVERY_NAME, validity=VALID)
    names = alternative_names(signed.certificate.public_bytes(Encoding.DER))
    assert names == {"DNS:localhost", "DNS:*.example.com", "IP:127.0.0.1", "IP:::1"}
    alice = authority.sign("alice", validity=VALID)
    assert alternative_names(alice.certificate.public_bytes(Encoding.DER)) == frozenset()


def test_alternative_names_of_a_damaged_certificate_are_an_error(authority: Authority) -> None:
    whole = authority.sign("broker", *EVERY_NAME, validity=VALID).certificate.public_bytes(Encoding.DER)
    for length in range(len(whole)):
        with pytest.raises(ValueError, match=r"cut off|unpack"):
            alternative_names(whole[:length])
