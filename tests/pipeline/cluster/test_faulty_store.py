"""The proxy injects the faults of its rule and no others, with obstore, deltalake and a real S3 server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError
from obstore.store import S3Store
from pyarrow import fs

from tests.pipeline.cluster.faulty_store import (
    CUT,
    HANG,
    SERVER_ERROR,
    SLOW_DOWN,
    Fault,
    FaultyStore,
    always,
    faulty_store,
    never,
    nth,
    one_in,
)
from tests.pipeline.cluster.object_store import ObjectStore

ROWS = pa.table({"number": [1, 2, 3]})
FEW_TRIES = {"max_retries": "2", "backoff_config.init_backoff": "10ms", "backoff_config.max_backoff": "20ms"}
"""deltalake's option names. object_store's defaults are ten retries and 3 minutes."""


@pytest.fixture
def faulty(bucket: ObjectStore) -> Iterator[FaultyStore]:
    with faulty_store(bucket) as running:
        yield running


def client(store: ObjectStore, max_retries: int = 0, timeout_s: float = 30, **more: str) -> S3Store:
    pause = timedelta(milliseconds=10)
    return S3Store(
        store.bucket,
        config=store.config(**more),
        client_options={"timeout": timedelta(seconds=timeout_s)},
        retry_config={
            "max_retries": max_retries,
            "retry_timeout": timedelta(seconds=60),
            "backoff": {"init_backoff": pause, "max_backoff": pause, "base": 2},
        },
    )


def test_a_request_that_no_rule_matches_passes_unchanged(faulty: FaultyStore) -> None:
    content, store = os.urandom(6 << 20), client(faulty.store)
    obstore.put(store, "a key/ü+%", content, use_multipart=True, chunk_size=5 << 20)
    assert obstore.get(store, "a key/ü+%").bytes() == content
    assert obstore.head(store, "a key/ü+%")["size"] == len(content)
    assert [one["path"] for one in obstore.list_with_delimiter(store)["objects"]] == []
    obstore.delete(store, ["a key/ü+%"])
    assert faulty.injected == []
    assert [request.count for request in faulty.requests] == list(range(1, len(faulty.requests) + 1))


def test_the_store_verifies_signatures_through_the_proxy(faulty: FaultyStore) -> None:
    with pytest.raises(PermissionDeniedError, match="SignatureDoesNotMatch"):
        obstore.put(client(faulty.store, aws_secret_access_key="wrong"), "key", b"x")


def test_pyarrow_writes_through_the_proxy(faulty: FaultyStore) -> None:
    store = faulty.store
    remote = fs.S3FileSystem(
        access_key=store.access_key,
        secret_key=store.secret_key,
        endpoint_override=store.endpoint,
        region=store.region,
    )
    with remote.open_output_stream(f"{store.bucket}/file") as out:
        out.write(b"content")
    assert obstore.get(client(store), "file").bytes() == b"content"


@pytest.mark.parametrize(("fault", "message"), [(SERVER_ERROR, "InternalError"), (SLOW_DOWN, "SlowDown")])
def test_a_fault_before_the_store_leaves_the_store_unchanged(faulty: FaultyStore, fault: Fault, message: str) -> None:
    faulty.rule = nth(1, fault, method="PUT")
    with pytest.raises(GenericError, match=message):
        obstore.put(client(faulty.store), "key", b"x")
    with pytest.raises(FileNotFoundError):
        obstore.get(client(faulty.store), "key")


def test_a_fault_after_the_store_makes_a_retried_create_conflict_with_itself(faulty: FaultyStore) -> None:
    faulty.rule = nth(1, SERVER_ERROR.applied(), method="PUT")
    with pytest.raises(AlreadyExistsError):
        obstore.put(client(faulty.store, max_retries=1), "key", b"mine", mode="create")
    assert obstore.get(client(faulty.store), "key").bytes() == b"mine"


def test_a_hanging_request_ends_at_the_clients_timeout(faulty: FaultyStore) -> None:
    faulty.rule = always(HANG, method="PUT")
    began = time.monotonic()
    with pytest.raises(GenericError, match=r"timed out|timeout"):
        obstore.put(client(faulty.store, timeout_s=0.5), "key", b"x")
    assert 0.4 < time.monotonic() - began < 10
    faulty.rule = never
    with pytest.raises(FileNotFoundError):
        obstore.get(client(faulty.store), "key")


def test_a_truncated_download_is_retried_or_raises(faulty: FaultyStore) -> None:
    content = os.urandom(1 << 20)
    obstore.put(client(faulty.store), "key", content)
    faulty.rule = always(CUT, method="GET")
    with pytest.raises(GenericError):
        obstore.get(client(faulty.store), "key").bytes()
    faulty.rule = nth(1, CUT, method="GET")
    assert obstore.get(client(faulty.store, max_retries=3), "key").bytes() == content


def test_an_upload_whose_response_is_truncated_is_stored(faulty: FaultyStore) -> None:
    faulty.rule = nth(1, CUT, method="PUT")
    with pytest.raises(GenericError):
        obstore.put(client(faulty.store), "key", b"x")
    assert obstore.get(client(faulty.store), "key").bytes() == b"x"


@pytest.mark.parametrize("make", [lambda: nth(3, SLOW_DOWN, method="PUT"), lambda: one_in(10, SLOW_DOWN, seed=4)])
def test_a_rule_matches_the_same_requests_each_time(
    faulty: FaultyStore, make: Callable[[], Callable[[object], Fault | None]]
) -> None:
    hit = []
    for _ in range(2):
        before = len(faulty.requests)
        faulty.rule = make()
        for number in range(30):
            try:
                obstore.put(client(faulty.store), f"key-{number}", b"x")
            except GenericError:
                hit.append(len(faulty.requests) - before)
    half = len(hit) // 2
    assert half >= 1
    assert hit[:half] == hit[half:]
    assert len(faulty.injected) == len(hit)


def test_a_table_write_survives_one_slow_down(faulty: FaultyStore) -> None:
    url = f"{faulty.store.url}/table"
    faulty.rule = nth(2, SLOW_DOWN, method="PUT", below="/_delta_log/")
    for _ in range(3):
        write_deltalake(url, ROWS, mode="append", storage_options=faulty.store.options)
    assert len(faulty.injected) == 1
    table = DeltaTable(url, storage_options=faulty.store.options)
    assert (table.version(), table.to_pyarrow_table().num_rows) == (2, 9)


def test_a_table_write_survives_errors_in_one_request_of_five(faulty: FaultyStore) -> None:
    url = f"{faulty.store.url}/table"
    faulty.rule = one_in(5, SERVER_ERROR, seed=1)
    for _ in range(5):
        write_deltalake(url, ROWS, mode="append", storage_options=faulty.store.options)
    assert len(faulty.injected) > 3
    faulty.rule = never
    assert DeltaTable(url, storage_options=faulty.store.options).to_pyarrow_table().num_rows == 15


@pytest.mark.parametrize("below", ["/_delta_log/", ".parquet"])
def test_permanent_errors_end_a_table_write_in_bounded_time(faulty: FaultyStore, below: str) -> None:
    url, options = f"{faulty.store.url}/table", {**faulty.store.options, **FEW_TRIES}
    write_deltalake(url, ROWS, storage_options=options)
    faulty.rule = always(SERVER_ERROR, method="PUT", below=below)
    began = time.monotonic()
    with pytest.raises((OSError, DeltaError), match="InternalError"):
        write_deltalake(url, ROWS, mode="append", storage_options=options)
    assert time.monotonic() - began < 20
    faulty.rule = never
    assert DeltaTable(url, storage_options=options).version() == 0
