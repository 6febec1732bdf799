"""Certificates that expire are logged: at the start, when they are replaced, and once a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography.hazmat.primitives.serialization import Encoding

from odradek.broker.network.certificates import Certificates
from odradek.broker.network.expiring_certificates import DAY_MS, WARN_DAYS
from odradek.broker.security.authentication_counts import AuthenticationCounts
from odradek.broker.security.certificate_authority import Validity
from odradek.broker.security.certificate_fields import dated
from odradek.broker.settings.config import BrokerConfig
from odradek.storage.files import OsFiles
from odradek.testing import in_process_broker
from tests.broker.metrics.test_metrics import ask, samples_of, value
from tests.patience import until
from tests.tls_files import NAMES, TlsFiles
from tests.zookeeper.certificates import PASSWORD

NOW = datetime.now(UTC).replace(microsecond=0)
NOW_MS = int(NOW.timestamp() * 1000)
BESIDE_PLAINTEXT = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
    "security.inter.broker.protocol": "PLAINTEXT",
}
EVENTS = ("certificate expires soon", "certificate has expired", "certificate is not valid yet")


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def valid(first: float, last: float) -> Validity:
    """From and until so many days from now."""
    return Validity(NOW + timedelta(first), NOW + timedelta(last))


def certificates_of(settings: dict[str, str]) -> Certificates:
    found = Certificates(BrokerConfig.from_mapping(settings), OsFiles(), {"SSL": AuthenticationCounts()})
    found.load()
    return found


def warned(certificates: Certificates, days: float) -> list[Any]:
    """Returns what is logged so many days from now."""
    with structlog.testing.capture_logs() as logs:
        certificates.warn_of_expiry(NOW_MS + int(days * DAY_MS))
    return [(entry["event"], entry["store"], entry["subject"]) for entry in logs]


@pytest.mark.parametrize("year", [1970, 2049, 2050, 2120])
def test_the_dates_of_a_certificate_are_read(files: TlsFiles, year: int) -> None:
    last = datetime(year, 3, 1, 12, 30, 59, tzinfo=UTC)
    signed = files.authority.sign("broker", validity=Validity(datetime(1969, 1, 1, tzinfo=UTC), last))
    found = dated(signed.certificate.public_bytes(Encoding.DER))
    assert found.subject == "CN=broker"
    assert found.not_after_ms == int(last.timestamp() * 1000)
    assert found.not_before_ms == int(datetime(1969, 1, 1, tzinfo=UTC).timestamp() * 1000)


def test_a_certificate_is_warned_of_a_month_before_it_expires_once_a_day_and_after(files: TlsFiles) -> None:
    files.key = files.write("broker.pem", files.authority.sign("broker", *NAMES, validity=valid(-1, 100)).pem)
    certificates = certificates_of(files.listener())
    assert warned(certificates, 0) == []
    first = 100 - WARN_DAYS
    assert warned(certificates, first - 0.01) == []
    for day in (first, first + 1, 99):
        assert warned(certificates, day) == [("certificate expires soon", "keystore", "CN=broker")]
        assert warned(certificates, day + 0.5) == []
    for day in (101, 102, 200):
        assert warned(certificates, day) == [("certificate has expired", "keystore", "CN=broker")]
        assert warned(certificates, day + 0.5) == []


def test_one_that_is_replaced_is_warned_of_at_once(files: TlsFiles) -> None:
    files.key = files.write("broker.pem", files.authority.sign("broker", *NAMES, validity=valid(-2, -1)).pem)
    certificates = certificates_of(files.listener() | BESIDE_PLAINTEXT)
    assert warned(certificates, 0) == [("certificate has expired", "keystore", "CN=broker")]
    for validity, events in ((valid(-1, 10), [EVENTS[0]]), (valid(1, 100), [EVENTS[2]]), (valid(-1, 100), [])):
        files.write("broker.pem", files.authority.sign("broker", *NAMES, validity=validity).pem)
        certificates.reload()
        assert [event for event, *_ in warned(certificates, 0.001)] == events
    assert warned(certificates, 1) == []


def settings_of(files: TlsFiles, form: str) -> dict[str, str]:
    """Settings of a listener whose certificate expires in ten days. Its authority lives for ten years."""
    signed = files.authority.sign("broker", *NAMES, validity=valid(-1, 10))
    settings = {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL"}
    if form == "settings":
        texts = (signed.key_pem.decode(), signed.chain_pem.decode(), files.authority.pem.decode())
        names = ("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates")
        types = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
        return settings | types | dict(zip(names, texts, strict=True))
    data = (signed.pem, files.authority.pem) if form == "pem" else (signed.pkcs12(), files.authority.pkcs12())
    for store, content in zip(("keystore", "truststore"), data, strict=True):
        settings[f"ssl.{store}.location"] = files.write(f"{store}.{form}", content)
        if form == "p12":
            settings |= {f"ssl.{store}.password": PASSWORD, f"ssl.{store}.type": "PKCS12"}
    return settings


@pytest.mark.parametrize("form", ["pem", "p12", "settings"])
def test_certificates_of_all_kinds_of_stores_are_looked_at(files: TlsFiles, form: str) -> None:
    certificates = certificates_of(settings_of(files, form))
    assert warned(certificates, 0) == [("certificate expires soon", "keystore", "CN=broker")]
    assert {each.store for each in certificates.in_use()} == {"keystore", "truststore"}
    later = warned(certificates, 4000)
    assert ("certificate has expired", "truststore", "CN=Test Authority") in later


async def test_a_broker_says_that_its_certificate_has_expired_and_the_metrics_when(files: TlsFiles) -> None:
    files.key = files.write("broker.pem", files.authority.sign("broker", *NAMES, validity=valid(-2, -1)).pem)
    settings = files.listener() | BESIDE_PLAINTEXT | {"odradek.metrics.port": "0"}
    with structlog.testing.capture_logs() as logs:

        def events() -> list[tuple[str, str]]:
            return [(entry["event"], entry["listener"]) for entry in logs if entry["event"] in EVENTS]

        async with in_process_broker(settings) as broker:
            assert events() == [("certificate has expired", "SSL")]
            files.write("broker.pem", files.authority.sign("broker", *NAMES, validity=valid(-1, 10)).pem)
            await until(lambda: len(events()) == 2)
            assert events()[1] == ("certificate expires soon", "SSL")
            assert broker.metrics_server is not None
            samples = samples_of((await ask(broker.metrics_server.port))[2])
            found = value(samples, "odradek_certificate_not_after_seconds", listener="SSL", store="keystore")
            assert found == (NOW_MS + 10 * DAY_MS) // 1000
