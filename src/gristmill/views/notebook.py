"""HTML for notebooks: rows, manifests and datasets.

A row is displayed token by token. If its dataset has changed or cannot be read, it is displayed as a plain table.
"""

from collections.abc import Iterator
from pathlib import Path

from gristmill.core.manifest import Manifest
from gristmill.core.names import counted, path_text
from gristmill.core.text import size_text
from gristmill.dataset.dataset import Dataset, Row, open_dataset
from gristmill.views.html import collapsible, escape_text, html_table
from gristmill.views.report.build_sections import splits_table
from gristmill.views.report.facts import Reason, Share
from gristmill.views.report.file_sections import reasons_table
from gristmill.views.report.page import Headline, headlines_html, join_words, row_headline, share_text, short_number
from gristmill.views.report.provenance import split_lines
from gristmill.views.report.token_sections import shares_table, total
from gristmill.views.row import view_row
from gristmill.views.row_html import ROW_STYLE, row_html
from gristmill.views.theme import scoped_variables

MAX_VALUE_LENGTH = 400


def row_cell_html(row: Row) -> str:
    """Return a row as HTML for a notebook."""
    try:
        rendered = _tokens_html(row)
    except Exception:  # noqa: BLE001 - displaying a row must not raise, whatever happened to its dataset
        rendered = None
    return rendered or _table(row)


def _tokens_html(row: Row) -> str | None:
    """Return the row token by token, or None if the dataset now has a different row at this position."""
    dataset = open_dataset(Path(row.source.folder))
    view = view_row(dataset, row.source.split, row.number)
    if "input_ids" in row:
        is_same = [index for index, _ in view.tokens] == row["input_ids"][: view.num_ids]
    else:
        is_same = dataset[row.source.split][row.number]["text"] == row["text"]
    if not is_same:
        return None
    return f"<style>{ROW_STYLE}</style>\n{row_html(view)}"


def _table(row: Row) -> str:
    cells = "".join(f"<tr><th>{_cell_text(name)}</th><td>{_cell_text(value)}</td></tr>" for name, value in row.items())
    return f"<table>{cells}</table>"


