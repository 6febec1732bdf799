"""Iceberg tables, written by pyiceberg beside Spark. Reading order:

* `sink.py`: each batch becomes one snapshot. `windows.py` and `upserts.py` replace files in it.
* `tables.py`: opens, creates and commits to tables, in a catalog of pyiceberg or without one (`directory_catalog.py`).
* `batches.py`: the numbers of the batches that a table has.
* `columns.py`: the types of columns, and how they grow. `data_files.py`: what a snapshot says about a file.
* `compaction.py`: merges small files, and removes the files of old snapshots.

`batch_tables.py` and the jobs import these modules only if the sink is iceberg.
"""
