"""The persistent state of a pipeline: where its tables are, and which batches they contain."""
