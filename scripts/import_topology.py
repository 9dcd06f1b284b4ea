"""Makes a network file from a map of the Internet Topology Zoo (GML).

    scripts/import_topology.py Abilene.gml > examples/networks/abilene.toml

A link's latency is the great-circle distance at 200,000 km/s, the speed of light in fibre, and at least 0.1 ms. Nodes
without coordinates, and what is then no longer joined to the largest part, are left out; parallel links are merged.
The head of the file says what was left out.
"""

import argparse
import math
import re
import sys
import textwrap
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from overlane.network import Broker, Link, Network, format_network, parse_network

EARTH_RADIUS_KM = 6371.0088
FIBRE_KM_PER_S = 200_000
LATENCY_US_MIN = 100
US = 1000

_TOKEN = re.compile(r'"[^"]*"|[\[\]]|[^\s\[\]"]+')


@dataclass(frozen=True)
class Node:
    label: str
    latitude: float | None
    longitude: float | None

    @property
    def is_placed(self) -> bool:
        return self.latitude is not None and self.longitude is not None


@dataclass(frozen=True)
class Map:
    name: str
    nodes: dict[str, Node]
    edges: list[tuple[str, str]]


Gml = list[tuple[str, "str | Gml"]]


def parse_gml(text: str) -> Gml:
    """GML as nested lists of (key, value): keys repeat."""
    tokens = iter(_TOKEN.findall(text))

    def pairs() -> Gml:
        found: Gml = []
        for key in tokens:
            if key == "]":
                break
            value = next(tokens)
            found.append((key, pairs() if value == "[" else value.strip('"')))
        return found

    return pairs()


def read_map(text: str) -> Map:
    graph = next(value for key, value in parse_gml(text) if key == "graph" and isinstance(value, list))
    nodes: dict[str, Node] = {}
    edges: list[tuple[str, str]] = []
    name = ""
    for key, value in graph:
        if key == "label":
            name = str(value)
        fields = {inner: str(inner_value) for inner, inner_value in value} if isinstance(value, list) else {}
        if key == "node":
            place = [float(fields[axis]) if axis in fields else None for axis in ("Latitude", "Longitude")]
            nodes[fields["id"]] = Node(fields["label"], *place)
        elif key == "edge":
            edges.append((fields["source"], fields["target"]))
    return Map(name, nodes, edges)


def largest_part(nodes: set[str], edges: list[tuple[str, str]]) -> set[str]:
    """The largest set of nodes that are all joined to each other; of equal ones that with the first node."""
    neighbours: dict[str, set[str]] = {node: set() for node in nodes}
    for one, other in edges:
        if one in nodes and other in nodes:
            neighbours[one].add(other)
            neighbours[other].add(one)
    parts: list[set[str]] = []
    rest = dict.fromkeys(sorted(nodes, key=int))
    while rest:
        part: set[str] = set()
        frontier = [next(iter(rest))]
        while frontier:
            node = frontier.pop()
            if node not in part:
                part.add(node)
                frontier.extend(neighbours[node])
        parts.append(part)
        rest = {node: None for node in rest if node not in part}
    return max(parts, key=len)


def latency_ns(one: Node, other: Node) -> int:
    """Whole microseconds: finer is not in the coordinates."""
    if one.latitude is None or one.longitude is None or other.latitude is None or other.longitude is None:
        raise ValueError("a distance needs two places")
    phi, phi_other = math.radians(one.latitude), math.radians(other.latitude)
    half_lat = (phi_other - phi) / 2
    half_lon = math.radians(other.longitude - one.longitude) / 2
    haversine = math.sin(half_lat) ** 2 + math.cos(phi) * math.cos(phi_other) * math.sin(half_lon) ** 2
    distance_km = 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(haversine))
    return max(round(distance_km / FIBRE_KM_PER_S * 1_000_000), LATENCY_US_MIN) * US


def slug(label: str) -> str:
    ascii_label = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_label).strip("-")


def names_of(nodes: dict[str, Node]) -> dict[str, str]:
    """Slugs, numbered where several nodes share one."""
    counts = Counter(slug(node.label) for node in nodes.values())
    seen: Counter[str] = Counter()
    names = {}
    for node_id, node in nodes.items():
        name = slug(node.label)
        seen[name] += 1
        names[node_id] = name if counts[name] == 1 else f"{name}-{seen[name]}"
    return names


def network_of(source: Map) -> tuple[Network, list[str]]:
    """The network, and a sentence about everything that was left out."""
    placed = {node for node in source.nodes if source.nodes[node].is_placed}
    kept = largest_part(placed, source.edges)
    nodes = {node: source.nodes[node] for node in source.nodes if node in kept}
    names = names_of(nodes)
    pairs = [(one, other) for one, other in source.edges if one in kept and other in kept and one != other]
    links = {frozenset(pair): pair for pair in reversed(pairs)}  # of parallel links the first
    network = Network(
        brokers=tuple(
            Broker(name=names[node_id], latitude=node.latitude, longitude=node.longitude)
            for node_id, node in nodes.items()
        ),
        links=tuple(
            Link(ends=(names[one], names[other]), latency_ns=latency_ns(nodes[one], nodes[other]))
            for one, other in reversed(links.values())
        ),
    )
    unplaced = [source.nodes[node].label for node in source.nodes if node not in placed]
    unjoined = [source.nodes[node].label for node in source.nodes if node in placed - kept]
    notes = []
    if unplaced:
        notes.append(f"Left out for want of coordinates ({len(unplaced)}): {', '.join(unplaced)}.")
    if unjoined:
        notes.append(f"Left out because then not joined to the rest ({len(unjoined)}): {', '.join(unjoined)}.")
    if len(pairs) > len(links):
        notes.append(f"Parallel links merged: {len(pairs) - len(links)}.")
    return network, notes


def file_of(source: Map) -> str:
    network, notes = network_of(source)
    head = [
        f"{source.name}: {len(network.brokers)} brokers, {len(network.links)} links.",
        "",
        'Source: the Internet Topology Zoo. S. Knight, H. X. Nguyen, N. Falkner, R. Bowden, M. Roughan, "The Internet '
        'Topology Zoo", IEEE Journal on Selected Areas in Communications 29(9), 2011. Licence: CC BY 4.0. Changed: '
        "made into a network file by scripts/import_topology.py; the latency of a link is its great-circle distance "
        "at 200,000 km/s, at least 0.1 ms.",
        *([""] if notes else []),
        *notes,
    ]
    comment = "\n".join(
        textwrap.fill(line, 118, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False) or "#"
        for line in head
    )
    text = f"{comment}\n\n{format_network(network)}"
    if parse_network(text) != network:
        raise AssertionError("the file does not say what was meant")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a network file from a map of the Internet Topology Zoo.")
    parser.add_argument("gml", type=Path, help="the map, as GML")
    sys.stdout.write(file_of(read_map(parser.parse_args().gml.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
