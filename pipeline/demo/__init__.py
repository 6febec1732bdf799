"""A lively data set, and a run of the whole pipeline over it: `make pipeline-demo`."""
