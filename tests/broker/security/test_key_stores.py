"""Stores in settings. Stores in files: metadata_store/test_zookeeper_tls.py, test_tls_listeners.py."""

from __future__ import annotations

import os
import ssl

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from odradek.broker.security.key_stores import Store, StoreError, load_key, load_trusted, store_in_setting
from tests.zookeeper.certificates import PASSWORD, Authority

AUTHORITY = Authority()
KEY = AUTHORITY.sign("broker", "localhost")


def context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def forms(pem: str) -> list[str]:
    return [pem, pem.replace("\n", " "), pem.replace("\n", ""), pem.replace("\n", "\r\n"), pem.replace("\n", "\n  ")]


def test_pem_in_settings_may_have_other_lines_or_none() -> None:
    for key, chain in zip(forms(KEY.key_pem.decode()), forms(KEY.chain_pem.decode()), strict=True):
        load_key(context(), store_in_setting("ssl.keystore.key", key, chain))
        trusting = context()
        load_trusted(trusting, store_in_setting("ssl.truststore.certificates", chain))
        assert trusting.cert_store_stats()["x509"] == 2


def test_an_encrypted_key_with_headers_keeps_its_lines() -> None:
    encryption = BestAvailableEncryption(PASSWORD.encode())
    key = KEY.key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, encryption).decode()
    assert "DEK-Info" in key
    load_key(context(), store_in_setting("k", key, KEY.chain_pem.decode(), key_password=PASSWORD))
    with pytest.raises(StoreError, match="no password is set"):
        load_key(context(), store_in_setting("k", key, KEY.chain_pem.decode()))


def test_a_key_of_another_certificate_is_refused() -> None:
    other = AUTHORITY.sign("other").key_pem.decode()
    with pytest.raises(StoreError, match="no private key with its certificate"):
        load_key(context(), store_in_setting("k", other, KEY.chain_pem.decode()))


def test_the_password_of_a_key_in_pkcs12_must_be_that_of_the_store() -> None:
    store = Store("key.p12", KEY.pkcs12(), password=PASSWORD)
    load_key(context(), store._replace(key_password=PASSWORD))
    with pytest.raises(StoreError, match="another one is set for the key"):
        load_key(context(), store._replace(key_password="another"))


def test_a_store_shows_no_secret() -> None:
    store = store_in_setting("ssl.keystore.key", KEY.key_pem.decode(), key_password=PASSWORD)
    assert repr(store) == "Store(ssl.keystore.key)"


def test_a_key_is_in_no_file_afterwards() -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        load_key(context(), Store("key.p12", KEY.pkcs12(), password=PASSWORD))
    assert set(os.listdir("/proc/self/fd")) <= before
