"""What disks, stores and tables raise, as the one line that a job ends with. Imports no Spark before an error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def one_line(doing: str) -> Iterator[None]:
    """Raises a PipelineError instead. `doing`: what failed, as in "the report failed"."""
    from deltalake.exceptions import DeltaError
    from obstore.exceptions import BaseError

    try:
        yield
    except (OSError, DeltaError, BaseError) as error:
        from odradek.pipeline.spark.errors import as_pipeline_error

        raise as_pipeline_error(error, doing) from error
