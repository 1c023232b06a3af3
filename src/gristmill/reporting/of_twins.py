"""Files that are nearly the same: which one stands for the others, and what differs, side by side."""

from collections.abc import Iterator

from gristmill.drawing.lettering import shown
from gristmill.naming import counted
from gristmill.reporting.facts import Cluster, DiffLine, Facts, Twin
from gristmill.reporting.section import Section, folded, paragraph

SIGNS = {"": "", "del": "\N{MINUS SIGN}", "ins": "+"}
NO_SIDE = '<td></td><td></td><td class="none"></td>'
COLUMNS = '<colgroup><col class="line"><col class="sign"><col><col class="line"><col class="sign"><col></colgroup>'


def twins_section(facts: Facts) -> Section:
    grouped = f"{counted(facts.num_grouped, 'file')} that are nearly the same as another are kept, in its split."
    if not facts.num_clusters:
        told = grouped if facts.num_grouped else "No file was dropped for being the same as another, or nearly."
        return Section("twins", "Near-duplicates", told)
    alike = "the same as another" if facts.num_grouped else "the same as another, or nearly"
    told = (
        f"{counted(facts.num_clustered, 'file')} are {alike}: "
        f"{counted(facts.num_clusters, 'cluster')}. In a cluster, one file stands for the others."
    )
    told += f" {grouped}" if facts.num_grouped else ""
    more = [part for number, cluster in enumerate(facts.clusters) for part in _cluster(cluster, is_first=not number)]
    left = facts.num_clusters - len(facts.clusters)
    more += [paragraph(f"{counted(left, 'smaller cluster')} not shown here.")] if left > 0 else []
    return Section("twins", "Near-duplicates", told, (), more)


def _cluster(cluster: Cluster, *, is_first: bool) -> list[str]:
    parts = [
        part
        for number, twin in enumerate(cluster.twins)
        for part in _twin(cluster, twin, is_open=is_first and not number)
    ]
    left = cluster.num_twins - len(cluster.twins)
    parts += [paragraph(f"{counted(left, 'more twin')} not shown here.")] if left > 0 else []
    return folded(f"{cluster.kept} stands for {counted(cluster.num_twins, 'other')}", parts, is_open=is_first)


def _twin(cluster: Cluster, twin: Twin, *, is_open: bool) -> list[str]:
    if twin.is_exact:
        return [f'<p class="twin"><code>{shown(twin.name)}</code> is the same text.</p>']
    if twin.why_not is not None or not twin.lines:
        why = twin.why_not or "no line differs"
        alike = f"{twin.similarity:.3f} alike; {why}"
        return [f'<p class="twin"><code>{shown(twin.name)}</code>: {shown(alike)}.</p>']
    return folded(f"{twin.name}: {twin.similarity:.3f} alike", _sides(cluster, twin), "twin", is_open=is_open)


def _sides(cluster: Cluster, twin: Twin) -> Iterator[str]:
    name = shown(f"What differs in {twin.name}")
    yield f'<div class="scrolling" tabindex="0" role="region" aria-label="{name}"><table class="sides">'
    yield f"<caption>{name}</caption>{COLUMNS}<thead><tr>{_head(cluster.kept)}{_head(twin.name)}</tr></thead><tbody>"
    yield from map(_line, twin.lines)
    if twin.num_lines_left_out:
        yield f'<tr class="skipped"><td colspan="6">{counted(twin.num_lines_left_out, "more line")} not shown</td></tr>'
    yield "</tbody></table></div>"


def _head(name: str) -> str:
    return f'<th scope="colgroup" colspan="3">{shown(name)}</th>'


def _line(line: DiffLine) -> str:
    if line.kind == "skipped":
        return f'<tr class="skipped"><td colspan="6">{counted(line.num_skipped, "line")} the same in both</td></tr>'
    taken, given = ("", "") if line.kind == "same" else ("del", "ins")
    left = NO_SIDE if line.kind == "added" else _side(line.left_number, line.left, taken)
    right = NO_SIDE if line.kind == "removed" else _side(line.right_number, line.right, given)
    return f"<tr>{left}{right}</tr>"


def _side(number: int | None, text: str, change: str) -> str:
    """What differs is marked for eyes by sign and colour, for ears by its element."""
    code = f"<{change}>{_code_text(text)}</{change}>" if change else _code_text(text)
    return f"<td>{'' if number is None else number}</td><td>{SIGNS[change]}</td><td>{code}</td>"


def _code_text(text: str) -> str:
    """A tab stays one: code is indented with it."""
    return "\t".join(map(shown, text.split("\t")))
