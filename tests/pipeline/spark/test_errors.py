"""Spark's errors as one readable sentence."""

import pytest

from odradek.pipeline.spark.errors import as_pipeline_error


@pytest.mark.parametrize(
    ("message", "explanation"),
    [
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited",
            "Spark's Java process did not start, see the lines above",
        ),
        ("java.lang.ArithmeticException: long overflow", "a time is beyond the range of Spark"),
        (
            "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
            'Traceback (most recent call last):\n  File "table_files.py", line 1, in _write\n    made = {"Error: 1"}\n'
            "OSError: [Errno 36] Cannot create directory 'name=xxx'. Detail: [errno 36] File name too long\n",
            "a value of partition-by is too long for a directory name: OSError: [Errno 36] Cannot create dir",
        ),
        (
            "An exception was thrown from the Python worker. Please see the stack trace below.\n"
            'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n    raise PipelineError\n'
            "pipeline.errors.PipelineError: 0.log is damaged at position 107; restore it\n",
            "the ingest failed: 0.log is damaged at position 107; restore it",
        ),
        ("something else", "the ingest failed: something else"),
    ],
)
def test_sparks_short_errors_are_explained(message: str, explanation: str) -> None:
    assert str(as_pipeline_error(RuntimeError(message), "the ingest failed")).startswith(explanation)
