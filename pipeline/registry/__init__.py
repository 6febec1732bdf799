"""Schema registries: a client of Confluent's API, and the schemas that a pipeline has read with it. Without Spark."""
