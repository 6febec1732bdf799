"""Topics to lake tables with PySpark. Knows nothing of the broker's packages: it speaks Kafka, or reads log files.

The path of a record: `sources.py` reads it, `parsing.py` and `transforms.py` judge and shape it (pure DataFrame
functions), a sink writes it, and the ledger counts it. `jobs/` puts these together, a file for each command.
"""
