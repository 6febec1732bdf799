"""`odradek certificates`: an authority and certificates for development, as files.

    ca.pem, ca.key          the authority: whom clients and brokers trust
    broker.pem              the broker's key and certificates
    NAME.pem                those of a client
    broker.properties       the lines for server.properties
    client.properties       the settings of a client without a certificate
    NAME.properties         those of a client with one
    *.p12, password         with --pkcs12: the same stores for programs that do not read PEM, and their password

Files with keys can be read by their owner only. No file is overwritten unless --force is given.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.cli.errors import CommandError
from odradek.cli.extras import require_extra
from odradek.cli.options import command
from odradek.storage.files import OsFiles

if TYPE_CHECKING:
    from odradek.broker.security.certificate_authority import Authority, Signed, Validity

DESCRIPTION = """Make an authority and certificates for development: for the broker, and for clients. The authority's
key is not encrypted, and the certificates cannot be revoked: not for production."""
EXAMPLES = """  odradek certificates
  odradek certificates --hosts broker1,broker2,10.0.0.7 --clients alice,bob --days 30
  odradek certificates --reuse-authority --clients carol    one more client
  odradek certificates --reuse-authority --force            a new certificate of the broker
"""
AUTHORITY, AUTHORITY_KEY, PASSWORD = "ca.pem", "ca.key", "password"
BROKER, CLIENT = "broker", "client"
RESERVED = {"ca", BROKER, CLIENT, PASSWORD}
PRIVATE, PUBLIC = 0o600, 0o644
PASSWORD_BYTES = 24
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9*:]([A-Za-z0-9.:-]*[A-Za-z0-9])?")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `certificates` to the commands."""
    parser = command(
        subparsers,
        "certificates",
        "make certificates for development",
        make,
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    parser.add_argument("--to", type=Path, default=Path("certificates"), metavar="DIR", help="default ./certificates")
    parser.add_argument(
        "--hosts",
        default="localhost,127.0.0.1",
        metavar="HOST,HOST,...",
        help="host names and IP addresses of the broker (default localhost,127.0.0.1)",
    )
    parser.add_argument("--clients", default="", metavar="NAME,NAME,...", help="clients that get a certificate")
    parser.add_argument("--days", type=int, default=365, metavar="N", help="how long they are valid (default 365)")
    parser.add_argument("--pkcs12", action="store_true", help="also write the stores as PKCS12")
    parser.add_argument("--reuse-authority", action="store_true", help="sign with the authority that DIR has")
    parser.add_argument("--force", action="store_true", help="overwrite files")


def make(arguments: argparse.Namespace) -> None:
    """Writes the files, and prints the settings that name them."""
    require_extra("security")
    from odradek.broker.security.certificate_authority import Validity

    hosts, clients, directory = _hosts(arguments.hosts), _clients(arguments.clients), arguments.to.absolute()
    if arguments.days < 1:
        raise CommandError("--days must be at least 1")
    validity = Validity.days(datetime.datetime.now(datetime.UTC), arguments.days)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _authority(directory, validity, arguments.reuse_authority)
    signed = {name: _signed(authority, name, [], validity) for name in clients}
    if arguments.force or not (arguments.reuse_authority and (directory / f"{BROKER}.pem").exists()):
        signed[BROKER] = _signed(authority, BROKER, hosts, validity)
    files = {} if arguments.reuse_authority else {AUTHORITY_KEY: authority.key_pem, AUTHORITY: authority.pem}
    files |= {f"{name}.pem": each.pem for name, each in signed.items()}
    if arguments.pkcs12:
        files |= _pkcs12(authority, signed)
    properties = _properties(directory, clients)
    files |= {f"{name}.properties": text.encode() for name, text in properties.items()}
    _write(directory, files, arguments.force)
    _print(directory, files, properties)


def _hosts(text: str) -> list[str]:
    hosts = text.split(",")
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise CommandError(f"--hosts: '{host}' is neither a host name nor an IP address")
    return hosts


def _clients(text: str) -> list[str]:
    names = text.split(",") if text else []
    for name in names:
        if not _NAME.fullmatch(name) or name in RESERVED:
            raise CommandError(
                f"--clients: '{name}' cannot be the name of a client: letters, digits, dots, dashes and underscores, "
                f"and none of {', '.join(sorted(RESERVED))}"
            )
    return names


def _authority(directory: Path, validity: Validity, reuses: bool) -> Authority:
    from odradek.broker.security.certificate_authority import Authority

    if not reuses:
        return Authority.create("Odradek Development Authority", validity)
    try:
        return Authority.load((directory / AUTHORITY_KEY).read_bytes(), (directory / AUTHORITY).read_bytes())
    except FileNotFoundError as error:
        raise CommandError(f"--reuse-authority: there is no file {error.filename}") from error
    except ValueError as error:
        raise CommandError(f"{directory / AUTHORITY_KEY} and {AUTHORITY} are not an authority: {error}") from error


def _signed(authority: Authority, name: str, hosts: list[str], validity: Validity) -> Signed:
    try:
        return authority.sign(name, *hosts, validity=validity)
    except ValueError as error:
        raise CommandError(f"{name}: {error}") from error


def _pkcs12(authority: Authority, signed: dict[str, Signed]) -> dict[str, bytes]:
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    stores = {f"{name}.p12": each.pkcs12(password) for name, each in signed.items()}
    return {"ca.p12": authority.pkcs12(password), **stores, PASSWORD: f"{password}\n".encode()}


def _properties(directory: Path, clients: list[str]) -> dict[str, str]:
    trust = f"ssl.truststore.type=PEM\nssl.truststore.location={directory / AUTHORITY}\n"

    def key(name: str) -> str:
        return f"ssl.keystore.type=PEM\nssl.keystore.location={directory / f'{name}.pem'}\n"

    client = f"security.protocol=SSL\n{trust}"
    return {BROKER: key(BROKER) + trust, CLIENT: client, **{name: client + key(name) for name in clients}}


def _write(directory: Path, files: dict[str, bytes], force: bool) -> None:
    there = [name for name, data in files.items() if _is_another(directory / name, data)]
    if there and not force:
        raise CommandError(
            f"{directory} has {', '.join(there)} already: --force overwrites files, "
            "and --reuse-authority signs with the authority that is there"
        )
    disk = OsFiles()
    for name, data in files.items():
        path = directory / name
        disk.replace_file(str(path), data)
        path.chmod(PUBLIC if name == AUTHORITY else PRIVATE)


def _is_another(path: Path, data: bytes) -> bool:
    """Whether there is a file with another content."""
    return os.path.lexists(path) and path.read_bytes() != data


def _print(directory: Path, files: dict[str, bytes], properties: dict[str, str]) -> None:
    for name, text in properties.items():
        print(f"# {directory / name}.properties\n{text}")
    if PASSWORD in files:
        stores = [name for name in files if name.endswith(".p12")]
        print(f"# the password of {', '.join(stores)} is in {directory / PASSWORD}")
