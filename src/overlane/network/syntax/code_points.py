"""Code points of packets (DSCP), by the names that the RFCs give them, or by their numbers."""

from overlane.network.syntax.kinds import FieldKind

CODE_POINTS = {
    **{f"CS{precedence}": precedence << 3 for precedence in range(8)},  # RFC 2474
    **{f"AF{of}{drop}": (of << 3) + (drop << 1) for of in range(1, 5) for drop in range(1, 4)},  # RFC 2597
    "EF": 46,  # RFC 3246
    "VA": 44,  # RFC 5865
    "LE": 1,  # RFC 8622
}
NUMBER_MAX = 63


def code_point() -> FieldKind[int]:
    def read(value: object) -> int:
        if isinstance(value, str):
            value = CODE_POINTS.get(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= NUMBER_MAX:
            raise ValueError("no code point")
        return value

    return FieldKind(
        'a DSCP such as "EF", "AF41", "CS5" or "LE", or a number from 0 to 63', read, 0, tuple(CODE_POINTS)
    )
