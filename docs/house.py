"""Draw docs/house.svg from the floors and journeys of docs/architecture.md: python docs/house.py.

Each floor is a band with its rooms.  Beside them each journey is a line of dots, one for a file, at
the height of the file's floor.
"""

import re
from html import escape
from pathlib import Path

DOCS = Path(__file__).parent
BAND, ROOMS, LEFT, LANE, STEP, TOP = 40, 92, 480, 155, 11, 40
STYLE = """
    rect.paper { fill: #fff } rect.band { fill: #f1f3f6 } rect.room { fill: #fff; stroke: #9aa4b2 }
    text { font: 13px system-ui, sans-serif; fill: #1f2733 } text.floor { fill: #5a6472 }
    .j0 { stroke: #b3450e; fill: #b3450e } .j1 { stroke: #0b6e99; fill: #0b6e99 }
    .j2 { stroke: #2f7d32; fill: #2f7d32 } polyline { fill: none !important; stroke-width: 1.5 }
    @media (prefers-color-scheme: dark) {
      rect.paper { fill: #12161c } rect.band { fill: #1b212a }
      rect.room { fill: #262e39; stroke: #596373 }
      text { fill: #e6e9ee } text.floor { fill: #a3adba }
      .j0 { stroke: #f09a6a; fill: #f09a6a } .j1 { stroke: #66c0e6; fill: #66c0e6 }
      .j2 { stroke: #83cf86; fill: #83cf86 }
    }
"""


def floors(page: str) -> dict[str, list[str]]:
    """The rooms of each floor, from the top."""
    rows = re.findall(r"^\| (\w+) \| (`.+) \|$", page, re.MULTILINE)
    return {floor: re.findall(r"`(\w+)`", rooms) for floor, rooms in rows}


def journeys(page: str) -> dict[str, list[str]]:
    """The files that each journey enters, in order, below src/tidybert."""
    found = re.findall(r"^\*\*(A .+)\*\*\n\n((?:\d+\. .+\n)+)", page, re.MULTILINE)
    return {name: re.findall(r"^\d+\. `(\S+)`", files, re.MULTILINE) for name, files in found}


def house(page: str) -> str:
    """The picture, as SVG."""
    bands = floors(page)
    heights = {room: number for number, rooms in enumerate(bands.values()) for room in rooms}
    width, height = LEFT + 3 * LANE + 10, TOP + BAND * len(bands) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "  <title>The floors of the house, and the three journeys through them</title>",
        f"  <style>{STYLE}  </style>",
        f'  <rect class="paper" width="{width}" height="{height}"/>',
    ]
    for number, (floor, rooms) in enumerate(bands.items()):
        y = TOP + BAND * number
        lines.append(
            f'  <rect class="band" x="10" y="{y}" width="{width - 20}" height="{BAND - 4}"/>'
        )
        lines.append(f'  <text class="floor" x="18" y="{y + 23}">{floor}</text>')
        x = float(ROOMS)
        for room in rooms:
            wide = 7.4 * len(room) + 16
            lines.append(
                f'  <rect class="room" x="{x:.0f}" y="{y + 5}" width="{wide:.0f}" height="26"/>'
                f'<text x="{x + 8:.0f}" y="{y + 23}">{room}</text>'
            )
            x += wide + 6
    for number, (name, files) in enumerate(journeys(page).items()):
        left = LEFT + LANE * number
        points = [
            (left + STEP * step, TOP + BAND * heights[path.partition("/")[0]] + 18)
            for step, path in enumerate(files)
        ]
        way = " ".join(f"{x},{y}" for x, y in points)
        lines.append(f'  <text x="{left - 4}" y="24">{escape(name)}</text>')
        lines.append(f'  <polyline class="j{number}" points="{way}"/>')
        lines += [
            f'  <circle class="j{number}" cx="{x}" cy="{y}" r="3.5"><title>{path}</title></circle>'
            for (x, y), path in zip(points, files, strict=True)
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    drawn = house((DOCS / "architecture.md").read_text(encoding="utf-8"))
    (DOCS / "house.svg").write_text(drawn, encoding="utf-8")
