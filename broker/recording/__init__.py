"""Compares what brokers answer to the same requests.

    comparison.py       what may differ between two answers, and what does

A package of the client's side, as `broker/admin/`.

Callers: tests. The broker itself does not use it.
"""
