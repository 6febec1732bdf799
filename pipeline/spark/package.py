"""Ships the pipeline's code to Spark's executors, which import functions of modules by their names.

An executor of a cluster has the packages installed there, and those of `spark-submit --py-files` in a .zip, .egg or
.jar. (A wheel in `--py-files` is importable in the driver only: PySpark adds no .whl to the workers' path.)
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
"""The suffixes of the files that PySpark adds to the workers' path."""


def ship_package(session: SparkSession) -> None:
    """Sends the pipeline's code to the executors of a cluster, once per context, unless --py-files contains it."""
    context = session.sparkContext
    if is_local(str(context.master)) or _is_brought(context):
        return
    content = package_archive()
    name = f"{_NAME}{sha256(content).hexdigest()[:16]}.zip"
    if any(path.endswith(f"/{name}") for path in context.listFiles):
        return
    directory = Path(tempfile.mkdtemp(prefix="odradek-package-"))  # Spark serves it for the life of the context
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    (directory / name).write_bytes(content)
    context.addPyFile(str(directory / name))


def _is_brought(context: SparkContext) -> bool:
    """Whether one of the --py-files contains the pipeline, and is importable by the workers."""
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
    """Returns a zip of the packages' Python and data files. Reproducible. The files may themselves be in a zip."""
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
    """Returns a compressed entry with a constant time."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
