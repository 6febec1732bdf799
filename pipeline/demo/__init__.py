"""A sample data set, and a run of the whole pipeline with it: `make pipeline-demo`."""
