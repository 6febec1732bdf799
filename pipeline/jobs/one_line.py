"""Turns errors of disks, stores and tables into the one line that ends a job. Imports Spark only after an error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def one_line(doing: str) -> Iterator[None]:
    """Raises a PipelineError in place of such an error. `doing`: what failed, as in "the report failed"."""
    from deltalake.exceptions import DeltaError
    from obstore.exceptions import BaseError

    try:
        yield
    except (OSError, DeltaError, BaseError) as error:
        from odradek.pipeline.spark.errors import as_pipeline_error

        raise as_pipeline_error(error, doing) from error
