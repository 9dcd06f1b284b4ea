"""The report page: header, key figures and sections, with inline style; nothing is loaded from elsewhere."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from overlane.network.plan import BadPlan, Plan, read_plan
from overlane.pipeline.output_directory import Run
from overlane.pipeline.report.sections import Section, Tables, key_figures, sections

_STYLE = """
:root { --ground: #ffffff; --card: #f6f8fa; --ink: #1b2733; --soft: #5b6b7a; --line: #d7dee5; --mark: #0072b2;
        --warm: #d55e00; --cool: #0072b2; --band: #e8edf2; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #10161c; --card: #18212a; --ink: #e6edf3; --soft: #9fb0bf; --line: #2c3a47; --mark: #56b4e9;
          --warm: #e69f00; --cool: #56b4e9; --band: #22303c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 960px; padding: 32px 20px 64px; background: var(--ground); color: var(--ink);
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 28px; margin: 0; } h2 { font-size: 20px; margin: 0 0 4px; }
p { margin: 0 0 12px; color: var(--soft); } header p { margin: 4px 0 20px; }
.glance { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px; margin-bottom: 28px; }
.glance div { background: var(--card); border-radius: 8px; padding: 12px 14px; }
.glance b { display: block; font-size: 22px; } .glance span { color: var(--soft); font-size: 14px; }
section { border-top: 1px solid var(--line); padding: 24px 0 12px; }
svg { width: 100%; height: auto; display: block; }
text { font: 12px system-ui, sans-serif; fill: var(--soft); } text.name { fill: var(--ink); }
.grid { stroke: var(--line); } .line { fill: none; stroke: var(--mark); stroke-width: 2; }
.line-dot { fill: var(--mark); } .bar { fill: var(--mark); } .band { fill: var(--band); }
.span { stroke: var(--mark); stroke-width: 2; opacity: .55; } .warm { fill: var(--warm); } .cool { fill: var(--cool); }
.mark { stroke: var(--warm); stroke-dasharray: 4 3; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 14px; margin-top: 8px; }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; } th:first-child, td:first-child { text-align: left; white-space: normal; }
"""


def report(run: Run) -> str:
    """The report of a run, compared with the previous run if there is one."""
    tables = Tables(run)
    earlier = run.path.with_name(f"{run.number - 1:04d}")
    made = sections(tables, _plan(run), _plan(Run(earlier)))
    return render(f"Run {run.number}", key_figures(tables), made)


def render(title: str, figures: Sequence[tuple[str, str]], made: Sequence[Section]) -> str:
    now = f"{datetime.now(UTC):%d %B %Y, %H:%M} UTC"
    tiles = "".join(f"<div><b>{escape(figure)}</b><span>{escape(of)}</span></div>" for figure, of in figures)
    body = "\n".join(map(_section, made))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Overlane: {escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>Overlay report</h1><p>{escape(title)} of the pipeline, written {now}.</p></header>\n"
        f'<div class="glance">{tiles}</div>\n{body}\n</body>\n</html>\n'
    )


def _section(section: Section) -> str:
    table = _table(section) if section.rows else ""
    return (
        f"<section><h2>{escape(section.heading)}</h2><p>{escape(section.finding)}</p>\n{section.plot}{table}</section>"
    )


def _table(section: Section) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in section.columns)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in section.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _plan(run: Run) -> Plan | None:
    try:
        return read_plan((run.plans / "brokers.json").read_bytes())
    except (OSError, BadPlan):
        return None
