"""Two names of one file: what is done through one is not seen through the other."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.storage.files import File
from odradek.storage.linked_files import LinkingFiles

CONTENT = bytes(range(256)) * 5000


def overwrite(file: File) -> None:
    file.write((b"new", b"er"), 100)


def append(file: File) -> None:
    file.write((b"more",), len(CONTENT))


def cut(file: File) -> None:
    file.truncate(10)


def reserve(file: File) -> None:
    file.allocate(len(CONTENT) + 100)


CHANGES: tuple[Callable[[File], None], ...] = (overwrite, append, cut, reserve)


@pytest.fixture
def files() -> LinkingFiles:
    return LinkingFiles()


@pytest.fixture
def names(tmp_path: Path, files: LinkingFiles) -> tuple[Path, Path]:
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    first.write_bytes(CONTENT)
    assert files.link(str(first), str(second))
    return first, second


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("changed", [0, 1])
def test_a_change_through_one_name_leaves_the_other_alone(
    names: tuple[Path, Path], files: LinkingFiles, change: Callable[[File], None], changed: int
) -> None:
    mine, other = names[changed], names[1 - changed]
    before = other.stat()
    file = files.open(str(mine))
    change(file)
    file.sync()
    expected = file.read(0, file.size())
    file.close()
    assert mine.read_bytes() == expected != CONTENT
    assert other.read_bytes() == CONTENT
    after = other.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_nlink) == (before.st_ino, before.st_mtime_ns, 1)
    assert sorted(path.name for path in mine.parent.iterdir()) == ["first.log", "second.log"]


def test_a_file_that_is_only_read_keeps_its_room_in_common(names: tuple[Path, Path], files: LinkingFiles) -> None:
    file = files.open(str(names[1]))
    assert file.read(0, len(CONTENT)) == CONTENT
    file.sync()
    file.close()
    assert names[0].stat().st_ino == names[1].stat().st_ino


def test_only_files_that_are_not_temporary_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[object] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    for files in (LinkingFiles(is_temporary=True), LinkingFiles()):
        assert not synced
        files.replace_file(str(tmp_path / "replaced"), b"x")
        files.link(str(tmp_path / "replaced"), str(tmp_path / "linked"))
        files.sync_file(str(tmp_path / "replaced"))
        files.sync_directory(str(tmp_path))
        for name in ("own", "linked"):
            file = files.open(str(tmp_path / name), create=True)
            duplicate = file.duplicate()
            file.write((b"y",), 0)
            file.sync()
            duplicate.sync()
            duplicate.close()
            file.close()
            (tmp_path / name).unlink()
    assert len(synced) == 8


def test_slices_and_duplicates_from_before_a_change_go_on_with_what_they_had(
    names: tuple[Path, Path], files: LinkingFiles
) -> None:
    file = files.open(str(names[1]))
    duplicate = file.duplicate()
    sent = file.slice(0, len(CONTENT))
    cut(file)
    file.close()
    assert duplicate.read(0, len(CONTENT)) == CONTENT
    duplicate.close()
    assert sent is not None
    assert len(sent) == len(CONTENT)


def test_a_copy_that_fails_leaves_both_names_as_they_were(
    names: tuple[Path, Path], files: LinkingFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    file = files.open(str(names[1]))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match=r"second\.log") as raised:
            cut(file)
    assert raised.value.errno == errno.ENOSPC
    assert [path.read_bytes() for path in names] == [CONTENT, CONTENT]
    assert sorted(path.name for path in names[0].parent.iterdir()) == ["first.log", "second.log"]
    cut(file)
    file.close()
    assert names[0].read_bytes() == CONTENT


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EMLINK])
def test_a_link_that_the_file_system_refuses_is_false(
    tmp_path: Path, files: LinkingFiles, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    (tmp_path / "first").write_bytes(b"x")
    monkeypatch.setattr(os, "link", refused)
    assert not files.link(str(tmp_path / "first"), str(tmp_path / "second"))
    assert not (tmp_path / "second").exists()


def test_a_reflink_has_the_content_or_does_not_exist(tmp_path: Path, files: LinkingFiles) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(CONTENT)
    shared = files.reflink(str(source), str(target))
    assert target.exists() == shared
    assert not shared or target.read_bytes() == CONTENT
    assert source.read_bytes() == CONTENT
