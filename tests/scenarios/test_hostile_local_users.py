"""Another user of the machine reads what is readable, and creates links where the broker writes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from odradek.testing import in_process_broker
from tests.broker.test_topic_settings_at_work import produced
from tests.wire import requests
from tests.wire.api import api_of_a_broker


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def two_dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / "one", tmp_path / "two"]


def settings(directories: list[Path]) -> dict[str, str]:
    return {"log.dirs": ",".join(map(str, directories))}


def tear_the_journal(data: Path) -> None:
    """Makes the next start write a snapshot and a new journal."""
    with (data / "metadata.journal").open("ab") as file:
        file.write(b"half a li")


async def test_other_users_cannot_read_the_data_directory_or_the_metadata(tmp_path: Path) -> None:
    directories = two_dirs(tmp_path)
    async with in_process_broker(settings(directories)):
        pass
    tear_the_journal(directories[0])
    async with in_process_broker(settings(directories)):
        pass
    assert [mode(directory) for directory in directories] == [0o700, 0o700]
    assert mode(directories[0] / "metadata.journal") == 0o600
    assert mode(directories[0] / "metadata.snapshot") == 0o600
    for directory in directories:
        assert {mode(path) for path in directory.iterdir() if path.is_file()} == {0o600}


async def test_permissions_of_older_directories_are_tightened_and_each_is_logged(tmp_path: Path) -> None:
    directories = two_dirs(tmp_path)
    async with in_process_broker(settings(directories)):
        pass
    for directory in directories:
        directory.chmod(0o755)
        for path in directory.iterdir():
            path.chmod(0o644)
    for expected in (directories, []):
        with capture_logs() as lines:
            async with in_process_broker(settings(directories)):
                pass
        tightened = [line for line in lines if line["event"] == "permissions tightened"]
        assert [line["directory"] for line in tightened] == [str(directory) for directory in expected]
        assert all(line["directory"] in line["paths"] for line in tightened)
    assert [mode(directory) for directory in directories] == [0o700, 0o700]
    assert mode(directories[0] / "metadata.journal") == 0o600


async def test_a_broker_starts_even_if_it_cannot_change_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o770)
    monkeypatch.setattr("odradek.storage.files.os.chmod", refuse)
    with capture_logs() as lines:
        async with in_process_broker(data_dir=tmp_path / "data"):
            pass
    (warning,) = [line for line in lines if line["event"] == "permissions not tightened"]
    assert str(tmp_path / "data") in warning["reasons"][0]


CHECKPOINTS = (
    ".kafka_cleanshutdown",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "meta.properties",
    "metadata.journal",
    "metadata.snapshot",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
FILES_OF_A_PARTITION = (
    "00000000000000000002.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
)


def plant_links(data: Path, partition: Path, victim: Path) -> None:
    """Creates links to `victim` in place of temporary files."""
    for name in CHECKPOINTS:
        (data / f"{name}.tmp").symlink_to(victim)
    for name in FILES_OF_A_PARTITION:
        (partition / f"{name}.tmp").symlink_to(victim)


async def test_links_in_place_of_temporary_files_are_not_followed(tmp_path: Path) -> None:
    victim, data = tmp_path / "victim", tmp_path / "data"
    victim.write_text("precious")
    async with api_of_a_broker(data_dir=data) as api:
        await api(requests.create_topics("t"), 5)
        await produced(api, 1)
    plant_links(data, data / "t-0", victim)
    (data / "meta.properties").unlink()
    tear_the_journal(data)
    async with api_of_a_broker(data_dir=data) as api:
        assert await produced(api, 1)
    assert victim.read_text() == "precious"
    assert (data / ".kafka_cleanshutdown").read_text().startswith("{")
    written = [data / name for name in CHECKPOINTS] + [data / "t-0" / name for name in FILES_OF_A_PARTITION]
    assert not any(path.is_symlink() for path in written)
    met = set(CHECKPOINTS) - {path.name.removesuffix(".tmp") for path in data.glob("*.tmp")}
    assert met >= {".kafka_cleanshutdown", "meta.properties", "metadata.journal", "metadata.snapshot"}
