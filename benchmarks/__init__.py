"""`make bench`: this broker beside Apache Kafka, and beside its own earlier versions.

`__main__.py` has the command, `report.py` the page, `measurement.py` what is measured and how. The rows are in
`*_rows.py` and `*_row.py`; `contestants.py` starts the brokers.
"""
