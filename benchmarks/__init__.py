"""`make bench`: this broker beside Apache Kafka, and beside its own earlier versions.

`__main__.py` has the command, `report.py` the page, `measurement.py` what is measured and how. The files that end with
`_rows.py` or `_row.py` have the rows; `contestants.py` starts the brokers.
"""
