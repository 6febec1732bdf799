"""What the pipeline asks and tells the brokers, and what it reads of them: topics, offsets, records."""
