"""Our own code for Spark's executors, which take functions of importable modules by their names.

An executor of a cluster has what is installed there, and what `spark-submit --py-files` brought as a .zip, .egg or
.jar. (A wheel given to `--py-files` is importable in the driver only: PySpark puts no .whl in the workers' path.)
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import odradek
from odradek.pipeline.spark.master import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SHIPPED = ("pipeline", "protocol")
"""The packages of odradek that executors need: the pipeline, and what its segments import."""
_NAME = "odradek_pipeline_"
_AS_PACKAGES = (".zip", ".egg", ".jar")
"""What PySpark puts in the workers' path."""


def ship_package(session: SparkSession) -> None:
    """Sends the pipeline's code to the executors of a cluster, once a context, unless --py-files brought it."""
    context = session.sparkContext
    if is_local(str(context.master)) or _is_brought(context):
        return
    content = package_archive()
    name = f"{_NAME}{sha256(content).hexdigest()[:16]}.zip"
    if any(path.endswith(f"/{name}") for path in context.listFiles):
        return
    directory = Path(tempfile.mkdtemp(prefix="odradek-package-"))  # Spark serves it as long as the context lives
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    (directory / name).write_bytes(content)
    context.addPyFile(str(directory / name))


def _is_brought(context: SparkContext) -> bool:
    """Whether one of --py-files, as they lie in this machine, has the pipeline for the workers."""
    from pyspark import SparkFiles

    given = context.getConf().get("spark.submit.pyFiles", "") or ""
    names = [PurePosixPath(path).name for path in given.split(",") if path.lower().endswith(_AS_PACKAGES)]
    return any(_has_pipeline(Path(SparkFiles.get(name))) for name in names)


def _has_pipeline(archive: Path) -> bool:
    try:
        with zipfile.ZipFile(archive) as files:
            return "odradek/pipeline/__init__.py" in files.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def package_archive() -> bytes:
    """A zip of the packages' Python and data files; the same bytes for the same files. Reads them also from a zip."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        root = files(odradek)
        archive.writestr(_entry("odradek/__init__.py"), (root / "__init__.py").read_bytes())
        for package in SHIPPED:
            for name, file in sorted(_files(root / package, f"odradek/{package}"), key=lambda one: one[0]):
                archive.writestr(_entry(name), file.read_bytes())
    return out.getvalue()


def _files(directory: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    for one in directory.iterdir():
        path = f"{name}/{one.name}"
        if one.is_dir() and one.name != "__pycache__":
            yield from _files(one, path)
        elif one.name.endswith((".py", ".xml", ".html")):
            yield path, one


def _entry(name: str) -> zipfile.ZipInfo:
    """An entry whose time is always the same, compressed."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
