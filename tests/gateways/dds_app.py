"""An application of DDS (Cyclone DDS) in a process of its own: it knows nothing of gateways.

dds_app.py write DOMAIN TOPIC      reads lines "ID VALUE" or "dispose ID" from standard input
dds_app.py read DOMAIN TOPIC       prints "ID VALUE SOURCE_NS" or "disposed ID"
"""

import sys
import time
from dataclasses import dataclass

from cyclonedds.core import InstanceState, Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import key
from cyclonedds.idl.types import int32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration


@dataclass
class Reading(IdlStruct, typename="plant.Reading"):  # type: ignore[call-arg,misc]
    id: int32
    key("id")
    value: float
    unit: str


def main() -> None:
    role, domain, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    participant = DomainParticipant(domain)
    topic = Topic(participant, name, Reading)
    qos = Qos(
        Policy.Reliability.Reliable(duration(seconds=5)),
        Policy.Durability.TransientLocal,
        Policy.History.KeepLast(20),
        Policy.DestinationOrder.BySourceTimestamp,
    )
    print("ready", flush=True)
    if role == "write":
        writer = DataWriter(participant, topic, qos=qos)
        for line in sys.stdin:
            first, second = line.split()
            if first == "dispose":
                writer.dispose(Reading(int(second), 0.0, ""))
            else:
                writer.write(Reading(int(first), float(second), "C"))
    else:
        reader = DataReader(participant, topic, qos=qos)
        while True:
            for sample in reader.take(20):
                info = sample.sample_info
                if info.valid_data:
                    print(sample.id, sample.value, info.source_timestamp, flush=True)
                if info.instance_state == InstanceState.NotAliveDisposed:
                    print("disposed", sample.id if info.valid_data else sample.key_sample.id, flush=True)
            time.sleep(0.02)


if __name__ == "__main__":
    main()
