"""Spark itself: how it is started, and what it says when something goes wrong."""
