"""What is wrong with a packet, in the words of MQTT 5: a reason code and a sentence.

The specification (section 4.13) tells two kinds of wrong apart. A malformed packet cannot be parsed as it says. A
protocol error is a packet that can be parsed but says what must not be said, such as the same property twice. A few
mistakes have reason codes of their own. Version 3.1.1 has no words for any of it: there the connection just ends, and
the reason is for the log.
"""

from typing import Final

from overlane.errors import OverlaneError

MALFORMED_PACKET: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
UNSUPPORTED_PROTOCOL_VERSION: Final = 0x84
TOPIC_NAME_INVALID: Final = 0x90
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
QUOTA_EXCEEDED: Final = 0x97
PAYLOAD_FORMAT_INVALID: Final = 0x99


class Malformed(OverlaneError, ValueError):
    """The peer's fault: the connection is to be closed with this reason."""

    error_code = "OVL-303"

    def __init__(self, reason: int, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
