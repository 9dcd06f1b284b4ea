"""Cost of making and verifying an incarnation proof, compared with handling an advert.

    python bench/incarnation_proofs.py

A proof is made once per incarnation and verified once by each broker; adverts come whenever a link changes. The advert
is one of four links, each with a changed latency, received by a broker with one neighbour. The certificates are
of P-256, issued by the authority itself. Prints a table and writes bench/out/incarnation_proofs.json.
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

from overlane.core.broker import OverlayBroker
from overlane.core.config import BrokerConfig
from overlane.core.events import LinkUp
from overlane.core.qos import QosTable
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import Advert, LinkClaim, encode
from overlane.network.schema import Security
from overlane.node.security.incarnation_proof import CertifiedIdentity, ProofRejected, prove
from overlane.testbed.certificates import Authority

OUT = Path(__file__).parent / "out" / "incarnation_proofs.json"
ROUNDS = 9
TIMES = 100
INCARNATION = int(time())


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
    broker = OverlayBroker(BrokerConfig("a", QosTable({})), 1)
    broker.handle(LinkUp("b"), 1)
    broker.receive("b", frame_codec.hello("b", 1), 1)
    broker.flush(1)

    def hear(number: int) -> object:
        links = [LinkClaim(peer, 1_000 + number % 2, 0, 0, 0, 1) for peer in "defg"]
        frame = frame_codec.control(number, encode(Advert("c", 1, number + 1, links, {}, 0)))
        return broker.receive("b", frame, 1), broker.flush(1)

    return hear


def refuse(identity: CertifiedIdentity, proof: bytes) -> None:
    with suppress(ProofRejected):
        identity.check("c", INCARNATION, proof)


def main() -> None:
    with TemporaryDirectory() as directory:
        authority = Authority(Path(directory))
        own = authority.broker("c")
        security = Security(certificate=str(own.certificate), key=str(own.key), client_ca=str(authority.ca))
        identity = CertifiedIdentity("c", INCARNATION, security)
        certificate, key = own.certificate.read_bytes(), own.key.read_bytes()
    proof = identity.proof
    assert proof is not None
    damaged = proof[:-1] + bytes((proof[-1] ^ 1,))
    advert_us = median_us(hearer())
    measured = {
        "handle an advert": advert_us,
        "make a proof": median_us(lambda _: prove("c", INCARNATION, certificate, key)),
        "verify a valid proof": median_us(lambda _: identity.check("c", INCARNATION, proof)),
        "verify an invalid proof": median_us(lambda _: refuse(identity, damaged)),
    }
    table = Table("", "us", "x advert", title=f"An incarnation proof of {len(proof)} bytes", title_justify="left")
    for name, us in measured.items():
        table.add_row(name, f"{us:.0f}", f"{us / advert_us:.1f}")
    Console().print(table)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"proof_bytes": len(proof), "us": measured}, indent=1))


if __name__ == "__main__":
    main()
