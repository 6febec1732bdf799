"""TLS versions and cipher suites by Java's names, for OpenSSL.

    (A) Versions are TLSv1.2 and TLSv1.3. Older ones are refused.
    (B) Of the suites of TLS 1.3, Python's `ssl` cannot disable any. A list that names some of them but not all is an
        error where TLSv1.3 is enabled; a list that names none of them disables TLSv1.3, as in Java.
    (C) A list without a suite of TLS 1.2 disables TLSv1.2 likewise. If no version remains, that is an error.
    (D) A name that OpenSSL does not have, or that encrypts with fewer than LEAST_BITS, is an error.

An error is a ValueError whose text continues a sentence that names the setting. Source: RFC 5246, RFC 8446; OpenSSL's
`ciphers`.
"""

from __future__ import annotations

import contextlib
import re
import ssl
from collections.abc import Sequence
from typing import NamedTuple

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
SUITES_OF_1_3 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
LEAST_BITS = 128

_SUITE = re.compile(r"(?:TLS|SSL)_(?P<exchange>\w+?)_WITH_(?P<cipher>\w+?)(?:_(?P<hash>SHA(?:256|384)?))?")


class Negotiable(NamedTuple):
    """What a connection may use: `versions` is not empty; `ciphers` is OpenSSL's list, None for its default."""

    versions: list[ssl.TLSVersion]
    ciphers: str | None


def negotiable(versions: Sequence[str], suites: Sequence[str] | None) -> Negotiable:
    """Returns what these versions and suites allow; `suites` is None for all. Raises ValueError."""
    unknown = [version for version in versions if version not in VERSIONS]
    if unknown or not versions:
        raise ValueError(f"names {', '.join(unknown) or 'no version'}, not only {' and '.join(VERSIONS)}")
    enabled = set(versions)
    if suites is None:
        return Negotiable(_numbers(enabled), None)
    of_1_3 = SUITES_OF_1_3.intersection(suites)
    of_1_2 = [openssl_name(suite) for suite in suites if suite not in SUITES_OF_1_3]
    if "TLSv1.3" in enabled and of_1_3 and of_1_3 != SUITES_OF_1_3:
        missing = ", ".join(sorted(SUITES_OF_1_3 - of_1_3))
        raise ValueError(f"names only some suites of TLSv1.3, which cannot be restricted: add {missing}, or name none")
    if not of_1_3:
        enabled.discard("TLSv1.3")
    if not of_1_2:
        enabled.discard("TLSv1.2")
    if not enabled:
        raise ValueError(f"names no suite of {' or '.join(versions)}")
    return Negotiable(_numbers(enabled), ":".join(of_1_2) or None)


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2. Raises ValueError if OpenSSL does not have it."""
    match = _SUITE.fullmatch(suite)
    if match is not None:
        name = _converted(match["exchange"], match["cipher"], match["hash"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with contextlib.suppress(ssl.SSLError):
            context.set_ciphers(name)
            if any(
                cipher["name"] == name and cipher["strength_bits"] >= LEAST_BITS for cipher in context.get_ciphers()
            ):
                return name
    raise ValueError(f"names the cipher suite {suite}, which is unknown or weak")


def _converted(exchange: str, cipher: str, digest: str | None) -> str:
    """RSA as the key exchange is not named, nor is CBC; the hash of ChaCha20 and CCM is fixed."""
    parts = [] if exchange == "RSA" else exchange.split("_")
    parts.append(re.sub("AES_(128|256)", r"AES\1", cipher).removesuffix("_CBC").replace("_", "-"))
    if digest is not None and not cipher.startswith("CHACHA20"):
        parts.append(digest)
    return "-".join(parts)


def _numbers(versions: set[str]) -> list[ssl.TLSVersion]:
    return sorted(VERSIONS[version] for version in versions)
