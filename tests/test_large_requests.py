"""The generator of large requests: what it makes is valid, as large as asked, and the same for the same seed."""

from random import Random

import pytest

from odradek.broker.handlers.api_table import api_table
from odradek.protocol.compiler import read
from odradek.protocol.headers import RequestHeader, request_header_version
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.registry import request_class
from tests.base_requests import Known
from tests.large_requests import LargeRequest, array_paths, large_requests

SIZE = 5_000
SERVED = [
    (int(row.key), version)
    for row in api_table().client_rows()
    for version in range(row.served.lowest, row.served.highest + 1)
]
ENDS = [(int(row.key), version) for row in api_table().client_rows() for version in set(row.served)]


def cases(api_key: int, version: int, size: int = SIZE, seed: int = 1) -> list[LargeRequest]:
    return list(large_requests(api_key, version, size, Random(seed), Known()))


@pytest.mark.parametrize("api_key", sorted({api_key for api_key, _ in SERVED}))
def test_every_case_decodes_to_its_last_byte(api_key: int) -> None:
    for version in (version for key, version in SERVED if key == api_key):
        for case in cases(api_key, version):
            payload = case.payload()
            header, position = read(RequestHeader, request_header_version(api_key, version), payload)
            assert (header.request_api_key, header.request_api_version) == (api_key, version)
            _, end = read(request_class(api_key), version, payload, position)
            assert end == len(payload), f"{case.name} of version {version}"


@pytest.mark.parametrize("size", [2_000, 200_000])
def test_an_array_is_grown_to_the_requested_size(size: int) -> None:
    for kind in ("equal", "distinct", "empty"):
        case = next(case for case in cases(1, 12, size) if case.name == f"Topics.Partitions of {kind} elements")
        assert 0.9 * size < len(case.payload()) < 1.1 * size


def test_distinct_elements_have_unique_names_and_equal_ones_the_known_name() -> None:
    names = {}
    for case in cases(3, 11):
        _, position = read(RequestHeader, 2, case.payload())
        topics = read(MetadataRequest, 11, case.payload(), position)[0].topics
        assert topics is not None
        names[case.name] = [topic.name for topic in topics]
    distinct = names["Topics of distinct elements"]
    assert len(set(distinct)) == len(distinct) > 100
    assert set(names["Topics of equal elements"]) == {Known().topic}


def test_the_same_seed_makes_the_same_requests_with_unique_names() -> None:
    for api_key, version in ENDS[::7]:
        made = cases(api_key, version)
        assert [case.payload() for case in made] == [case.payload() for case in cases(api_key, version)]
        assert len({case.name for case in made}) == len(made)


def test_every_array_string_and_buffer_of_the_schemas_is_grown() -> None:
    for api_key, version in ENDS:
        named = " ".join(case.name for case in cases(api_key, version))
        for path in array_paths(request_class(api_key), version):
            assert ".".join(field.name for field in path) + " of equal" in named
        for field in request_class(api_key).__schema__.plain_fields(version):
            if field.type in ("string", "bytes"):
                assert field.name in named


def test_a_flexible_request_has_cases_with_many_tags_in_header_and_body() -> None:
    many = {case.name: case for case in cases(3, 11)}
    header, position = read(RequestHeader, 2, many["a header with many tags"].payload())
    assert len(header.unknown_tagged_fields or ()) == SIZE // 5
    _, position = read(RequestHeader, 2, many["a body with many tags"].payload())
    body, _ = read(MetadataRequest, 11, many["a body with many tags"].payload(), position)
    assert len(body.unknown_tagged_fields or ()) == SIZE // 5
    assert not [case for case in cases(3, 8) if "tag" in case.name]
