"""What OsFiles promises about other users of the machine."""

import os
import stat
from pathlib import Path

import pytest

from odradek.storage.files import OsFiles


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    return victim


def test_what_it_makes_is_its_owners_alone(tmp_path: Path) -> None:
    files = OsFiles()
    before = os.umask(0)
    try:
        files.make_directories(str(tmp_path / "data"))
        files.open(str(tmp_path / "data" / "a.log"), create=True).close()
        files.replace_file(str(tmp_path / "data" / "checkpoint"), b"0\n")
        lock = files.lock(str(tmp_path / "data" / ".lock"))
        assert lock is not None
        lock.release()
    finally:
        os.umask(before)
    assert mode(tmp_path / "data") == 0o700
    assert {path.name: mode(path) for path in (tmp_path / "data").iterdir()} == dict.fromkeys(
        (".lock", "a.log", "checkpoint"), 0o600
    )


@pytest.mark.parametrize("sync", [True, False])
def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path: Path, victim: Path, sync: bool) -> None:
    (tmp_path / "checkpoint.tmp").symlink_to(victim)
    OsFiles().replace_file(str(tmp_path / "checkpoint"), b"new", sync=sync)
    assert victim.read_text() == "precious"
    assert (tmp_path / "checkpoint").read_bytes() == b"new"
    assert not (tmp_path / "checkpoint").is_symlink()
    assert not (tmp_path / "checkpoint.tmp").is_symlink()


def test_a_hard_link_in_the_place_of_the_temporary_file_is_not_written(tmp_path: Path, victim: Path) -> None:
    os.link(victim, tmp_path / "checkpoint.tmp")
    OsFiles().replace_file(str(tmp_path / "checkpoint"), b"new")
    assert victim.read_text() == "precious"


def test_what_a_crash_left_of_a_temporary_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.tmp").write_bytes(b"half of someth")
    OsFiles().replace_file(str(tmp_path / "checkpoint"), b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert (tmp_path / "checkpoint").read_bytes() == b"new"


@pytest.mark.parametrize("exclusive", [True, False])
def test_no_file_is_made_through_a_link(tmp_path: Path, victim: Path, exclusive: bool) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "a.log").symlink_to(victim)
    for name in ("dangling", "a.log"):
        with pytest.raises(OSError, match=name):
            OsFiles().open(str(tmp_path / name), create=True, exclusive=exclusive)
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"\.lock"):
        OsFiles().lock(str(tmp_path / ".lock"))
    assert not (tmp_path / "elsewhere").exists()


def test_permissions_of_others_are_taken_away_once_and_a_link_is_left_alone(tmp_path: Path, victim: Path) -> None:
    files = OsFiles()
    victim.chmod(0o644)
    (tmp_path / "link").symlink_to(victim)
    assert not files.make_private(str(tmp_path / "link"))
    assert mode(victim) == 0o644
    assert files.make_private(str(victim))
    assert mode(victim) == 0o600
    assert not files.make_private(str(victim))
