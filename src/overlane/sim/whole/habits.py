"""How a client connects: version, keep-alive, will, and whether its session outlives the connection."""

from dataclasses import dataclass

import mqtt5

from overlane.core.units import NEVER, SECOND, Nanos
from overlane.sim.whole.message import SimulatedMessage

EXPIRY_S = 86_400


@dataclass(frozen=True, slots=True)
class Habits:
    """How a client connects. A `will` is published on its own topic, `w/` and the client's name.

    `is_passing`: it begins a session that ends with the connection, and does not come back by itself.
    """

    is_v5: bool = True
    keep_alive_s: int = 0
    will_qos: int | None = None
    will_delay_s: int = 0
    is_passing: bool = False

    @property
    def keep_alive_ns(self) -> Nanos:
        return self.keep_alive_s * SECOND or NEVER

    def will_of(self, client: str, connection: int) -> SimulatedMessage | None:
        return None if self.will_qos is None else SimulatedMessage(client, f"w/{client}", connection, self.will_qos)

    def connect_packet(self, client: str, will: SimulatedMessage | None, receive_max: int) -> mqtt5.ConnectPacket:
        last_words = None
        if will is not None:
            last_words = mqtt5.Will(
                will.topic,
                payload=will.payload(),
                qos=mqtt5.QoS(will.qos),
                will_delay_interval=self.will_delay_s,
            )
        return mqtt5.ConnectPacket(
            client,
            clean_start=self.is_passing,
            keep_alive=self.keep_alive_s,
            session_expiry_interval=0 if self.is_passing else EXPIRY_S,
            receive_max=receive_max,
            will=last_words,
        )
