"""Access to the brokers: topics, offsets, records, and the shadow group's commits."""
