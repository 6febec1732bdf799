"""Starts Spark, configures it, and translates its errors."""
