"""Pages and pictures as trees, and what each picture must be."""

import math
import re
import xml.etree.ElementTree as ET

from tidybert.reporting.drawing import picture_style

# Attributes that are numbers, or lists and commands of them.
_PLACES = frozenset(
    ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "dx", "width", "height", "points", "d")
) | {"viewBox", "transform", "fill-opacity"}
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf", re.IGNORECASE)


ATTACK = (
    "</title><script>alert(1)</script><img src='https://example.com/x' onerror=alert(1)>\x00\x1b"
)


def parsed(page: str) -> ET.Element:
    """A page as a tree; it is written so that an XML parser reads it, too."""
    body = page.removeprefix("<!doctype html>\n")
    for raw in ("style", "script"):
        body = re.sub(rf"<{raw}>.*?</{raw}>", f"<{raw}></{raw}>", body, flags=re.DOTALL)
    return ET.fromstring(re.sub(r"<meta([^>]*)>", r"<meta\1/>", body))


def text_of(element: ET.Element | None) -> str:
    """All text of an element."""
    assert element is not None
    return "".join(element.itertext())


def checked(svg: str) -> ET.Element:
    """The tree of a picture: finite places, known classes, nothing that acts or is loaded."""
    root = ET.fromstring(svg)
    names = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(names) == len(set(names))
    style = picture_style()
    for each in root.iter():
        tag = each.tag.rpartition("}")[2]
        assert tag not in ("script", "foreignObject", "a")
        for name, value in each.attrib.items():
            assert not name.startswith("on")
            if name in _PLACES:
                assert all(math.isfinite(float(n)) for n in _NUMBER.findall(value)), (tag, value)
            if name.endswith("href"):
                assert value.startswith("data:image/png;base64,")
        for name in each.get("class", "").split():
            assert re.search(rf"\.{name}\b", style), name
    return root


def found(root: ET.Element, tag: str, **attributes: str) -> list[ET.Element]:
    """The elements of a tag with these attributes; ``class_`` is one of several words."""
    class_ = attributes.pop("class_", None)
    return [
        each
        for each in root.iter()
        if each.tag.rpartition("}")[2] == tag
        and all(each.get(name) == value for name, value in attributes.items())
        and (class_ is None or class_ in each.get("class", "").split())
    ]


def number(element: ET.Element, name: str) -> float:
    """An attribute as a number."""
    return float(element.get(name, "nan"))


def words(root: ET.Element, class_: str | None = None) -> list[str]:
    """The texts that a picture shows."""
    shown = found(root, "text") + found(root, "tspan")
    return [
        text_of(each) for each in shown if class_ is None or class_ in each.get("class", "").split()
    ]
