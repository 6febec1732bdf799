"""Records to rows: the schema, what values hold, which rows are good, dead or repeated.

Pure functions from DataFrame to DataFrame, the same for streams and for batches.
"""
