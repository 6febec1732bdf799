"""A location of tables and state: a directory, or a prefix in an object store, with one interface.

Readers see a complete file or none, in a store and in a directory. `create` creates a file unless it exists; if several
jobs try at the same time, one succeeds. No file is renamed or locked.

Options are those of delta-rs and object_store: `aws_endpoint`, `aws_region`, `azure_storage_account_key`, `allow_http`.
The rest comes from the environment (AWS_ACCESS_KEY_ID and so on). retries.py configures the retries of requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.state.retries import DEFAULTS, retry_config, with_defaults

SCHEMES = {"s3": "aws_", "s3a": "aws_", "gs": "google_", "abfs": "azure_", "abfss": "azure_", "az": "azure_"}
"""The supported stores, and the prefix of their options."""
CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "timeout",
        "proxy_url",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "user_agent",
        "http1_only",
        "http2_only",
    }
)
"""Options of the connection, which object_store separates from those of the store."""
_DELTA_ALONE = ("aws_s3_allow_unsafe_rename", "aws_s3_locking_provider")


@dataclass(frozen=True, slots=True)
class Location:
    """`url`: an absolute path, or a URL such as s3://BUCKET/PREFIX, without a trailing slash."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __truediv__(self, name: str) -> Location:
        """The location `name` below this one."""
        return Location(f"{self.url}/{name}", self.options)

    def __str__(self) -> str:
        return self.url

    def __fspath__(self) -> str:
        return self.url

    @property
    def is_local(self) -> bool:
        """Whether this is a directory of this machine."""
        return "://" not in self.url

    @property
    def path(self) -> Path:
        """The directory. Local locations only."""
        assert self.is_local
        return Path(self.url)

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file. None if it does not exist."""
        import obstore

        if not self._may_have_files():
            return None
        try:
            return bytes(obstore.get(self._store(), name).bytes())
        except FileNotFoundError:
            return None

    def create(self, name: str, content: bytes) -> bool:
        """Creates a file. False if it exists with another content.

        A store may write the file and lose its response; the client's retry then finds the client's own file."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            obstore.put(self._store(), name, content, mode="create")
        except AlreadyExistsError:
            return self.read(name) == content
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Writes a file. Readers see the complete old content or the complete new one."""
        import obstore

        obstore.put(self._store(), name, content)

    def version(self, name: str) -> str:
        """Returns the version of a file's content (its ETag). "" if the file does not exist."""
        import obstore

        try:
            return obstore.head(self._store(), name)["e_tag"] or ""
        except FileNotFoundError:
            return ""

    def swap(self, name: str, content: bytes, version: str) -> str:
        """Writes a file if it still has this version. Returns its new version, or "" if the file has changed. Object
        stores only.
        """
        import obstore
        from obstore.exceptions import PreconditionError

        try:
            return obstore.put(self._store(), name, content, mode={"e_tag": version})["e_tag"] or ""
        except (PreconditionError, FileNotFoundError):
            return self.version(name) if self.read(name) == content else ""  # A lost response, as in `create`.

    def put_file(self, name: str, file: Path) -> None:
        """Copies a local file to this location."""
        import obstore

        obstore.put(self._store(), name, file)

    def remove(self, *names: str) -> None:
        """Removes files. Missing files are ignored."""
        import obstore

        if not self._may_have_files():
            return
        for name in names:
            try:
                obstore.delete(self._store(), name)
            except FileNotFoundError:
                continue

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Returns the sizes in bytes of the files below `prefix`, by their paths relative to this location. Empty if
        `prefix` does not exist.
        """
        import obstore

        if not (self / prefix if prefix else self)._may_have_files():
            return {}
        found: dict[str, int] = {}
        for part in obstore.list(self._store(), prefix or None):
            found |= {one["path"]: one["size"] for one in part}
        return found

    def modified(self) -> dict[str, datetime]:
        """Returns when the files below this location were written, by their paths relative to it."""
        import obstore

        if not self._may_have_files():
            return {}
        return {one["path"]: one["last_modified"] for part in obstore.list(self._store()) for one in part}

    def names(self, beginning: str = "") -> list[str]:
        """Returns the files directly in this location whose names start with `beginning`."""
        import obstore

        if not self._may_have_files():
            return []
        found = obstore.list_with_delimiter(self._store())["objects"]
        return sorted(one["path"] for one in found if one["path"].startswith(beginning))

    def is_there(self) -> bool:
        """Whether the directory exists, or any file below the prefix."""
        import obstore

        if self.is_local:
            return self.path.exists()
        return any(part for part in obstore.list(self._store(), chunk_size=1))

    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading in parts. Raises FileNotFoundError."""
        import obstore

        return cast(BinaryIO, _Reader(obstore.open_reader(self._store(), name)))

    def _may_have_files(self) -> bool:
        """Whether files may exist here. obstore would create a missing directory when it reads it."""
        return not self.is_local or self.path.is_dir()

    def _store(self) -> Any:
        return _opened(self.url, tuple(sorted(self.options.items())))


@lru_cache(maxsize=64)
def _opened(url: str, options: tuple[tuple[str, str], ...]) -> Any:
    """Opens the store. Cached, with its connections."""
    from obstore.exceptions import BaseError
    from obstore.store import LocalStore, from_url

    if "://" not in url:
        return LocalStore(url, mkdir=True)
    config, client = _split(url, dict(options))
    retries = retry_config(dict(options))
    try:
        return from_url(url, config=config, client_options=client, retry_config=retries)  # type: ignore[call-overload]
    except (BaseError, ValueError) as error:
        message = f"{error}".strip().partition("\n")[0]
        raise PipelineError(f"{url} cannot be opened: {message}", "check [store]") from error


class _Reader:
    """obstore's reader with the file methods that pyarrow calls."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read(self, size: int = -1) -> bytes:
        return bytes(self._reader.read() if size < 0 else self._reader.read(size))

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._reader.close()


def location_of(setting: str, text: str, options: Mapping[str, str]) -> Location:
    """Returns the location that a setting names. Raises PipelineError if tables cannot be stored there."""
    if not text.strip():
        raise PipelineError(f"{setting} is empty", "set a directory; '.' is the current one")
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text):
        return Location(_fit(setting, str(Path(text).expanduser().absolute())))
    parts = urlsplit(text)
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise PipelineError(
            f"{setting} {text!r} is neither a path nor in a supported store",
            f"set a directory, or one of {', '.join(f'{one}://...' for one in SCHEMES)}",
        )
    _split(text, options)
    retry_config(options)
    return Location(_fit(setting, text.rstrip("/")), with_defaults(options))


UNFIT = re.compile(r"[\x00-\x1f\\\[\]{}*?^|]|%[0-9A-Fa-f]{2}")
"""Characters that Spark reads as a path pattern, or that deltalake misreads or rejects."""


def _fit(setting: str, text: str) -> str:
    if found := UNFIT.search(text):
        raise PipelineError(
            f"{setting} {text!r} contains {found[0]!r}, which readers of tables do not take literally",
            "set another directory",
        )
    return text


def _split(url: str, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Splits options into those of the store and those of the connection, for obstore. Raises PipelineError."""
    prefix = SCHEMES[urlsplit(url).scheme]
    config, client = {}, {}
    for name, value in options.items():
        own = name.lower().removeprefix(prefix)
        if own in CLIENT_OPTIONS:
            client[own] = value
        elif own.startswith(tuple(set(SCHEMES.values()))):
            raise PipelineError(f"[store] {name} is not an option of the store of {url}", "remove it")
        elif name.lower() not in (*_DELTA_ALONE, *DEFAULTS):
            config[name.lower()] = value
    return config, client
