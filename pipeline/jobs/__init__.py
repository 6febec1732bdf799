"""A module for each command: `run(settings, ...)` does the job; `odradek pipeline NAME` calls it."""
