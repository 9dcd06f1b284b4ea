"""Writes docs/pipeline-tables.md: every table of the data pipeline, its columns, their types and what they mean.

    .venv/bin/python scripts/write_tables.py             # writes the page
    .venv/bin/python scripts/write_tables.py --check     # only tells whether it is as the code has it

The schemas are those of `overlane.pipeline.schemas`, the words those of `overlane.pipeline.table_comments`, which also
go into the files as comments.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from overlane.pipeline.flows import FLOWS, RAW
from overlane.pipeline.parquet_comments import schema_of
from overlane.pipeline.table_comments import ROWS

PAGE = Path(__file__).parent.parent / "docs" / "pipeline-tables.md"
HEAD = """# Tables of the data pipeline

This page is written by `scripts/write_tables.py` from the schemas in the code. [The data pipeline](pipeline.md)
explains how the tables are computed. The Parquet files contain the same comments:

```python
spark.read.parquet("tables/latest/tables/reliability").schema["failure"].metadata["comment"]
```

Tables with an hour are divided by it: their files are named `<hour>-<run>-<number>.parquet`. Ingested tables
(`raw_...`) are in `OUT/latest/raw/`, all others in `OUT/latest/tables/`.
"""


def page() -> str:
    parts = [HEAD, "## Ingested tables\n", *(_table(name, None, ()) for name in RAW.values()), "## Computed tables\n"]
    parts += [_table(flow.name, flow.hour, flow.reads) for flow in FLOWS]
    return "\n".join(parts)


def _table(name: str, hour: str | None, reads: tuple[str, ...]) -> str:
    return "\n".join(_lines(name, hour, reads))


def _lines(name: str, hour: str | None, reads: tuple[str, ...]) -> Iterator[str]:
    yield f"### {name}\n"
    told = f"A row is {ROWS[name]}."
    if reads:
        told += f" Computed from {', '.join(f'`{one}`' for one in reads)}."
    if hour is not None:
        told += f" Divided by the hour of `{hour}`."
    yield f"{told}\n"
    yield "| column | type | what |\n|---|---|---|"
    for field in schema_of(name).fields:
        yield f"| `{field.name}` | {field.dataType.simpleString()} | {field.metadata['comment']} |"
    yield ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something would change")
    text = page()
    if not parser.parse_args().check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
        print("docs/pipeline-tables.md is not as the code has it: run scripts/write_tables.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
