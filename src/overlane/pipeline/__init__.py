"""The data pipeline on Spark: from the brokers' telemetry to load profiles, reliability, compliance and plans.

Every transformation is a pure function from DataFrames to a DataFrame of a declared schema, one module for each idea;
`definitions` makes a Spark Declarative Pipelines project of them, `running` runs it. Nothing here is imported by a
broker, and Spark is needed only by who runs the pipeline.
"""
