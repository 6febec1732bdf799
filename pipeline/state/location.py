"""A place for tables and state: a directory, or a prefix of an object store. The same calls serve both.

Readers see a file whole or not at all, in the store as in a directory. `create` makes a file that is not there yet; of
several jobs that try at one moment, one wins. Nothing is renamed, and nothing is locked.

Options are those of delta-rs and object_store: `aws_endpoint`, `aws_region`, `azure_storage_account_key`, `allow_http`.
The environment says the rest (AWS_ACCESS_KEY_ID and its like). How often requests are tried again is in retries.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.state.retries import DEFAULTS, retry_config, with_defaults

SCHEMES = {"s3": "aws_", "s3a": "aws_", "gs": "google_", "abfs": "azure_", "abfss": "azure_", "az": "azure_"}
"""The stores that there are, and how their options begin."""
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
"""Options of the connection, which object_store keeps apart from those of the store."""
_DELTA_ALONE = ("aws_s3_allow_unsafe_rename", "aws_s3_locking_provider")


@dataclass(frozen=True, slots=True)
class Location:
    """`url`: an absolute path, or s3://BUCKET/PREFIX and its like, without a slash at its end."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __truediv__(self, name: str) -> Location:
        """What is below it."""
        return Location(f"{self.url}/{name}", self.options)

    def __str__(self) -> str:
        return self.url

    def __fspath__(self) -> str:
        return self.url

    @property
    def is_local(self) -> bool:
        """Whether it is a directory of this machine."""
        return "://" not in self.url

    @property
    def path(self) -> Path:
        """The directory; only of a local one."""
        assert self.is_local
        return Path(self.url)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it is not there."""
        import obstore

        if not self._may_have_files():
            return None
        try:
            return bytes(obstore.get(self._store(), name).bytes())
        except FileNotFoundError:
            return None

    def create(self, name: str, content: bytes) -> bool:
        """Writes a file that is not there yet; False if it is, with another content.

        A store that has taken it may lose its answer; the client asks again, and meets its own file."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            obstore.put(self._store(), name, content, mode="create")
        except AlreadyExistsError:
            return self.read(name) == content
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Writes a file: readers see the old content or the new one, whole."""
        import obstore

        obstore.put(self._store(), name, content)

    def version(self, name: str) -> str:
        """What tells a file's content from its next one (its ETag); "" where it is not there."""
        import obstore

        try:
            return obstore.head(self._store(), name)["e_tag"] or ""
        except FileNotFoundError:
            return ""

    def swap(self, name: str, content: bytes, version: str) -> str:
        """Writes a file that is still of this version; its new version, or "" if it is not. Only in an object store."""
        import obstore
        from obstore.exceptions import PreconditionError

        try:
            return obstore.put(self._store(), name, content, mode={"e_tag": version})["e_tag"] or ""
        except (PreconditionError, FileNotFoundError):
            return self.version(name) if self.read(name) == content else ""  # An answer that was lost, as above.

    def put_file(self, name: str, file: Path) -> None:
        """Copies a file of this machine here."""
        import obstore

        obstore.put(self._store(), name, file)

    def remove(self, *names: str) -> None:
        """Removes files, as far as they are there."""
        import obstore

        if not self._may_have_files():
            return
        for name in names:
            try:
                obstore.delete(self._store(), name)
            except FileNotFoundError:
                continue

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """The files below `prefix` and their bytes, relative to this place; nothing where there is no such place."""
        import obstore

        if not (self / prefix if prefix else self)._may_have_files():
            return {}
        found: dict[str, int] = {}
        for part in obstore.list(self._store(), prefix or None):
            found |= {one["path"]: one["size"] for one in part}
        return found

    def names(self, beginning: str = "") -> list[str]:
        """The files right here whose names begin so."""
        import obstore

        if not self._may_have_files():
            return []
        found = obstore.list_with_delimiter(self._store())["objects"]
        return sorted(one["path"] for one in found if one["path"].startswith(beginning))

    def is_there(self) -> bool:
        """Whether there is any file below it, or a directory."""
        import obstore

        if self.is_local:
            return self.path.exists()
        return any(part for part in obstore.list(self._store(), chunk_size=1))

    def open(self, name: str) -> BinaryIO:
        """A file for reading, part by part. Raises FileNotFoundError."""
        import obstore

        return cast(BinaryIO, _Reader(obstore.open_reader(self._store(), name)))

    def _may_have_files(self) -> bool:
        """Whether to look; obstore makes a directory that it is to look into."""
        return not self.is_local or self.path.is_dir()

    def _store(self) -> Any:
        return _opened(self.url, tuple(sorted(self.options.items())))


@lru_cache(maxsize=64)
def _opened(url: str, options: tuple[tuple[str, str], ...]) -> Any:
    """The store; kept, with its connections."""
    from obstore.exceptions import BaseError
    from obstore.store import LocalStore, from_url

    if "://" not in url:
        return LocalStore(url, mkdir=True)
    config, client = _split(url, dict(options))
    retries = retry_config(dict(options))
    try:
        return from_url(url, config=config, client_options=client, retry_config=retries)  # type: ignore[call-overload]
    except (BaseError, ValueError) as error:
        said = f"{error}".strip().partition("\n")[0]
        raise PipelineError(f"{url} cannot be opened: {said}", "look at [store]") from error


class _Reader:
    """obstore's reader with what pyarrow asks of a file."""

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
    """What a setting names. Raises PipelineError where tables could not be there."""
    if not text.strip():
        raise PipelineError(f"{setting} is empty", "name a directory; '.' is this one")
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text):
        return Location(_fit(setting, str(Path(text).expanduser().absolute())))
    parts = urlsplit(text)
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise PipelineError(
            f"{setting} {text!r} is neither a path nor of a store that is known",
            f"name a directory, or one of {', '.join(f'{one}://...' for one in SCHEMES)}",
        )
    _split(text, options)
    retry_config(options)
    return Location(_fit(setting, text.rstrip("/")), with_defaults(options))


UNFIT = re.compile(r"[\x00-\x1f\\\[\]{}*?^|]|%[0-9A-Fa-f]{2}")
"""What Spark takes for a pattern of paths, or deltalake for something else, or does not take."""


def _fit(setting: str, text: str) -> str:
    if found := UNFIT.search(text):
        raise PipelineError(
            f"{setting} {text!r} has {found[0]!r}, which readers of tables do not take as it is",
            "name another directory",
        )
    return text


def _split(url: str, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the store, and those of the connection, as obstore wants them. Raises PipelineError."""
    prefix = SCHEMES[urlsplit(url).scheme]
    config, client = {}, {}
    for name, value in options.items():
        own = name.lower().removeprefix(prefix)
        if own in CLIENT_OPTIONS:
            client[own] = value
        elif own.startswith(tuple(set(SCHEMES.values()))):
            raise PipelineError(f"[store] {name} is an option of another store than {url}", "leave it out")
        elif name.lower() not in (*_DELTA_ALONE, *DEFAULTS):
            config[name.lower()] = value
    return config, client
