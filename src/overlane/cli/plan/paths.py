"""`overlane plan paths` and `overlane plan graph`: paths that deliver a message within its deadline.

Files use milliseconds, the solvers integer nanoseconds; values are rounded here.
"""

from collections.abc import Callable

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from overlane.cli.plan.command import AsJson, ProblemFile, run_solver
from overlane.core.requirements import BROKER_PREFIX, DOMAIN_PREFIX, Places, Requirements
from overlane.planning.constrained import Wanted, choose
from overlane.planning.graph import Dissemination, disseminate
from overlane.planning.network import LATENCY_NS_MAX, BrokerNode, Link, Network
from overlane.planning.paths import multipath
from overlane.planning.problem import BadProblem, NoSolution
from overlane.planning.resiliency import PathSet, resiliency
from overlane.planning.shortest import shortest_tree

NS_PER_MS = 1_000_000


class BrokerGiven(msgspec.Struct, forbid_unknown_fields=True):
    failure: float = 0.0
    processing_ms: float = 0.0
    domain: str = ""


class LinkGiven(msgspec.Struct, forbid_unknown_fields=True):
    ends: tuple[str, str]
    latency_ms: float
    failure: float = 0.0
    loss: float = 0.0
    encrypted: bool = False


class MapGiven(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    brokers: dict[str, BrokerGiven]
    links: list[LinkGiven]
    source: str
    deadline_ms: float
    paths: int = 2
    search: int = 16

    def network(self, allows: Callable[[LinkGiven, str, str], bool] = lambda *_: True) -> Network:
        """The map, with whatever is wrong in it named as it stands in the file. `allows`: whether a link may be used
        from one of its ends to the other."""
        return Network.build(
            [
                BrokerNode(name, _ns(f"brokers.{name}.processing_ms", given.processing_ms), given.failure)
                for name, given in self.brokers.items()
            ],
            [
                Link(
                    given.ends,
                    _ns(f"links[{number}].latency_ms", given.latency_ms) if allows(given, *given.ends) else None,
                    _ns(f"links[{number}].latency_ms", given.latency_ms) if allows(given, *given.ends[::-1]) else None,
                    given.failure,
                )
                for number, given in enumerate(self.links)
            ],
        )


class PathsProblem(MapGiven, forbid_unknown_fields=True, kw_only=True):
    destination: str
    encrypted: bool = False
    through: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    loss_max: float = 1.0
    resiliency_min: float = 0.0


class GraphProblem(MapGiven, forbid_unknown_fields=True, kw_only=True):
    destinations: list[str]


class PathsAnswer(msgspec.Struct, omit_defaults=True):
    paths: list[list[str]]
    latency_ms: list[float]
    resiliency: float
    exact: bool
    path_resiliency: list[float]
    loss: float = 0.0


class GraphAnswer(msgspec.Struct):
    links: list[tuple[str, str]]
    latency_ms: dict[str, float]
    resiliency: dict[str, float]
    paths: dict[str, list[list[str]]]
    exact: bool


def paths(problem: ProblemFile, as_json: AsJson = False) -> None:
    """Find the paths between two brokers with the highest probability of delivery within a deadline."""
    run_solver(problem, PathsProblem, solve_paths, _show_paths, as_json)


def graph(problem: ProblemFile, as_json: AsJson = False) -> None:
    """Find the links that carry a message from one broker to several others within a deadline."""
    run_solver(problem, GraphProblem, solve_graph, _show_graph, as_json)


def solve_paths(problem: PathsProblem) -> PathsAnswer:
    asked = requirements(problem)
    if asked.is_trust or asked.is_quality:
        return solve_required(problem, asked)
    network = problem.network()
    source, destination = network.index(problem.source, "source"), network.index(problem.destination, "destination")
    deadline_ns = _ns("deadline_ms", problem.deadline_ms)
    found = multipath(network, source, destination, deadline_ns, problem.paths, problem.search)
    if found.paths:
        return _paths_answer(network, found)
    tree = shortest_tree(network, source)
    least_ns = tree.latency_ns[destination]
    if least_ns is None:
        reachable = [
            name for name, latency_ns in zip(network.names, tree.latency_ns, strict=True) if latency_ns is not None
        ]
        raise NoSolution(f"no links lead from {problem.source} to {problem.destination}", {"reachable": reachable})
    nearest = _paths_answer(network, multipath(network, source, destination, least_ns, problem.paths, problem.search))
    raise NoSolution(
        f"no path from {problem.source} to {problem.destination} within {problem.deadline_ms:g} ms: "
        f"the quickest, {' - '.join(nearest.paths[0])}, takes {_ms(least_ns):g} ms",
        {"deadline_ms": _ms(least_ns), **msgspec.to_builtins(nearest)},
    )


def requirements(problem: PathsProblem) -> Requirements:
    known = {BROKER_PREFIX + name for name in problem.brokers}
    known |= {DOMAIN_PREFIX + (given.domain or name) for name, given in problem.brokers.items()}
    for field_name in ("through", "avoid"):
        for index, place in enumerate(getattr(problem, field_name)):
            if place not in known:
                raise BadProblem(f"{field_name}[{index}]", repr(place), '"broker:NAME" or "domain:NAME" of the problem')
    for field_name in ("loss_max", "resiliency_min"):
        if not 0 <= getattr(problem, field_name) <= 1:
            raise BadProblem(field_name, f"{getattr(problem, field_name):g}", "a probability from 0 to 1")
    for number, link in enumerate(problem.links):
        if not 0 <= link.loss <= 1:
            raise BadProblem(f"links[{number}].loss", f"{link.loss:g}", "a probability from 0 to 1")
    return Requirements(problem.encrypted, problem.through, problem.avoid, problem.loss_max, problem.resiliency_min)


def solve_required(problem: PathsProblem, asked: Requirements) -> PathsAnswer:
    """As brokers choose: trust first, then deadline, loss and resiliency together."""
    places = Places({name: given.domain for name, given in problem.brokers.items()})

    def network_for(trust: Requirements) -> Network:
        def allows(link: LinkGiven, start: str, end: str) -> bool:
            return (
                (link.encrypted or not trust.encrypted)
                and (start == problem.source or places.may_pass(start, trust))
                and (places.may_pass(end, trust) or (end == problem.destination and places.may_receive(end, trust)))
            )

        return problem.network(allows)

    network = network_for(asked)
    ends = network.index(problem.source, "source"), network.index(problem.destination, "destination")
    losses = {
        (network.index(start), network.index(end)): link.loss
        for link in problem.links
        for start, end in (link.ends, link.ends[::-1])
    }
    wanted = Wanted(_ns("deadline_ms", problem.deadline_ms), asked.loss_max, asked.resiliency_min)
    found = choose(network, losses, *ends, wanted, problem.paths)
    between = f"from {problem.source} to {problem.destination}"
    if not found.paths:
        names = asked.trust_names()
        alone = [
            name
            for name in names
            if shortest_tree(network_for(asked.without(name)), ends[0]).latency_ns[ends[1]] is not None
        ]
        raise NoSolution(f"no path {between} that {' and '.join(alone or names) or 'the links'} allow", {})
    answer = _paths_answer(network, PathSet(found.paths, found.resiliency, found.exact), found.loss)
    missed = []
    if found.paths[0].latency_ns > (wanted.deadline_ns or 0):
        missed.append(f"deadline_ms (the quickest allowed path takes {_ms(found.paths[0].latency_ns):g} ms)")
    if found.loss > asked.loss_max:
        missed.append(f"loss_max (the nearest paths lose {found.loss:.4g})")
    if found.resiliency < asked.resiliency_min:
        missed.append(f"resiliency_min (the nearest paths have {found.resiliency:.6g})")
    if missed:
        raise NoSolution(f"no paths {between} meet {' and '.join(missed)}", dict(msgspec.to_builtins(answer)))
    return answer


def solve_graph(problem: GraphProblem) -> GraphAnswer:
    network = problem.network()
    source = network.index(problem.source, "source")
    destinations = [network.index(name, "destinations") for name in problem.destinations]
    deadline_ns = _ns("deadline_ms", problem.deadline_ms)
    found = disseminate(network, source, destinations, deadline_ns, problem.paths, problem.search)
    if not found.unreached:
        return _graph_answer(network, found)
    least_ns = shortest_tree(network, source).latency_ns
    missing, reachable = [], list(found.reached)
    for destination in found.unreached:
        latency_ns = least_ns[destination]
        if latency_ns is None:
            missing.append(f"{network.names[destination]} (no links lead there)")
        else:
            missing.append(f"{network.names[destination]} (the quickest takes {_ms(latency_ns):g} ms)")
            reachable.append(destination)
            deadline_ns = max(deadline_ns, latency_ns)
    nearest: dict[str, object] = {}
    if reachable:
        near = disseminate(network, source, reachable, deadline_ns, problem.paths, problem.search)
        nearest = {
            "deadline_ms": _ms(deadline_ns),
            "destinations": network.named(sorted(reachable)),
            **msgspec.to_builtins(_graph_answer(network, near)),
        }
    raise NoSolution(
        f"no path from {problem.source} within {problem.deadline_ms:g} ms to {', '.join(missing)}", nearest
    )


def _paths_answer(network: Network, found: PathSet, loss: float = 0.0) -> PathsAnswer:
    return PathsAnswer(
        paths=[network.named(path.brokers) for path in found.paths],
        latency_ms=[_ms(path.latency_ns) for path in found.paths],
        resiliency=found.resiliency,
        exact=found.exact,
        path_resiliency=[resiliency([path], network) for path in found.paths],
        loss=loss,
    )


def _graph_answer(network: Network, found: Dissemination) -> GraphAnswer:
    name = network.names
    return GraphAnswer(
        links=[(name[start], name[end]) for start, end in found.links],
        latency_ms={name[destination]: _ms(found.latency_ns(destination)) for destination in found.reached},
        resiliency={name[destination]: best.resiliency for destination, best in found.reached.items()},
        paths={
            name[destination]: [network.named(path.brokers) for path in best.paths]
            for destination, best in found.reached.items()
        },
        exact=found.exact,
    )


def _show_paths(problem: PathsProblem, found: PathsAnswer, console: Console) -> None:
    table = Table(title=escape(f"{problem.source} to {problem.destination} within {problem.deadline_ms:g} ms"))
    table.add_column("path")
    table.add_column("latency", justify="right")
    table.add_column("resiliency", justify="right")
    for brokers, latency_ms, alone in zip(found.paths, found.latency_ms, found.path_resiliency, strict=True):
        table.add_row(escape(" - ".join(brokers)), f"{latency_ms:g} ms", f"{alone:.6f}")
    table.add_section()
    table.add_row("together", "", f"{found.resiliency:.6f}")
    console.print(table)
    if found.loss:
        console.print(f"Loss over all paths: {found.loss:.6f}")
    _show_whether_exact(found.exact, console)


def _show_graph(problem: GraphProblem, found: GraphAnswer, console: Console) -> None:
    table = Table(title=escape(f"From {problem.source} within {problem.deadline_ms:g} ms"))
    table.add_column("to")
    table.add_column("paths")
    table.add_column("latency", justify="right")
    table.add_column("resiliency", justify="right")
    for destination, ways in found.paths.items():
        listed = "\n".join(" - ".join(brokers) for brokers in ways)
        latency, worth = f"{found.latency_ms[destination]:g} ms", f"{found.resiliency[destination]:.6f}"
        table.add_row(escape(destination), escape(listed), latency, worth)
    console.print(table)
    links = ", ".join(f"{start} > {end}" for start, end in found.links)
    console.print(escape(f"{len(found.links)} links: {links}"), highlight=False)
    _show_whether_exact(found.exact, console)


def _show_whether_exact(exact: bool, console: Console) -> None:
    if not exact:
        console.print("The search was stopped early: a better set may exist.")


def _ns(field_name: str, given_ms: float) -> int:
    if not 0 <= given_ms <= LATENCY_NS_MAX / NS_PER_MS:
        raise BadProblem(field_name, f"{given_ms:g}", "milliseconds, from 0")
    return round(given_ms * NS_PER_MS)


def _ms(latency_ns: int) -> float:
    return latency_ns / NS_PER_MS
