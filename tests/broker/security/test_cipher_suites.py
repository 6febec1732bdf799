"""Cipher suites by Java's names."""

from __future__ import annotations

import ssl

import pytest

from odradek.broker.security.cipher_suites import SUITES_OF_1_3, negotiable, openssl_name

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
    ],
)
def test_javas_names(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl


@pytest.mark.parametrize(
    "name",
    ["", "ALL", "ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_CCM_SHA256", "TLS_RSA_WITH_RSA", "TLS_RSA_WITH_NULL_SHA"],
)
def test_what_is_no_suite_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="unknown"):
        openssl_name(name)


def test_a_list_of_suites_may_disable_a_version() -> None:
    both, of_1_2 = ["TLSv1.3", "TLSv1.2"], "TLS_RSA_WITH_AES_128_GCM_SHA256"
    assert negotiable(both, None) == ([V12, V13], None)
    assert negotiable(both, [of_1_2, *SUITES_OF_1_3]) == ([V12, V13], "AES128-GCM-SHA256")
    assert negotiable(both, [of_1_2]) == ([V12], "AES128-GCM-SHA256")
    assert negotiable(both, [*SUITES_OF_1_3]) == ([V13], None)
    assert negotiable(["TLSv1.2"], [of_1_2, "TLS_AES_128_GCM_SHA256"]) == ([V12], "AES128-GCM-SHA256")
    with pytest.raises(ValueError, match=r"names no suite of TLSv1\.3"):
        negotiable(["TLSv1.3"], [of_1_2])
    with pytest.raises(ValueError, match="add TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256, or name none"):
        negotiable(both, [of_1_2, "TLS_AES_128_GCM_SHA256"])
