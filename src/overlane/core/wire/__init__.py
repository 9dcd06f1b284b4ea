"""Bytes between brokers: frames, control messages, and the content of parcels. Pure functions and values."""

__all__ = ["control_messages", "frame_codec", "message_fields", "mixed_run", "parcel"]
