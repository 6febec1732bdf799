"""Records to rows: the schema, the decoding of values, and which rows are good, dead or duplicates.

Pure functions from DataFrame to DataFrame, for streams and batches alike.
"""
