"""A real S3 server for tests: versitygw over a directory, and the options with which clients reach it.

    with s3_server(program, directory, "127.0.0.1") as store:
        mine = store.with_new_bucket()
        write_deltalake(f"{mine.url}/table", rows, storage_options=mine.options)
        obstore.put(S3Store(mine.bucket, config=mine.config()), "key", b"value", mode="create")

What the server promises, and test_object_store.py checks:

a. `If-None-Match: *` and `If-Match` are atomic: one of many writers succeeds, the others get 412. So are conditional
   completions of multipart uploads.
b. It verifies signatures: a request whose Host, path or body is not the signed one gets 403.
c. Multipart uploads, ranged reads, listings with a delimiter and deletions of many keys work as S3's do.

Where it differs from S3, because a key is the path of a file:

d. A key cannot be a prefix of another: after `a`, putting `a/b` gets 409 ObjectParentIsFile.
e. When the last key below a `/` is deleted while another is put there, the put may get 409 ExistingObjectIsDirectory
   (once in some hundred times, in a loop that does nothing else). Clients with object_store report "already exists".

Why not moto: it checks a condition and stores the object in two steps without a lock, so that of twenty concurrent
writers of 1 MB two may win; it does not verify signatures; concurrent Delta commits take three times as long.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from odradek.pipeline.spark.cache import cache_directory
from tests.spawned_broker import free_port

if TYPE_CHECKING:
    from obstore.store import S3Config

VERSION = "v1.8.0"
PACKAGE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
DEADLINE_S = 30


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """How clients reach one bucket of a running server."""

    endpoint: str
    """http://HOST:PORT, without a path."""
    bucket: str
    access_key: str
    secret_key: str
    buckets: Path
    """The server's directory: each directory in it is a bucket."""
    region: str = "us-east-1"

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    @property
    def options(self) -> dict[str, str]:
        """The `storage_options` for deltalake."""
        return {
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "aws_endpoint": self.endpoint,
            "aws_region": self.region,
            "aws_allow_http": "true",
        }

    def config(self, **more: str) -> S3Config:
        """The `config` for obstore, which has the same names."""
        return cast("S3Config", {**self.options, **more})

    def with_new_bucket(self) -> ObjectStore:
        """The same server with a new, empty bucket."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        (self.buckets / name).mkdir()
        return replace(self, bucket=name)

    def at(self, endpoint: str) -> ObjectStore:
        """The same bucket at another address, a proxy's."""
        return replace(self, endpoint=endpoint)


def install_versitygw(cache: Path | None = None) -> Path:
    """The server's program, built once into the cache. Raises RuntimeError with Go's error.

    The first build takes about a minute and needs Go's module proxy. It needs Go 1.25, which an
    older Go from 1.21 on downloads."""
    directory = (cache or cache_directory()) / f"versitygw-{VERSION}"
    program = directory / "versitygw"
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / ".lock", "w") as lock, tempfile.TemporaryDirectory(dir=directory) as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(Path(scratch))
            os.replace(Path(scratch) / program.name, program)
    return program


def _build(into: Path) -> None:
    environ = {**os.environ, "GOBIN": str(into), "GOTOOLCHAIN": "auto", "CGO_ENABLED": "0"}
    command = ["go", "install", "-trimpath", "-ldflags=-s -w", PACKAGE]
    done = subprocess.run(command, env=environ, cwd=into, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")


@contextmanager
def s3_server(program: Path, directory: Path, host: str) -> Iterator[ObjectStore]:
    """A server on a free port of `host`, with one empty bucket. `directory` gets the buckets and the log."""
    buckets = directory / "buckets"
    buckets.mkdir(parents=True)
    port = free_port()
    environ = {**os.environ, "ROOT_ACCESS_KEY": "odradek-tests", "ROOT_SECRET_KEY": uuid.uuid4().hex}
    command = [str(program), "--quiet", "--keep-alive", "--port", f"{host}:{port}", "posix", str(buckets)]
    with (directory / "versitygw.log").open("w+") as log:
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _wait_until_it_listens(process, host, port, Path(log.name))
            keys = environ["ROOT_ACCESS_KEY"], environ["ROOT_SECRET_KEY"]
            yield ObjectStore(f"http://{host}:{port}", "", *keys, buckets).with_new_bucket()
        finally:
            process.kill()
            process.wait()


def _wait_until_it_listens(process: subprocess.Popen[bytes], host: str, port: int, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"versitygw does not listen on {host}:{port}: {log.read_text()[-2000:]}") from error
        time.sleep(0.02)
