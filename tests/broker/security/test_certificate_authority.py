"""Certificates for development and tests, as OpenSSL verifies them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from odradek.broker.security.certificate_authority import Authority, Issued, issue, new_authority
from odradek.broker.security.distinguished_name import java_name, subject_of

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority("Test Authority", now=NOW, days=2)


class Peers:
    """A client and a server with TLS in memory."""

    def __init__(self, directory: Path, server: Issued, client: Issued, trusted: Authority, host: str) -> None:
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        contexts = []
        for name, purpose, own in (
            ("server", ssl.PROTOCOL_TLS_SERVER, server),
            ("client", ssl.PROTOCOL_TLS_CLIENT, client),
        ):
            context = ssl.SSLContext(purpose)
            context.verify_mode = ssl.CERT_REQUIRED
            context.verify_flags |= ssl.VERIFY_X509_STRICT
            context.load_verify_locations(cadata=trusted.certificate.decode())
            file = directory / f"{name}.pem"
            file.write_bytes(own.pem)
            context.load_cert_chain(file)
            contexts.append(context)
        self.server = contexts[0].wrap_bio(there, back, server_side=True)
        self.client = contexts[1].wrap_bio(back, there, server_hostname=host)

    def shake_hands(self) -> None:
        """Raises ssl.SSLError."""
        for _ in range(3):
            for peer in (self.client, self.server):
                try:
                    peer.do_handshake()
                except ssl.SSLWantReadError:
                    continue


@pytest.mark.parametrize("host", ["broker.example.com", "127.0.0.1", "::1"])
def test_both_sides_are_verified_as_strictly_as_openssl_can(authority: Authority, tmp_path: Path, host: str) -> None:
    server = issue(authority, "broker", hosts=["broker.example.com", "127.0.0.1", "::1"], now=NOW, days=1)
    peers = Peers(tmp_path, server, issue(authority, "alice", now=NOW, days=1), authority, host)
    peers.shake_hands()
    shown = peers.server.getpeercert(binary_form=True)
    assert shown is not None
    assert java_name(subject_of(shown)) == "CN=alice"


def test_another_host_is_refused(authority: Authority, tmp_path: Path) -> None:
    server = issue(authority, "broker", hosts=["127.0.0.1"], now=NOW, days=1)
    peers = Peers(tmp_path, server, server, authority, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        peers.shake_hands()


def test_an_authority_of_the_same_name_is_another_one(authority: Authority, tmp_path: Path) -> None:
    other = issue(new_authority("Test Authority", now=NOW, days=2), "broker", hosts=["localhost"], now=NOW, days=1)
    with pytest.raises(ssl.SSLCertVerificationError):
        Peers(tmp_path, other, other, authority, "localhost").shake_hands()


def test_what_an_authority_has_signed_signs_nothing(authority: Authority, tmp_path: Path) -> None:
    signed = issue(authority, "broker", now=NOW, days=1)
    forged = issue(Authority(signed.certificate, signed.key), "forged", hosts=["localhost"], now=NOW, days=1)
    chain = Issued(forged.certificate + signed.certificate, forged.key)
    with pytest.raises(ssl.SSLCertVerificationError):
        Peers(tmp_path, chain, chain, authority, "localhost").shake_hands()


def test_an_expired_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    old = issue(authority, "broker", hosts=["localhost"], now=NOW - timedelta(days=3), days=2)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        Peers(tmp_path, old, old, authority, "localhost").shake_hands()


def test_a_certificate_is_valid_on_machines_whose_clocks_are_behind(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(issue(authority, "broker", now=NOW, days=1).certificate)
    assert NOW - certificate.not_valid_before_utc >= timedelta(hours=1)
    assert certificate.not_valid_after_utc == (NOW + timedelta(days=1)).replace(microsecond=0)


def test_a_subject_may_have_more_than_a_common_name(authority: Authority) -> None:
    issued = issue(authority, "CN=alice,OU=Tests,O=Example", now=NOW, days=1)
    der = ssl.PEM_cert_to_DER_cert(issued.certificate.decode())
    assert java_name(subject_of(der)) == "CN=alice,OU=Tests,O=Example"


@pytest.mark.parametrize("name", ["", "x" * 65, "=", "X=1"])
def test_a_name_that_no_certificate_can_have_is_refused(authority: Authority, name: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        issue(authority, name, now=NOW, days=1)


def test_a_repr_shows_no_key(authority: Authority) -> None:
    issued = issue(authority, "broker", now=NOW, days=1)
    assert "PRIVATE" in issued.pem.decode()
    assert "PRIVATE" not in f"{authority} {issued}"
