"""`odradek features` against a running broker, brokers that differ, and Apache Kafka 4.4."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.__main__ import main
from odradek.cli.features import _supported
from odradek.clients.admin.features import DescribedFeature, DescribedFeatures
from odradek.protocol.schema import Versions
from odradek.testing import ClusterThread
from tests.beside_kafka.control import apache_node
from tests.cli.conftest import Odradek
from tests.spawned_broker import spawned_broker

HIGHEST = [
    ["group.version", "1", "0-1"],
    ["kraft.version", "1", "0-1"],
    ["metadata.version", "33", "7-33"],
    ["transaction.version", "2", "0-2"],
]


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with spawned_broker(tmp_path / "data") as broker:
        yield broker.bootstrap


@pytest.fixture
def odradek(bootstrap: str, run_odradek: Odradek) -> Odradek:
    return lambda *arguments: run_odradek("features", *arguments, "--bootstrap-server", bootstrap)


def described(odradek: Odradek) -> list[list[str]]:
    status, out, err = odradek("describe")
    assert (status, err) == (0, "")
    header, *rows = (line.split() for line in out.splitlines())
    assert header == ["FEATURE", "FINALIZED", "SUPPORTED"]
    return rows


def levels(odradek: Odradek) -> dict[str, str]:
    return {name: level for name, level, _ in described(odradek)}


def epoch(odradek: Odradek) -> Any:
    return json.loads(odradek("describe", "--json")[1])["epoch"]


def test_levels_are_shown_lowered_and_raised(odradek: Odradek) -> None:
    assert described(odradek) == HIGHEST
    before = epoch(odradek)
    both = ("--feature", "group.version=0", "--feature", "transaction.version=1")
    dry = "group.version can be downgraded to 0\ntransaction.version can be downgraded to 1\n"
    assert odradek("downgrade", *both, "--dry-run") == (0, dry, "")
    assert (described(odradek), epoch(odradek)) == (HIGHEST, before)
    done = "group.version downgraded to 0\ntransaction.version downgraded to 1\n"
    assert odradek("downgrade", *both) == (0, done, "")
    lowered = levels(odradek)
    assert (lowered["group.version"], lowered["transaction.version"]) == ("0", "1")
    assert epoch(odradek) > before
    one = odradek("upgrade", "--feature", "group.version=1")
    assert one == (0, "group.version upgraded to 1\n", "")
    assert odradek("upgrade", "--all") == (0, "transaction.version upgraded to 2\n", "")
    nothing = (0, "every feature has the highest level that all brokers support\n", "")
    assert odradek("upgrade", "--all") == nothing
    assert described(odradek) == HIGHEST
    off = odradek("downgrade", "--unsafe", "--feature", "transaction.version=0")
    assert off == (0, "transaction.version downgraded to 0\n", "")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["upgrade", "--feature", "group.version=0"],
            "INVALID_UPDATE_VERSION: No feature was updated: group.version cannot have level 0, because that is less "
            "than 1, and the update is no downgrade",
        ),
        (
            ["upgrade", "--feature", "transaction.version=2", "--feature", "nope=1"],
            "INVALID_UPDATE_VERSION: No feature was updated: nope cannot have level 1, because this broker knows no "
            "such feature",
        ),
        (["upgrade", "--feature", "group.version"], "--feature group.version: expected NAME=VALUE"),
        (
            ["downgrade", "--feature", "group.version=-1"],
            "--feature group.version=-1: a level is a whole number from 0 to 32767",
        ),
        (
            ["upgrade", "--feature", "group.version=32768"],
            "--feature group.version=32768: a level is a whole number from 0 to 32767",
        ),
    ],
)
def test_what_cannot_be_changed_is_reported(odradek: Odradek, arguments: list[str], error: str) -> None:
    assert odradek(*arguments) == (1, "", f"odradek: {error}\n")
    assert described(odradek) == HIGHEST


@pytest.mark.parametrize("arguments", [["upgrade"], ["downgrade"], ["upgrade", "--all", "--feature", "a=1"], []])
def test_wrong_arguments_end_with_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["features", *arguments])
    assert caught.value.code == 2
    assert "usage: odradek features" in capsys.readouterr().err


def test_brokers_that_support_other_levels_are_named() -> None:
    known = {1: Versions(0, 2), 2: Versions(0, 2), 3: Versions(0, 1)}
    assert _supported(DescribedFeature("f", 0, known), [1, 2, 3]) == "0-2 by broker 1 2, 0-1 by broker 3"
    assert _supported(DescribedFeature("f", 0, known), [1, 2]) == "0-2"
    assert _supported(DescribedFeature("f", 0, {1: Versions(0, 2)}), [1, 9]) == "0-2 by broker 1, none by broker 9"


def test_a_level_is_raised_to_what_every_broker_supports() -> None:
    features = [
        DescribedFeature("raised", 0, {1: Versions(0, 2), 2: Versions(0, 1)}),
        DescribedFeature("as high as it may be", 1, {1: Versions(0, 2), 2: Versions(0, 1)}),
        DescribedFeature("unknown to one", 0, {1: Versions(0, 2)}),
        DescribedFeature("unknown to all", 1, {}),
    ]
    assert DescribedFeatures(7, [1, 2], features).raised() == {"raised": 1}


def test_a_release_without_features_has_none(tmp_path: Path, run_odradek: Odradek) -> None:
    with spawned_broker(tmp_path / "old", {"odradek.as.version": "2.0"}) as broker:
        at = ("--bootstrap-server", broker.bootstrap)
        assert run_odradek("features", "describe", *at) == (0, "FEATURE  FINALIZED  SUPPORTED\n", "")
        assert json.loads(run_odradek("features", "describe", "--json", *at)[1]) == {"epoch": None, "features": []}
        status, _, error = run_odradek("features", "downgrade", "--feature", "group.version=0", *at)
        assert (status, error) == (1, f"odradek: {broker.bootstrap} does not serve UPDATE_FEATURES\n")


def test_any_broker_of_a_cluster_can_be_named(run_odradek: Odradek) -> None:
    with ClusterThread(brokers=3) as cluster:
        for level, address in enumerate(cluster.bootstrap.split(",")):
            at = ("--bootstrap-server", address)
            changed = run_odradek("features", "downgrade", "--feature", "transaction.version=0", *at)
            assert changed == (0, "transaction.version downgraded to 0\n", "")
            if level:
                changed = run_odradek("features", "upgrade", "--feature", f"transaction.version={level}", *at)
                assert changed == (0, f"transaction.version upgraded to {level}\n", "")
            shown = json.loads(run_odradek("features", "describe", "--json", *at)[1])["features"]
            (feature,) = (each for each in shown if each["name"] == "transaction.version")
            supported = {str(broker): {"lowest": 0, "highest": 2} for broker in cluster.ids}
            assert feature == {"name": "transaction.version", "finalized": level, "supported": supported}


@pytest.mark.timeout(300)
def test_features_of_apache_kafka_are_changed(tmp_path: Path, run_odradek: Odradek, kafka_control: list[str]) -> None:
    with apache_node(kafka_control, tmp_path / "kafka", {}, release="4.4.0") as port:

        def features(*arguments: str) -> tuple[int, str, str]:
            return run_odradek("features", *arguments, "--bootstrap-server", f"127.0.0.1:{port}")

        assert [row for row in described(features) if row in HIGHEST] == HIGHEST
        changed = features("downgrade", "--feature", "group.version=0", "--feature", "transaction.version=1")
        assert changed == (0, "group.version downgraded to 0\ntransaction.version downgraded to 1\n", "")
        assert (levels(features)["group.version"], levels(features)["transaction.version"]) == ("0", "1")
        assert {"group.version upgraded to 1", "transaction.version upgraded to 2"} <= set(
            features("upgrade", "--all")[1].splitlines()
        )
        status, _, error = features("upgrade", "--feature", "group.version=7")
        assert (status, error.split(":")[1]) == (1, " INVALID_UPDATE_VERSION")
