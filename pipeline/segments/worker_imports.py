"""Avoids unneeded work of Spark's Python workers at each task.

A worker starts each task with importlib.invalidate_caches(), and the zip importers of Python 3.11 then immediately
reread the directories of their archives: for pyspark.zip and spark-core.jar this takes 0.15 s of processor time, as
much as 100 MB of a segment. An importer that is not in sys.path_importer_cache is not invalidated; the next import that
needs it creates it again, from the directory that zipimport has cached.
"""

from __future__ import annotations

import re
import sys
from collections.abc import MutableMapping
from typing import Any
from zipimport import zipimporter

_ARCHIVES = re.compile(r".*/(pyspark\.zip|py4j-[^/]*\.zip|spark-core_[^/]*\.jar)(/.*)?")
"""Spark's own archives, which do not change while Spark is running."""


def spare_archives(importers: MutableMapping[str, Any] = sys.path_importer_cache) -> None:
    """Removes the importers of Spark's archives, so that the worker does not reread the archives."""
    for path in [path for path, one in importers.items() if isinstance(one, zipimporter) and _ARCHIVES.fullmatch(path)]:
        del importers[path]
