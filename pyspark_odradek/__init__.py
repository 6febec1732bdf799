"""`spark.read.format("odradek")`: found by PySpark by its name, without registering."""
