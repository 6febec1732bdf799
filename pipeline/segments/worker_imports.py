"""What a Python worker of Spark does again whenever it is asked for something, and need not.

A worker begins each task with importlib.invalidate_caches(), and the zip importers of Python 3.11 then read their
archives' directories at once: those of pyspark.zip and spark-core.jar take 0.15 s of processor time, as much as
100 MB of a segment. An importer that sys.path_importer_cache does not hold is not told; the next import that looks
there makes it anew, of the directory that zipimport has kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import MutableMapping
from typing import Any
from zipimport import zipimporter

_ARCHIVES = re.compile(r".*/(pyspark\.zip|py4j-[^/]*\.zip|spark-core_[^/]*\.jar)(/.*)?")
"""Spark's own, which do not change while it runs."""


def spare_archives(importers: MutableMapping[str, Any] = sys.path_importer_cache) -> None:
    """Takes the importers of Spark's archives out, so that the worker does not read those again."""
    for path in [path for path, one in importers.items() if isinstance(one, zipimporter) and _ARCHIVES.fullmatch(path)]:
        del importers[path]