def _cell_text(value: object) -> str:
    text = str(value)
    return escape_text(text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…")


# Manifests and datasets: the headline figures and tables of the report, without its interactive charts and scripts.

MAX_LANGUAGES = 12
MAX_TABLE_ROWS = 200
"""Maximum number of table rows, so that the output of a notebook cell remains small."""
BAR_WIDTH, BAR_HEIGHT = 120, 8
FACTS_RULES = """
.gristmill-facts{color:var(--ink);background:var(--card);border:1px solid var(--edge);border-radius:8px;\
padding:12px 16px;margin:6px 0;font:14px/1.5 system-ui,sans-serif;max-width:900px;overflow-x:auto}
.gristmill-facts .name{font-weight:650;font-size:16px;margin:0 0 8px;overflow-wrap:anywhere}
.gristmill-facts dl{display:flex;flex-wrap:wrap;gap:8px 28px;margin:0 0 10px}
.gristmill-facts dt,.gristmill-facts .note,.gristmill-facts caption{color:var(--soft);font-size:12px}
.gristmill-facts dd{margin:0}
.gristmill-facts .figure{font-size:18px;font-weight:650}
.gristmill-facts table{border-collapse:collapse;margin:0 0 10px;font-size:13px;color:var(--ink);background:none}
.gristmill-facts caption{text-align:left;padding:2px 0}
.gristmill-facts tr{background:none}
.gristmill-facts th,.gristmill-facts td{padding:2px 16px 2px 0;text-align:left;border-bottom:1px solid var(--edge);\
overflow-wrap:anywhere}
.gristmill-facts .number{text-align:right;white-space:nowrap}
.gristmill-facts summary{cursor:pointer;padding:4px 0;color:var(--soft)}
.gristmill-facts rect{fill:var(--link)}
"""


def manifest_html(manifest: Manifest) -> str:
    """Return a manifest as HTML for a notebook."""
    return _facts_html("Manifest", manifest)


def dataset_html(dataset: Dataset) -> str:
    """Return a dataset as HTML for a notebook."""
    if not isinstance(dataset.record, Manifest):
        return f"<p>{escape_text(repr(dataset))}</p>"
    return _facts_html(path_text(dataset.folder.resolve().name), dataset.manifest)


def _facts_html(name: str, manifest: Manifest) -> str:
    parts = [
        f'<div class="gristmill-facts"><style>{FACTS_STYLE}</style><p class="name">{escape_text(name)}</p>',
        *headlines_html(_headlines(manifest)),
        *html_table(splits_table(split_lines(manifest))),
        *_languages_html(manifest),
        *_drops_html(manifest),
        "</div>",
    ]
    return "\n".join(parts)


def _headlines(manifest: Manifest) -> list[Headline]:
    counts, splits = manifest.counts, manifest.splits.values()
    num_bytes = sum(facts.bytes for facts in manifest.files.values() if facts.format is not None)
    tokens = sum(facts.tokens for facts in splits)
    emitted = sum(facts.emitted_tokens for facts in splits)
    return [
        Headline("files found", f"{counts.found:,}", ""),
        Headline("files kept", f"{counts.kept:,}", share_text(counts.kept, counts.found)),
        row_headline(sum(facts.windows for facts in splits), _num_packed(manifest), manifest.window_length),
        Headline(
            "tokens",
            short_number(tokens),
            f"{short_number(emitted)} {'tokens' if manifest.has_documents else 'ids'} in the rows",
        ),
        Headline("size", size_text(num_bytes), join_words(manifest.formats)),
    ]


def _num_packed(manifest: Manifest) -> int | None:
    return None if manifest.packing is None else sum(facts.segments for facts in manifest.packing.values())


def _languages_html(manifest: Manifest) -> Iterator[str]:
    """Yield a table of tokens by language, with a bar for each share."""
    tokens = manifest.tokens_by_language
    shares = sorted(
        (Share(name=name, files=0, tokens=per_split) for name, per_split in tokens.items()),
        key=lambda share: (-total(share), share.name),
    )
    if not shares:
        return
    largest, all_tokens = max(1, total(shares[0])), sum(map(total, shares))
    yield "<table><caption>Tokens by language</caption>"
    yield '<thead><tr><th scope="col">language</th><th scope="col" class="number">tokens</th>'
    yield '<th scope="col" class="number">share</th><td></td></tr></thead><tbody>'
    for share in shares[:MAX_LANGUAGES]:
        part = escape_text(share_text(total(share), all_tokens))
        numbers = f'<td class="number">{total(share):,}</td><td class="number">{part}</td>'
        yield f"<tr><td>{escape_text(share.name)}</td>{numbers}<td>{_bar(total(share) / largest)}</td></tr>"
    yield "</tbody></table>"
    if len(shares) > MAX_LANGUAGES:
        table = html_table(shares_table("Tokens by language and split", "language", shares[:MAX_TABLE_ROWS]))
        is_complete = len(shares) <= MAX_TABLE_ROWS
        number = f"All {len(shares):,}" if is_complete else f"The {MAX_TABLE_ROWS} most frequent of {len(shares):,}"
        yield from collapsible(f"{number} languages", table)


def _bar(share: float) -> str:
    """Return a bar as SVG. In HTML, a bar would need a style attribute, and some notebooks remove these attributes."""
    size = f'width="{BAR_WIDTH}" height="{BAR_HEIGHT}"'
    return f'<svg {size} aria-hidden="true"><rect width="{share * BAR_WIDTH:.1f}" height="{BAR_HEIGHT}" rx="2"/></svg>'


def _drops_html(manifest: Manifest) -> Iterator[str]:
    reasons = [
        Reason(reason=reason, meaning=reason.meaning, files=count, bytes=0, examples=[])
        for reason, count in sorted(manifest.counts.dropped_by_reason.items(), key=lambda item: (-item[1], item[0]))
    ]
    if reasons:
        title = f"{manifest.counts.dropped:,} of {counted(manifest.counts.found, 'file')} dropped"
        yield from collapsible(title, html_table(reasons_table(reasons)), is_open=True)


FACTS_STYLE = scoped_variables(".gristmill-facts") + FACTS_RULES
