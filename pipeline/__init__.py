"""Topics to lake tables with PySpark. Knows no broker: it speaks Kafka, or reads log files.

Of the broker's rooms only `protocol` is imported, and only by `segments`: log files hold batches as the wire does.

The packages, top to bottom; each one imports only those below it:

    demo        `make pipeline-demo`
    jobs        the commands: ingest, backfill, compact, report, doctor
    report      what people see: progress, findings, the report and its page
    sinks       where rows go, once for each batch
    state       what a pipeline remembers: places, batches, the ledger
    kafka       what brokers are asked and told; records as the connector reads them
    parse       records to rows (beside kafka)
    spark       Spark itself: session, Java, jars, its errors
    segments    records of log files, without a broker
    settings    the table of settings (beside segments)
    durations   lengths of time in settings
    errors      what a job ends with

A record is read by `kafka`, judged and shaped by `parse`, written by a sink, and counted in the ledger.
"""
