"""The sinks, which write each batch exactly once."""
