"""A place: the same calls for a directory and for a store. The store here is obstore's own, in memory."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import parquet, table

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.state.location import Location, location_of
from odradek.pipeline.state.retries import DEFAULTS
from tests.pipeline.state.memory_place import in_memory

THREADS = 20


@pytest.fixture(params=["directory", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "directory":
        return Location(str(tmp_path / "not made yet"))
    return in_memory()


def test_a_file_is_read_back_unchanged_or_is_missing(place: Location) -> None:
    assert place.read("a/b.json") is None
    assert place.version("a/b.json") == ""
    place.replace("a/b.json", b"one")
    assert place.read("a/b.json") == b"one"
    first = place.version("a/b.json")
    place.replace("a/b.json", b"")
    assert place.read("a/b.json") == b""
    assert "" != place.version("a/b.json") != first
    place.remove("a/b.json", "never there")
    assert place.read("a/b.json") is None


def test_an_existing_file_is_not_created_again(place: Location) -> None:
    assert place.create("plan-0.json", b"first")
    assert not place.create("plan-0.json", b"second")
    assert place.read("plan-0.json") == b"first"
    place.remove("plan-0.json")
    assert place.create("plan-0.json", b"third")


def test_one_of_many_concurrent_creates_succeeds(place: Location) -> None:
    for attempt in range(10):
        together, won = threading.Barrier(THREADS), list[int]()

        def make(
            number: int, name: str = f"plan-{attempt}", together: threading.Barrier = together, won: list[int] = won
        ) -> None:
            together.wait()
            if place.create(name, b"%d" % number * 1000):
                won.append(number)

        threads = [threading.Thread(target=make, args=(number,)) for number in range(THREADS)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert len(won) == 1
        assert place.read(f"plan-{attempt}") == b"%d" % won[0] * 1000


def test_a_reader_sees_a_complete_file_while_it_is_replaced(place: Location) -> None:
    contents = [bytes([number]) * 200_000 for number in range(5)]
    place.replace("report.json", contents[0])
    over = threading.Event()
    torn: list[bytes | None] = []

    def look() -> None:
        while not over.is_set():
            content = place.read("report.json")
            if content not in contents:
                torn.append(content)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(200):
        place.replace("report.json", contents[number % 5])
    over.set()
    reader.join()
    assert torn == []


def test_names_are_not_recursive_and_sizes_are(place: Location) -> None:
    assert place.names() == []
    assert place.sizes() == {}
    assert not place.is_there()
    for name, size in {"plan-2.json": 1, "plan-10.json": 2, "other": 3, "batches/part-0.parquet": 4}.items():
        place.replace(name, b"x" * size)
    assert place.is_there()
    assert place.names("plan-") == ["plan-10.json", "plan-2.json"]
    assert place.names() == ["other", "plan-10.json", "plan-2.json"]
    assert place.sizes() == {"plan-2.json": 1, "plan-10.json": 2, "other": 3, "batches/part-0.parquet": 4}
    assert place.sizes("batches") == {"batches/part-0.parquet": 4}
    assert place.sizes("none") == {}


@pytest.mark.parametrize("name", ["kind=a%20b/part-0.parquet", "kind=a%2520b/part-0.parquet", "kind=%C3%BC/part-0"])
def test_a_file_of_a_partition_is_found_where_it_was_put(place: Location, tmp_path: Path, name: str) -> None:
    file = tmp_path / "scratch.parquet"
    parquet.write_table(table({"id": list(range(1000))}), file)
    place.put_file(name, file)
    assert place.sizes() == {name: file.stat().st_size}
    opened = place.open(name)
    assert parquet.read_metadata(opened).num_rows == 1000
    assert parquet.ParquetFile(place.open(name)).read(["id"])["id"].to_pylist() == list(range(1000))
    opened.seek(0)
    assert opened.read(4) == b"PAR1"
    opened.seek(-4, 2)
    assert opened.read() == b"PAR1"
    opened.close()
    if place.is_local:
        assert (place.path / name).is_file()
    place.remove(name)
    with pytest.raises(FileNotFoundError):
        place.open(name)


def test_a_file_is_swapped_only_if_its_version_is_unchanged() -> None:
    place = in_memory()
    assert place.swap("job.lock", b"x", "0") == "", "it is not there"
    assert place.create("job.lock", b"one")
    first = place.version("job.lock")
    second = place.swap("job.lock", b"two", first)
    assert second == place.version("job.lock") != first
    assert place.swap("job.lock", b"three", first) == ""
    assert place.read("job.lock") == b"two"
    together, won = threading.Barrier(THREADS), list[int]()

    def swap(number: int) -> None:
        together.wait()
        if place.swap("job.lock", b"%d" % number, second):
            won.append(number)

    threads = [threading.Thread(target=swap, args=(number,)) for number in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [b"%d" % number for number in won] == [place.read("job.lock")]


def test_a_place_below_keeps_the_options() -> None:
    place = Location("s3://bucket/lake", {"allow_http": "true"})
    assert place / "orders" == replace(place, url="s3://bucket/lake/orders")
    assert f"{place / 'orders'}" == "s3://bucket/lake/orders"
    assert not place.is_local
    assert Location("/lake").is_local


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("s3://bucket/lake", {"aws_endpoint": "http://127.0.0.1:9000", "aws_region": "eu-1", "allow_http": "true"}),
        ("s3a://bucket", {"AWS_REGION": "eu-1", "timeout": "5s", "aws_s3_allow_unsafe_rename": "true"}),
        ("abfss://files@account.dfs.core.windows.net/lake", {"azure_storage_account_key": "eA=="}),
        ("az://files/lake", {"azure_storage_account_name": "account", "azure_storage_account_key": "eA=="}),
    ],
)
def test_a_store_accepts_the_options_that_tables_accept(text: str, options: dict[str, str]) -> None:
    """Options that obstore does not know, or that belong to another store, are refused."""
    place = location_of("lake", text, options)
    assert place == Location(text, {**DEFAULTS, **options})
    assert place._store() is location_of("lake", text, options)._store(), "its connections are kept"


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("s3://bucket", {"aws_regoin": "x"}, r"s3://bucket cannot be opened: .*'aws_regoin'.*; check \[store\]"),
        ("az://files", {"azure_storage_account_name": "a", "timeout": "soon"}, "az://files cannot be opened: .*soon"),
    ],
)
def test_an_unknown_store_option_is_reported_in_one_line(text: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(PipelineError, match=says) as caught:
        location_of("lake", text, options).read("plan-0.json")
    assert "\n" not in f"{caught.value}"


def test_a_directory_is_absolute_and_is_not_created_by_its_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert location_of("lake", "lake", {"aws_region": "x"}) == Location(str(tmp_path / "lake"))
    assert location_of("lake", "C:lake", {}).path == tmp_path / "C:lake"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(PipelineError, match="lake is empty"):
        location_of("lake", " ", {})
