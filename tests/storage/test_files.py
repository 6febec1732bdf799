"""What OsFiles guarantees about other users of the machine."""

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


def test_new_files_and_directories_are_private(tmp_path: Path) -> None:
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
def test_a_symbolic_link_under_the_temporary_name_is_not_followed(tmp_path: Path, victim: Path, sync: bool) -> None:
    (tmp_path / "checkpoint.tmp").symlink_to(victim)
    OsFiles().replace_file(str(tmp_path / "checkpoint"), b"new", sync=sync)
    assert victim.read_text() == "precious"
    assert (tmp_path / "checkpoint").read_bytes() == b"new"
    assert not (tmp_path / "checkpoint").is_symlink()
    assert not (tmp_path / "checkpoint.tmp").is_symlink()


def test_a_hard_link_under_the_temporary_name_is_not_written(tmp_path: Path, victim: Path) -> None:
    os.link(victim, tmp_path / "checkpoint.tmp")
    OsFiles().replace_file(str(tmp_path / "checkpoint"), b"new")
    assert victim.read_text() == "precious"


def test_a_temporary_file_left_by_a_crash_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.tmp").write_bytes(b"half of someth")
    OsFiles().replace_file(str(tmp_path / "checkpoint"), b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert (tmp_path / "checkpoint").read_bytes() == b"new"


@pytest.mark.parametrize("exclusive", [True, False])
def test_no_file_is_created_through_a_symbolic_link(tmp_path: Path, victim: Path, exclusive: bool) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "a.log").symlink_to(victim)
    for name in ("dangling", "a.log"):
        with pytest.raises(OSError, match=name):
            OsFiles().open(str(tmp_path / name), create=True, exclusive=exclusive)
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_is_not_taken_through_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"\.lock"):
        OsFiles().lock(str(tmp_path / ".lock"))
    assert not (tmp_path / "elsewhere").exists()


def test_permissions_of_others_are_removed_once_and_links_are_left_alone(tmp_path: Path, victim: Path) -> None:
    files = OsFiles()
    victim.chmod(0o644)
    (tmp_path / "link").symlink_to(victim)
    assert not files.make_private(str(tmp_path / "link"))
    assert mode(victim) == 0o644
    assert files.make_private(str(victim))
    assert mode(victim) == 0o600
    assert not files.make_private(str(victim))
