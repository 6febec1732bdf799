"""What a Spark worker imports. It reads Spark's archives once, and can still import from them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

from odradek.pipeline.segments.worker_imports import spare_archives

ROOT = Path(__file__).parent.parent.parent.parent


def archive(path: Path, module: str) -> str:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(f"{module}.py", "answer = 42")
    return str(path)


def test_only_the_importers_of_sparks_own_archives_are_removed(tmp_path: Path) -> None:
    importers: dict[str, zipimport.zipimporter | None] = {}
    for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.0.0.jar", "mine.zip"):
        path = archive(tmp_path / name, "some")
        importers[path] = zipimport.zipimporter(path)
    importers["/usr/lib/pyspark.zip"] = None
    spare_archives(importers)
    assert [path.rpartition("/")[2] for path in importers] == ["mine.zip", "pyspark.zip"]


def test_sparks_archives_are_not_read_again_and_can_still_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path / "pyspark.zip", "kept_in_an_archive")
    monkeypatch.syspath_prepend(path)
    assert importlib.util.find_spec("kept_in_an_archive") is not None
    assert path in sys.path_importer_cache
    read: list[str] = []
    read_directory = zipimport._read_directory  # type: ignore[attr-defined]

    def noted(path: str) -> object:
        read.append(path)
        return read_directory(path)

    monkeypatch.setattr(zipimport, "_read_directory", noted)
    importlib.invalidate_caches()
    if sys.version_info < (3, 12):
        assert path in read  # the expensive part
    read.clear()
    spare_archives()
    importlib.invalidate_caches()
    assert path not in read
    assert importlib.import_module("kept_in_an_archive").answer == 42


@pytest.mark.parametrize(
    ("module", "of_the_protocol"),
    [
        ("source", set()),
        ("reading", {"batch_header", "compression", "compression_errors", "errors"}),
        (
            "planning",
            {
                "batch_contents",
                "batch_header",
                "compression",
                "compression_errors",
                "control_records",
                "errors",
                "record",
            },
        ),
    ],
)
def test_a_worker_imports_only_a_few_protocol_modules_of_the_broker(module: str, of_the_protocol: set[str]) -> None:
    loaded = modules_after(f"import odradek.pipeline.segments.{module}")
    packages = {name.split(".")[1] for name in loaded if name.startswith("odradek.")}
    assert packages == ({"pipeline", "protocol"} if of_the_protocol else {"pipeline"})
    assert {name.split(".")[2] for name in loaded if name.startswith("odradek.protocol.")} == of_the_protocol
    assert "asyncio" not in loaded


def modules_after(statement: str) -> set[str]:
    """The modules that a new Python has loaded after the statement, without the second halves of compiled modules."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return {name for name in done.stdout.split() if not name.endswith("__mypyc")}
