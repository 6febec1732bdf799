"""Valid and invalid places of tables."""

from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import make_settings
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.places import Places
from odradek.pipeline.state.retries import DEFAULTS


def test_the_state_is_in_the_lake_unless_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    places = Places.of(make_settings({"name": "orders", "lake": "~/my läke #1"}))
    assert places.rows == Location(f"{tmp_path}/my läke #1/orders")
    assert places.ledger.path == tmp_path / "my läke #1" / "_orders" / "batches"
    assert Places.of(make_settings({"state": "here"})).state.path == tmp_path / "here"


def test_an_object_store_keeps_its_options_and_the_state_can_be_elsewhere(tmp_path: Path) -> None:
    store = {"aws_region": "eu-1", "allow_http": True}
    places = Places.of(make_settings({"name": "orders", "lake": "s3://bucket/a lake/", "store": store}))
    options = {**DEFAULTS, "aws_region": "eu-1", "allow_http": "true"}
    assert places.rows == Location("s3://bucket/a lake/orders", options)
    assert places.ledger == Location("s3://bucket/a lake/_orders/batches", options)
    assert not places.rows.is_local
    assert Places.of(make_settings({"lake": "gs://bucket", "state": str(tmp_path)})).state == Location(str(tmp_path))
    assert Places.of(make_settings({"lake": "gs://bucket"})).rows.url == "gs://bucket/pipeline"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"lake": "file:///tmp/lake"},
            "lake 'file:///tmp/lake' is neither a path nor in a supported store; .*s3://",
        ),
        ({"lake": "ftp://host/lake"}, "is neither a path nor in a supported store"),
        ({"lake": "s3:///lake"}, "is neither a path nor in a supported store"),
        ({"lake": ""}, "lake is empty; set a directory"),
        ({"lake": "a[b]"}, r"lake '/.*a\[b\]' contains '\[', which readers"),
        ({"lake": "s3://bucket/a{b}"}, r"lake 's3://bucket/a\{b\}' contains '\{', which readers"),
        ({"lake": "a/{b}"}, "contains '{'"),
        ({"lake": "a*"}, r"contains '\*'"),
        ({"lake": "a%20b"}, "contains '%20'"),
        ({"state": "a\nb"}, "state .* contains"),
        (
            {"lake": "s3://bucket/lake", "store": {"azure_storage_account_key": "x"}},
            r"\[store\] azure_storage_account_key is not an option of the store of s3://bucket/lake; remove it",
        ),
    ],
)
def test_a_path_that_readers_misinterpret_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        Places.of(make_settings(given))


def test_a_path_can_contain_a_percent_sign() -> None:
    assert Places.of(make_settings({"lake": "/50% off"})).rows.path == Path("/50% off/pipeline")
