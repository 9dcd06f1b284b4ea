"""What it costs to prove a broker's life and to check the proof, against hearing an advert.

    python bench/births.py

A birth is made once in a life and checked once by each broker; adverts come whenever a link changes. The advert is one
of four links, of which the latency of each has changed, heard by a broker that has one neighbour. The certificates are
of P-256, issued by the authority itself. Prints a table and writes bench/out/births.json.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter_ns, time

from rich.console import Console
from rich.table import Table

from overlane.core import wire
from overlane.core.broker import Broker
from overlane.core.config import BrokerConfig
from overlane.core.events import LinkUp
from overlane.core.messages import Advert, LinkClaim, encode
from overlane.core.qos import QosTable
from overlane.network.schema import Security
from overlane.node.birthproof import CertifiedIdentity, Untrue, prove
from overlane.testbed.certificates import Authority

OUT = Path(__file__).parent / "out" / "births.json"
ROUNDS = 9
TIMES = 100
LIFE = int(time())


def median_us(work: Callable[[int], object]) -> float:
    """Of one, in the median of rounds."""
    found = []
    for round_ in range(ROUNDS):
        start = perf_counter_ns()
        for number in range(TIMES):
            work(round_ * TIMES + number)
        found.append((perf_counter_ns() - start) / TIMES / 1_000)
    return median(found)


def hearer() -> Callable[[int], object]:
    """A broker that hears one advert after the other."""
    broker = Broker(BrokerConfig("a", QosTable({})), 1)
    broker.handle(LinkUp("b"), 1)
    broker.receive("b", wire.hello("b", 1), 1)
    broker.flush(1)

    def hear(number: int) -> object:
        links = [LinkClaim(peer, 1_000 + number % 2, 0, 0, 0, 1) for peer in "defg"]
        frame = wire.control(number, encode(Advert("c", 1, number + 1, links, {}, 0)))
        return broker.receive("b", frame, 1), broker.flush(1)

    return hear


def refuse(identity: CertifiedIdentity, proof: bytes) -> None:
    with suppress(Untrue):
        identity.check("c", LIFE, proof)


def main() -> None:
    with TemporaryDirectory() as directory:
        authority = Authority(Path(directory))
        own = authority.broker("c")
        security = Security(certificate=str(own.certificate), key=str(own.key), client_ca=str(authority.ca))
        identity = CertifiedIdentity("c", LIFE, security)
        certificate, key = own.certificate.read_bytes(), own.key.read_bytes()
    proof = identity.proof
    assert proof is not None
    damaged = proof[:-1] + bytes((proof[-1] ^ 1,))
    advert_us = median_us(hearer())
    measured = {
        "an advert is heard": advert_us,
        "a birth is proved": median_us(lambda _: prove("c", LIFE, certificate, key)),
        "a true one is checked": median_us(lambda _: identity.check("c", LIFE, proof)),
        "a false one is checked": median_us(lambda _: refuse(identity, damaged)),
    }
    table = Table("", "us", "x advert", title=f"A birth, whose proof has {len(proof)} bytes", title_justify="left")
    for name, us in measured.items():
        table.add_row(name, f"{us:.0f}", f"{us / advert_us:.1f}")
    Console().print(table)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"proof_bytes": len(proof), "us": measured}, indent=1))


if __name__ == "__main__":
    main()
