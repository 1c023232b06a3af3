"""Texts and shapes in an SVG by matplotlib. Shapes are found by the ids that the drawing code sets."""

import re
import xml.etree.ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"
NUMBER = r"-?[\d.]+(?:e[-+]?\d+)?"

Run = list[tuple[float, float]]
"""Connected points of a path."""


class Picture:
    def __init__(self, text: str) -> None:
        self.root = ET.fromstring(text)

    @property
    def size(self) -> tuple[float, float]:
        return float(self.root.attrib["width"]), float(self.root.attrib["height"])

    def texts(self) -> list[str]:
        return [text.text or "" for text in self.root.iter(f"{SVG}text")]

    def text_positions(self) -> list[tuple[str, float, float]]:
        """Return each text with the position of its anchor, such as the start or the end of the text."""
        found = self.root.iter(f"{SVG}text")
        return [(text.text or "", float(text.attrib["x"]), float(text.attrib["y"])) for text in found]

    def shapes(self, pattern: str) -> dict[str, list[Run]]:
        """Return the shapes whose ids match, keyed by id. A shape is a list of runs. Each M of a path starts a run."""
        groups = [group for group in self.root.iter(f"{SVG}g") if re.fullmatch(pattern, group.get("id", ""))]
        return {group.attrib["id"]: _runs(group) for group in groups}

    def marker_positions(self, name: str) -> Run:
        """Return the positions of the markers in the group with this id."""
        (group,) = [group for group in self.root.iter(f"{SVG}g") if group.get("id") == name]
        return [(float(one.attrib["x"]), float(one.attrib["y"])) for one in group.iter(f"{SVG}use")]

    def style(self, name: str) -> str:
        (group,) = [group for group in self.root.iter(f"{SVG}g") if group.get("id") == name]
        return group.findall(f"{SVG}path")[0].attrib["style"]


def _runs(group: ET.Element) -> list[Run]:
    path = next((path for path in group.findall(f"{SVG}path")), None)
    if path is None:
        return []
    runs = [re.findall(NUMBER, run) for run in path.attrib["d"].split("M")[1:]]
    return [[(float(x), float(y)) for x, y in zip(run[::2], run[1::2], strict=True)] for run in runs]
