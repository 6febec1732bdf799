"""`meta.properties` of a log directory: the broker and cluster that own it (Kafka's MetaProperties; KIP-866 for version
1).

Version 0 has `broker.id`; version 1 has `node.id` and the directory's own id. Both may have `cluster.id`. Both versions
are read; version 0 is written, as ZooKeeper-based brokers do. An existing file that matches this broker is not
rewritten.
"""

from collections.abc import Mapping

from odradek.storage.files import Files

NAME = "meta.properties"
_ID_KEYS = {"0": "broker.id", "1": "node.id"}


class MetaPropertiesError(Exception):
    """The directory belongs to another broker or cluster, or its meta.properties is not understood."""


class MetaProperties:
    """`broker_id` and `cluster_id` are None if the file does not name them."""

    __slots__ = ("broker_id", "cluster_id", "version")

    def __init__(self, version: int, broker_id: int | None, cluster_id: str | None) -> None:
        self.version = version
        self.broker_id = broker_id
        self.cluster_id = cluster_id


def read_meta_properties(files: Files, directory: str) -> MetaProperties | None:
    """Returns None if the file does not exist. Raises MetaPropertiesError."""
    path = f"{directory}/{NAME}"
    if not files.exists(path):
        return None
    properties = parse_properties(files.read_file(path).decode("utf-8", "replace"))
    version = properties.get("version")
    if version not in _ID_KEYS:
        raise MetaPropertiesError(f"{path} has version {version}; known versions are 0 and 1")
    text = properties.get(_ID_KEYS[version])
    if text is not None and not text.isdigit():
        raise MetaPropertiesError(f"{path}: {_ID_KEYS[version]} must be a number, not {text!r}")
    return MetaProperties(int(version), None if text is None else int(text), properties.get("cluster.id"))


def check_meta_properties(directory: str, known: MetaProperties, broker_id: int, cluster_id: str) -> None:
    """Raises MetaPropertiesError if the directory belongs to another broker or cluster."""
    if known.cluster_id is not None and known.cluster_id != cluster_id:
        raise MetaPropertiesError(
            f"{directory} belongs to cluster {known.cluster_id}, but this broker is in {cluster_id}; it is left alone"
        )
    if known.broker_id is not None and known.broker_id != broker_id:
        raise MetaPropertiesError(
            f"{directory} belongs to broker {known.broker_id}, but this one is {broker_id}; it is left alone"
        )


def write_meta_properties(files: Files, directory: str, broker_id: int, cluster_id: str, *, sync: bool = True) -> None:
    """Writes version 0."""
    text = f"#\nbroker.id={broker_id}\nversion=0\ncluster.id={cluster_id}\n"
    files.replace_file(f"{directory}/{NAME}", text.encode(), sync=sync)


def parse_properties(text: str) -> Mapping[str, str]:
    """Parses the subset of Java's properties format that these files use: `name=value` lines and `#` comments."""
    properties = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            name, _, value = stripped.partition("=")
            properties[name.strip()] = value.strip()
    return properties
