"""`spark.read.format("odradek")`: found by PySpark by its name, without registering."""

from odradek.pipeline.segments.source import SegmentSource as DefaultSource

__all__ = ["DefaultSource"]
