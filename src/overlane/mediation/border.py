"""Mediation at the borders of domains: what messages become on their way from one domain to another.

A rule with `border` is for messages that leave its domain, or that enter it. Between two domains the rules of both
apply, in the order of the file: those for leaving the one, and those for entering the other. Within a domain none do.

What rules remember (deadbands) is remembered for each pair of domains.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from overlane.core.units import Nanos
from overlane.mediation.draft import Draft
from overlane.mediation.mediation import Mediation, Memory, Passed, Result
from overlane.mediation.rule import MediationRule


@dataclass(frozen=True)
class BorderRules:
    own: str
    """The domain of this broker."""
    domains: Mapping[str, str]
    """Of brokers; one that is not there is a domain of its own."""
    rules: tuple[MediationRule, ...]

    def domain_of(self, broker: str) -> str:
        return self.domains.get(broker) or broker

    def between(self, source: str, destination: str) -> tuple[MediationRule, ...]:
        if source == destination:
            return ()
        crossed = ("leave", source), ("enter", destination)
        return tuple(rule for rule in self.rules if (rule.border, rule.domain) in crossed)


@dataclass
class BorderMediation:
    rules: BorderRules
    _known: dict[tuple[str, str], Mediation] = field(default_factory=dict)
    _memories: dict[tuple[str, str], Memory] = field(default_factory=dict)

    def follow(self, rules: BorderRules) -> None:
        """These rules hold from now on."""
        if rules != self.rules:
            self.rules = rules
            self._known.clear()
            for memory in self._memories.values():
                memory.forget(rule.name for rule in rules.rules)

    def concerns(self, source: str, destination: str, topic: str) -> bool:
        """Between two domains."""
        return self._between(source, destination).concerns(topic)

    def run(self, source: str, destination: str, draft: Draft, now: Nanos) -> Result:
        mediation = self._between(source, destination)
        if not mediation.concerns(draft.topic):
            return Passed(draft)
        memory = self._memories.setdefault((source, destination), Memory())
        result = mediation.run(draft, memory, now)
        memory.apply(result.changes)
        return result

    def _between(self, source: str, destination: str) -> Mediation:
        found = self._known.get((source, destination))
        if found is None:
            found = self._known[source, destination] = Mediation(self.rules.between(source, destination))
        return found
