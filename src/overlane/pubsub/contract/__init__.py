"""The contract between pubsub and client protocols: connections, consumers, questions to the driver, refusals."""

__all__ = ["connection", "consumer", "protocol", "questions", "refused"]
