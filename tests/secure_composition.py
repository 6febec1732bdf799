"""docker-compose.secure.yml with secrets of a test, and its clients."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.zookeeper.certificates import PASSWORD, Authority

REPOSITORY = Path(__file__).parents[1]
NAME = "docker-compose.secure.yml"
USER_PASSWORD = "Marker-of-admin"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def composed_in(directory: Path) -> Path:
    """Copies the file and its configuration, and makes the secrets. Returns the copy."""
    (directory / "config").mkdir(parents=True)
    (directory / "secrets").mkdir()
    for name in (NAME, "config/server.secure.properties"):
        shutil.copy(REPOSITORY / name, directory / name)
    authority = Authority()
    secrets = {
        "broker.p12": authority.sign("broker", "odradek", "localhost", "127.0.0.1").pkcs12(),
        "password": f"{PASSWORD}\n".encode(),
        "scram_credentials": f"SCRAM-SHA-512=[name=admin,password={USER_PASSWORD}]\n".encode(),
        "ca.pem": authority.pem,
        "admin": f"password={USER_PASSWORD}\n".encode(),
    }
    for name, data in secrets.items():
        (directory / "secrets" / name).write_bytes(data)
    (directory / "admin.properties").write_text(client_properties(directory / "secrets"))
    return directory / NAME


def client_properties(secrets: Path) -> str:
    jaas = f'{SCRAM_MODULE} required username="admin" password="${{file:{secrets}/admin:password}}";'
    lines = [
        "security.protocol=SASL_SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={secrets}/ca.pem",
        "sasl.mechanism=SCRAM-SHA-512",
        f"sasl.jaas.config={jaas}",
        "config.providers=file",
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider",
    ]
    return "".join(f"{line}\n" for line in lines)
