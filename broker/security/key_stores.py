"""Key stores and trust stores, as Java's programs name them in their settings, for Python's `ssl`.

    (A) What a store is, its content says, not its name: PEM, or PKCS12, which `keytool` also writes into `.jks` files
        since Java 9. A type that is set must fit: PEM for PEM, PKCS12 or JKS for PKCS12.
    (B) The older format of `.jks` files, which only Java reads, is refused with the command that converts it.
    (C) A key is never written to a disk: `ssl` reads it from a file in memory, which vanishes when it was read. An
        encrypted key without a password is an error; OpenSSL never asks the terminal.
    (D) An error is a StoreError whose text continues a sentence that names the file or the setting. It shows no
        password.
    (E) PEM in a setting may stand on one line, with blanks or nothing where its lines end: OpenSSL gets it in lines.

PKCS12 needs the package `cryptography`.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
TYPES = {PEM: (PEM,), PKCS12: (PKCS12, JKS)}
"""What the type of a store may be, by what its content is."""
MAGIC = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
LINE = 64
_BLOCK = re.compile(r"-----BEGIN ([^-]+)-----([^-:]*)-----END \1-----")
"""A block of PEM without headers. Blocks with headers have lines already."""
_CERTIFICATE = re.compile(rb"-----BEGIN (?:X509 )?CERTIFICATE-----.*?-----END (?:X509 )?CERTIFICATE-----", re.DOTALL)


class StoreError(ValueError):
    """The store cannot be used (D)."""


class Store(NamedTuple):
    """A store's content. `path` is for messages, `type` as in the settings or None. `key_password` is that of a key in
    PEM, or None for `password`.
    """

    path: str
    data: bytes
    type: str | None = None
    password: str | None = None
    key_password: str | None = None

    def __repr__(self) -> str:
        return f"Store({self.path})"


def store_in_setting(name: str, *texts: str, key_password: str | None = None) -> Store:
    """Returns the store that settings hold as PEM (E). `name` is for messages."""
    pem = "\n".join(_BLOCK.sub(_in_lines, text) for text in texts)
    return Store(name, pem.encode(), PEM, key_password=key_password)


def _in_lines(block: re.Match[str]) -> str:
    content = "".join(block[2].split())
    lines = [content[start : start + LINE] for start in range(0, len(content), LINE)]
    return "\n".join(("", f"-----BEGIN {block[1]}-----", *lines, f"-----END {block[1]}-----", ""))


def load_key(context: ssl.SSLContext, store: Store) -> list[bytes]:
    """Gives the context the store's private key and its certificates. Returns these in DER, the key's own first. Raises
    StoreError.
    """
    if _kind_of(store) == PEM:
        _load_chain(context, store.data, store.key_password or store.password)
        return list(map(_in_der, _certificates(store.data)))  # OpenSSL has checked that the first is the key's
    if store.key_password not in (None, store.password):
        raise StoreError("is PKCS12, whose key has the password of the store, but another one is set for the key")
    found = _opened(store)
    if found.key is None or found.cert is None:
        raise StoreError("contains no private key with a certificate")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificates = [found.cert, *found.additional_certs]
    chain = [each.certificate.public_bytes(Encoding.PEM) for each in certificates]
    _load_chain(context, b"".join((key, *chain)), None)
    return [each.certificate.public_bytes(Encoding.DER) for each in certificates]


def _certificates(pem: bytes) -> list[bytes]:
    return [match[0] for match in _CERTIFICATE.finditer(pem)]


def _in_der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode("ascii").replace("X509 CERTIFICATE", "CERTIFICATE"))


def load_trusted(context: ssl.SSLContext, store: Store) -> list[bytes]:
    """Lets the context trust the store's certificates. Returns these in DER. Raises StoreError."""
    if _kind_of(store) == PEM:
        certificates = _certificates(store.data)
    else:
        from cryptography.hazmat.primitives.serialization import Encoding

        found = _opened(store)
        both = [*([] if found.cert is None else [found.cert]), *found.additional_certs]
        certificates = [each.certificate.public_bytes(Encoding.PEM) for each in both]
    if not certificates:
        raise StoreError("contains no certificate")
    try:
        context.load_verify_locations(cadata=b"\n".join(certificates).decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise StoreError("contains a certificate that cannot be read") from error
    return list(map(_in_der, certificates))


def _kind_of(store: Store) -> str:
    """PEM or PKCS12 (A, B)."""
    java = MAGIC.get(store.data[:4])
    if java is not None:
        target = os.path.splitext(store.path)[0] + ".p12"
        raise StoreError(
            f"is a key store of type {java}, which only Java reads; convert it: "
            f"keytool -importkeystore -srckeystore {store.path} -destkeystore {target} -deststoretype PKCS12"
        )
    if b"-----BEGIN " in store.data:
        kind = PEM
    elif store.data[:1] == b"\x30":
        kind = PKCS12
    else:
        raise StoreError("is neither PEM nor PKCS12")
    if store.type and store.type.upper() not in TYPES[kind]:
        raise StoreError(f"is {kind}, but its type is set to {store.type}")
    return kind


def _opened(store: Store) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ModuleNotFoundError as error:
        raise StoreError("is PKCS12, which needs a package that is missing: pip install 'odradek[security]'") from error
    try:
        return load_pkcs12(store.data, None if store.password is None else store.password.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise StoreError("cannot be opened: the password is wrong or missing, or the file is damaged") from error


def _load_chain(context: ssl.SSLContext, pem: bytes, password: str | None) -> None:
    asked = False

    def tell() -> str:
        nonlocal asked
        asked = True
        return password or ""

    with _in_memory(pem) as path:
        try:
            context.load_cert_chain(path, password=tell)
        except (ssl.SSLError, ValueError) as error:
            if asked and not password:
                raise StoreError("has an encrypted key, but no password is set") from error
            if asked:
                raise StoreError("has an encrypted key, and the password is wrong") from error
            raise StoreError("contains no private key with its certificate") from error


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """Yields the path of a file with these bytes that is on no disk (C)."""
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
