"""The data source of `spark.read.format("odradek")`. PySpark finds it by the package name, without registration."""

from odradek.pipeline.segments.source import SegmentSource as DefaultSource

__all__ = ["DefaultSource"]
