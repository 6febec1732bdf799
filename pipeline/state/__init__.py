"""What a pipeline remembers: where its tables are, and which batches they have."""
