"""Keys and certificates as files, with the settings of a broker and of its clients that name them."""

from __future__ import annotations

from pathlib import Path

from tests.zookeeper.certificates import Authority, Signed

LISTENER = "SSL://127.0.0.1:0"
NAMES = ("localhost", "127.0.0.1")


class TlsFiles:
    """One authority, which has signed the broker and its clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority()
        self.broker = self.authority.sign("broker", *NAMES)
        self.trusted = self.write("authority.pem", self.authority.pem)
        self.key = self.write("broker.pem", self.broker.pem)

    def write(self, name: str, data: bytes) -> str:
        path = self.directory / name
        path.write_bytes(data)
        return str(path)

    def listener(self, client_auth: str = "none") -> dict[str, str]:
        """A broker with one listener."""
        return {"listeners": LISTENER, "security.inter.broker.protocol": "SSL", **self.stores(client_auth)}

    def stores(self, client_auth: str = "none") -> dict[str, str]:
        return {
            "ssl.keystore.location": self.key,
            "ssl.truststore.location": self.trusted,
            "ssl.client.auth": client_auth,
        }

    def client(self, key: Signed | None = None) -> dict[str, str]:
        """A client's properties, as Kafka's programs and the `odradek` commands read them. PEM, as of Kafka 2.7."""
        properties = {
            "security.protocol": "SSL",
            "ssl.truststore.location": self.trusted,
            "ssl.truststore.type": "PEM",
        }
        if key is not None:
            location = self.write(f"{key.certificate.serial_number}.pem", key.pem)
            properties |= {"ssl.keystore.location": location, "ssl.keystore.type": "PEM"}
        return properties

    def property_file(self, name: str, key: Signed | None = None) -> str:
        lines = "".join(f"{name}={text}\n" for name, text in self.client(key).items())
        return self.write(name, lines.encode())
