"""Topics as a source and a sink of Spark Structured Streaming."""

__all__: list[str] = []
