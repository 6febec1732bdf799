"""The S3 server keeps what tests/pipeline/cluster/object_store.py promises, for obstore and deltalake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, PreconditionError
from obstore.store import S3Store

from odradek.pipeline.state.delta_tables import read_table
from tests.pipeline.cluster.object_store import ObjectStore

WRITERS, ROUNDS = 20, 10
COMMITS = 8
COMMITTER = """
import json, sys, pyarrow, deltalake
url, options, first, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
for number in range(first, first + count):
    deltalake.write_deltalake(url, pyarrow.table({"number": [number]}), mode="append", storage_options=options)
"""


def client(bucket: ObjectStore, **more: str) -> S3Store:
    return S3Store(bucket.bucket, config=bucket.config(**more))


def winners(write: Callable[[S3Store, int], object], bucket: ObjectStore, **more: str) -> list[int]:
    """The numbers of those of twenty concurrent writers that had no conflict."""
    barrier = Barrier(WRITERS)

    def attempt(number: int) -> bool:
        store = client(bucket, **more)
        barrier.wait()
        try:
            write(store, number)
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    with ThreadPoolExecutor(WRITERS) as pool:
        return [number for number, won in enumerate(pool.map(attempt, range(WRITERS))) if won]


def body(number: int, size: int) -> bytes:
    return bytes([number]) * size


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_one_of_twenty_concurrent_creates_of_a_key_succeeds(bucket: ObjectStore, size: int) -> None:
    for key in (f"created/{number}" for number in range(ROUNDS)):

        def create(store: S3Store, number: int, key: str = key) -> None:
            obstore.put(store, key, body(number, size), mode="create", use_multipart=False)

        won = winners(create, bucket)
        assert len(won) == 1
        assert obstore.get(client(bucket), key).bytes() == body(won[0], size)


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_one_of_twenty_concurrent_replacements_of_a_version_succeeds(bucket: ObjectStore, size: int) -> None:
    for _ in range(ROUNDS):
        seen = obstore.put(client(bucket), "state", os.urandom(8))

        def replace(store: S3Store, number: int, e_tag: str | None = seen["e_tag"]) -> None:
            obstore.put(store, "state", body(number, size), mode={"e_tag": e_tag}, use_multipart=False)

        won = winners(replace, bucket)
        assert len(won) == 1
        assert obstore.get(client(bucket), "state").bytes() == body(won[0], size)


def test_one_of_twenty_concurrent_conditional_upload_completions_succeeds(bucket: ObjectStore) -> None:
    obstore.put(client(bucket), "source", b"content")
    for key in (f"completed/{number}" for number in range(ROUNDS)):

        def complete(store: S3Store, number: int, key: str = key) -> None:
            obstore.copy(store, "source", key, overwrite=False)

        won = winners(complete, bucket, aws_copy_if_not_exists="multipart")
        assert len(won) == 1
        assert obstore.get(client(bucket), key).bytes() == b"content"


def test_a_multipart_upload_is_read_whole_and_by_ranges(bucket: ObjectStore) -> None:
    content, store = os.urandom(11 << 20), client(bucket)
    obstore.put(store, "big", content, use_multipart=True, chunk_size=5 << 20)
    assert obstore.get(store, "big").bytes() == content
    assert obstore.get_range(store, "big", start=(5 << 20) - 3, length=7) == content[(5 << 20) - 3 : (5 << 20) + 4]
    tail = obstore.get(store, "big", options={"range": {"suffix": 9}})
    assert tail.bytes() == content[-9:]


def test_listings_support_a_delimiter_are_sorted_and_have_pages(bucket: ObjectStore) -> None:
    store = client(bucket)
    keys = [f"log/{number:05d}.json" for number in range(1100)] + ["log/_last", "log/a/1", "log/b/c/2"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: obstore.put(store, key, b"x"), keys))
    level = obstore.list_with_delimiter(store, "log")
    assert list(level["common_prefixes"]) == ["log/a", "log/b"]
    assert len(level["objects"]) == 1101
    listed = [one["path"] for page in obstore.list(store, "log", offset="log/01098.json") for one in page]
    assert listed == ["log/01099.json", "log/_last", "log/a/1", "log/b/c/2"]
    obstore.delete(store, keys)
    assert [one for page in obstore.list(store) for one in page] == []


def test_a_wrong_secret_is_refused(bucket: ObjectStore) -> None:
    with pytest.raises(PermissionDeniedError, match="SignatureDoesNotMatch"):
        obstore.put(client(bucket, aws_secret_access_key="wrong"), "key", b"x")


def test_concurrent_commits_of_two_processes_lose_nothing(bucket: ObjectStore) -> None:
    url = f"{bucket.url}/table"
    write_deltalake(url, pa.table({"number": [-1]}), storage_options=bucket.options)
    arguments = [sys.executable, "-c", COMMITTER, url, json.dumps(bucket.options)]
    processes = [subprocess.Popen([*arguments, str(first), str(COMMITS)]) for first in (0, COMMITS)]
    assert [process.wait(120) for process in processes] == [0, 0]
    table = DeltaTable(url, storage_options=bucket.options)
    assert table.version() == 2 * COMMITS
    assert sorted(read_table(table, ["number"])["number"].to_pylist()) == list(range(-1, 2 * COMMITS))
