"""Topics to lake tables with PySpark. Independent of the broker: reads over the Kafka protocol, or from log files.

Of the packages of the broker, `segments` imports `protocol`: batches in log files have the same format as on the wire.
`kafka/security.py` imports what secures the connections of Odradek's own clients. Nothing else does.

The packages, top to bottom; each imports only the packages below it:

    demo        `make pipeline-demo`
    jobs        the commands: ingest, backfill, compact, report, doctor
    report      output for users: progress, findings, the report and its page
    sinks       write the rows, each batch once
    state       persistent state: places, batches, the ledger
    kafka       requests to the brokers; records as the connector reads them
    parse       records to rows (on the same level as kafka)
    spark       Spark itself: session, Java, jars, its errors
    registry    schema registries: the client, and schemas (on the same level as spark)
    sections    several pipelines in one settings file
    segments    records from log files, without a broker
    settings    the table of settings (on the same level as segments)
    variables   variables of the environment in settings, and how they remain secret
    durations   durations in settings
    errors      the errors that end a job

A record is read by `kafka`, validated and converted by `parse`, written by a sink, and counted in the ledger.
"""
