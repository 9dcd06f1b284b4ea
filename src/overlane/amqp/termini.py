"""What a client asks for with a source or a target, read and checked (part 3, section 3.5).

Everything that would change which messages arrive and is not done here is refused: an unknown filter, browsing,
transactions. A client that got wrong messages instead would never learn why.
"""

from dataclasses import dataclass
from typing import Any

from overlane.amqp.addresses import Address, NodeKind, read_address
from overlane.amqp.codec.malformed import INVALID_FIELD, NOT_IMPLEMENTED, AmqpError
from overlane.amqp.codec.performatives import Coordinator, Source, Target
from overlane.amqp.codec.types import Described, Symbol, ULong
from overlane.core.topics import BadTopic, check_filter, check_topic
from overlane.pubsub.limits import Limits

EXPIRES_NEVER = "never"
DURABLE = 2
"""terminus-durability: configuration and unsettled state."""
SHARED = "shared"
GLOBAL = "global"
COPY = "copy"

SELECTOR_NAME = Symbol("apache.org:selector-filter:string")
SELECTOR_CODE = ULong(0x0000_468C_0000_0004)
_SELECTORS = (SELECTOR_NAME, SELECTOR_CODE)
NO_LOCAL_NAME = Symbol("apache.org:no-local-filter:list")
NO_LOCAL_CODE = ULong(0x0000_468C_0000_0003)
_NO_LOCALS = (NO_LOCAL_NAME, NO_LOCAL_CODE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a receiver asks for. `address` None: a dynamic node."""

    address: Address | None
    is_durable: bool
    expiry_s: int
    is_shared: bool
    is_global: bool
    selector: str
    no_local: bool
    """It does not get what its own connection publishes."""
    filters: dict[Any, Any]
    """The filters that are honoured, as the client wrote them."""


def read_source(source: object, limits: Limits) -> Wanted:
    """AmqpError if it cannot be had."""
    if not isinstance(source, Source):
        raise AmqpError(NOT_IMPLEMENTED, "a source of an unknown kind")
    capabilities = frozenset(map(str, source.capabilities or ()))
    if source.distribution_mode == COPY and "queue" in capabilities:
        raise AmqpError(NOT_IMPLEMENTED, "queues cannot be browsed: distribution-mode copy is not offered")
    selector, no_local, filters = _read_filters(source.filter or {})
    address = None
    if source.dynamic:
        if source.address is not None:
            raise AmqpError(INVALID_FIELD, "a dynamic source with an address")
    else:
        address = _read_address(source.address, capabilities)
        _check(lambda: check_filter(address.topic), address, limits)
        if address.kind is NodeKind.QUEUE:
            _check(lambda: check_topic(address.topic), address, limits)
            if source.distribution_mode == COPY:
                raise AmqpError(NOT_IMPLEMENTED, "queues cannot be browsed: distribution-mode copy is not offered")
            if selector:
                raise AmqpError(NOT_IMPLEMENTED, "selectors are for topics: not for a queue")
    is_shared = SHARED in capabilities
    if no_local and (is_shared or (address is not None and address.kind is NodeKind.QUEUE)):
        raise AmqpError(NOT_IMPLEMENTED, "no-local is for subscriptions of one client: not for queues or shared ones")
    is_never = source.expiry_policy == EXPIRES_NEVER
    is_durable = not source.dynamic and (bool(source.durable) or is_never)
    expiry_s = 0
    if is_durable:
        longest = limits.session_expiry_s_max
        expiry_s = longest if is_never or not source.timeout else min(source.timeout, longest)
    return Wanted(address, expiry_s > 0, expiry_s, is_shared, GLOBAL in capabilities, selector, no_local, filters)


def read_target(target: object, limits: Limits) -> Address | None:
    """Where a sender's messages go; None if each says that itself. AmqpError if it cannot be had."""
    if isinstance(target, Coordinator):
        raise AmqpError(NOT_IMPLEMENTED, "transactions are not offered")
    if not isinstance(target, Target):
        raise AmqpError(NOT_IMPLEMENTED, "a target of an unknown kind")
    if target.address is None:
        return None
    if target.dynamic:
        raise AmqpError(INVALID_FIELD, "a dynamic target with an address")
    address = _read_address(target.address, target.capabilities or ())
    _check(lambda: check_topic(address.topic), address, limits)
    return address


def _read_address(value: object, capabilities: Any) -> Address:
    if not isinstance(value, str) or not value:
        raise AmqpError(INVALID_FIELD, "an address is needed")
    return read_address(value, capabilities)


def _check(check: Any, address: Address, limits: Limits) -> None:
    try:
        check()
    except BadTopic as bad:
        raise AmqpError(INVALID_FIELD, str(bad)) from None
    if told := limits.too_long(address.topic):
        raise AmqpError(INVALID_FIELD, told)
    if address.topic.count("/") >= limits.filter_levels:
        raise AmqpError(INVALID_FIELD, f"an address of more than {limits.filter_levels} levels")


def _read_filters(filters: dict[Any, Any]) -> tuple[str, bool, dict[Any, Any]]:
    selector, no_local = "", False
    for name, one in filters.items():
        if one is None:
            continue
        descriptor = one.descriptor if isinstance(one, Described) else name
        if descriptor in _NO_LOCALS:
            no_local = True
            continue
        if descriptor not in _SELECTORS:
            raise AmqpError(NOT_IMPLEMENTED, f"the filter {str(name)[:60]} is not offered")
        value = one.value if isinstance(one, Described) else one
        if not isinstance(value, str):
            raise AmqpError(INVALID_FIELD, "a selector that is not a string")
        if selector:
            raise AmqpError(NOT_IMPLEMENTED, "more than one selector")
        selector = value
    return selector, no_local, {name: one for name, one in filters.items() if one is not None}
