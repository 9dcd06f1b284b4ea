"""Bytes between brokers: frames, control messages, and the content of parcels. Pure functions and values."""

__all__ = ["control_messages", "fragments", "frame_codec", "message_fields", "mixed_run", "parcel", "route_answers"]
