"""Arbitrary well-formed RSVP messages, for Hypothesis."""

from hypothesis import strategies as st

from overlane.planning.reserve import RSpec, TSpec
from overlane.reservation.rsvp.intserv import AdSpec, FlowSpec
from overlane.reservation.rsvp.messages import (
    Flow,
    Message,
    Path,
    PathErr,
    PathTear,
    Resv,
    ResvConf,
    ResvErr,
    ResvTear,
)
from overlane.reservation.rsvp.objects import ErrorSpec, Hop, Sender, Session, Style, Tree, TreeNode, Unknown

u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, (1 << 32) - 1)
u8 = st.integers(0, 255)


def addresses(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


@st.composite
def tspecs(draw: st.DrawFn) -> TSpec:
    smallest, largest, bucket = sorted(draw(st.tuples(*[st.integers(1, 1 << 20)] * 3)))
    rate = draw(st.floats(1, 2**30, width=32))
    peak = draw(st.one_of(st.just(float("inf")), st.floats(rate, 2**31, width=32)))
    return TSpec(rate, float(bucket), peak, smallest, largest)


@st.composite
def flowspecs(draw: st.DrawFn) -> FlowSpec:
    tspec = draw(tspecs())
    if draw(st.booleans()):
        return FlowSpec(tspec)
    return FlowSpec(tspec, RSpec(draw(st.floats(tspec.rate, 2**31, width=32)), draw(u32) / 1e6))


adspecs = st.builds(
    AdSpec,
    hops=u32,
    bandwidth=st.floats(0, 2**40, width=32),
    latency_us=u32,
    mtu=u32,
    c_tot=u32,
    d_tot_us=u32,
    c_sum=u32,
    d_sum_us=u32,
    has_break=st.booleans(),
    guaranteed_break=st.booleans(),
    controlled_load_break=st.booleans(),
)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    brokers = draw(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=12, unique=True))
    nodes = [
        TreeNode(one, None if not place else draw(st.integers(0, place - 1)), draw(st.booleans()), draw(st.booleans()))
        for place, one in enumerate(brokers)
    ]
    return Tree(tuple(nodes), draw(u16))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    address = addresses(draw(st.sampled_from([4, 16])))
    session = draw(st.builds(Session, address, u16, u8, u8))
    hop = draw(st.builds(Hop, address, u32))
    sender = st.builds(Sender, address, u16)
    error = draw(st.builds(ErrorSpec, address, u8, u16, u8))
    style = draw(st.sampled_from(Style))
    is_bare = draw(st.booleans())
    match style:
        case Style.WF:
            senders: list[tuple[Sender, ...]] = [()]
        case Style.SE:
            senders = [tuple(draw(st.lists(sender, min_size=1, max_size=5)))]
        case Style.FF:
            senders = [(one,) for one in draw(st.lists(sender, min_size=1, max_size=5))]
    flows = tuple(Flow(draw(flowspecs()), one) for one in senders)
    scope = tuple(draw(st.lists(address, max_size=5)))
    refresh_ms = draw(u32)
    tree = draw(st.none() | trees())
    private = st.builds(Unknown, st.integers(192, 251), u8, st.integers(0, 5).map(lambda words: bytes(4 * words)))
    name = st.none() | st.text(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20
    )
    match draw(st.integers(1, 7)):
        case 1:
            passed_on = tuple(draw(st.lists(private, max_size=2)))
            adspec = draw(st.none() | adspecs)
            return Path(session, hop, refresh_ms, draw(sender), draw(tspecs()), adspec, tree, draw(name), passed_on)
        case 2:
            return Resv(session, hop, refresh_ms, style, flows, draw(st.none() | address), scope)
        case 3:
            return PathErr(session, error, draw(sender), draw(tspecs()), tree)
        case 4:
            return ResvErr(session, hop, error, style, flows, scope, tree)
        case 5:
            return PathTear(session, hop, draw(sender))
        case 6:
            bare = tuple(Flow(None, one) for one in senders)
            return ResvTear(session, hop, style, bare if is_bare else flows, scope)
        case _:
            return ResvConf(session, error, draw(address), style, flows)
