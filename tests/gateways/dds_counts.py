"""Applications of two implementations of DDS that exchange counts, and know nothing of gateways.

dds_counts.py cyclone|dust write|read TOPIC

A writer reads lines "ID VALUE" from standard input; a reader prints them.
"""

import sys
import time
from dataclasses import dataclass, make_dataclass
from importlib import import_module
from typing import Any


def cyclone(role: str, name: str) -> None:
    from cyclonedds.core import Policy, Qos
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.idl import IdlStruct
    from cyclonedds.idl.types import int32
    from cyclonedds.pub import DataWriter
    from cyclonedds.sub import DataReader
    from cyclonedds.topic import Topic
    from cyclonedds.util import duration

    @dataclass
    class Count(IdlStruct, typename="Count"):  # type: ignore[call-arg,misc]
        id: int32
        value: int32

    participant = DomainParticipant(0)
    topic = Topic(participant, name, Count)
    qos = Qos(Policy.Reliability.Reliable(duration(seconds=5)), Policy.History.KeepAll)
    print("ready", flush=True)
    if role == "write":
        writer = DataWriter(participant, topic, qos=qos)
        for line in sys.stdin:
            writer.write(Count(*map(int, line.split())))
        return
    reader = DataReader(participant, topic, qos=qos)
    while True:
        for sample in reader.take(20):
            if sample.sample_info.valid_data:
                print(sample.id, sample.value, flush=True)
        time.sleep(0.02)


def dust(role: str, name: str) -> None:
    dds: Any = import_module("dust_dds")
    number = dds.TypeKind.int32
    count: Any = make_dataclass("Count", [("id", number), ("value", number)])
    participant = dds.DomainParticipantFactory.get_instance().create_participant(domain_id=0)
    topic = participant.create_topic(name, count)
    history = dds.HistoryQosPolicy(dds.HistoryQosPolicyKind.KeepAll())
    print("ready", flush=True)
    if role == "write":
        writer = participant.create_publisher().create_datawriter(topic, dds.DataWriterQos(history=history))
        for line in sys.stdin:
            writer.write(count(*map(int, line.split())))
        return
    qos = dds.DataReaderQos(reliability=dds.DEFAULT_RELIABILITY_QOS_POLICY_DATA_WRITER, history=history)
    reader = participant.create_subscriber().create_datareader(topic, qos)
    while True:
        try:
            samples = reader.take(20)
        except Exception:  # it has none
            samples = []
        for sample in samples:
            print(sample.get_data().id, sample.get_data().value, flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    {"cyclone": cyclone, "dust": dust}[sys.argv[1]](*sys.argv[2:])
