"""A module for each command: `odradek pipeline NAME` calls its `run(settings, ...)`."""
