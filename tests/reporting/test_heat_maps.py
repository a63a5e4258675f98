"""Shades: a table of cells by hand, and an image whose pixels a reader of PNG finds again."""

import base64
import struct
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.reporting.trees import checked, found, number, words

from tidybert.reporting.drawing import CellTable, Picture, shades


def pixels(root) -> np.ndarray:
    """The colours (rows, columns, 4) of the picture's image, read as the format says."""
    (image,) = found(root, "image")
    data = base64.b64decode(image.get("href").partition(",")[2])
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    parts, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length)[0] == zlib.crc32(kind + body)
        parts[kind] = body
        at += 12 + length
    width, height, *kinds = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert kinds == [8, 3, 0, 0, 0]
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    colours = np.frombuffer(parts[b"PLTE"], np.uint8).reshape(256, 3)
    opacity = np.frombuffer(parts[b"tRNS"], np.uint8)[:, None]
    return np.concatenate([colours, opacity], axis=1)[lines[:, 1:]]


finite = st.floats(-1, 1, width=32)


@given(values=arrays.arrays(np.float32, st.tuples(*[st.integers(1, 9)] * 2), elements=finite))
def test_an_image_has_the_numbers(values: np.ndarray) -> None:
    drawn = pixels(checked(Picture("p", "", "", 9, 9, [shades(values, 0, 0, 9, 9)]).svg))

    assert drawn.shape == (*values.shape, 4)
    np.testing.assert_allclose(drawn[..., 3] / 254, np.abs(values), atol=0.5 / 127 + 1e-6)
    blue = drawn[..., 2].astype(int) > drawn[..., 0]
    assert blue[values > 0.01].all()
    assert not blue[values < -0.01].any()


def test_cells_stand_between_their_names() -> None:
    table = CellTable(["<a>", "a name of many more letters"], 20, 10)
    cell = table.cell((1, 0), "wrong", 0.7, "it & that", "7")
    root = checked(Picture("p", "", "", *table.size, [table.lines(), cell]).svg)

    assert words(root) == ["<a>"] * 2 + ["a name of many more lette…"] * 2 + ["7"]
    (box,) = found(root, "rect", class_="wrong")
    left, top = table.corner
    assert (number(box, "x"), number(box, "y")) == (left, top + 10)
    assert (box.get("width"), box.get("height"), box.get("fill-opacity")) == ("20", "10", "0.7")
    assert table.size == (left + 2 * 20 + 8, top + 2 * 10 + 8)
    # On a strong shade the count has the colour of the page.
    assert words(root, "on") == ["7"]
