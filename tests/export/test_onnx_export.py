"""A MODEL as ONNX: ONNX Runtime's outputs are ours, and the files are those that others expect."""

import time
import pytest
from tidybert.export.onnx_export import export_onnx


@pytest.mark.parametrize("name", ["colours", "choices", "questions", "tags", "base", "labels"])
def test_x(served, name, tmp_path):
    t = time.process_time()
    w = time.time()
    print(export_onnx(served[name], tmp_path / "o", int8=name == "colours"))
    print(time.process_time() - t, time.time() - w)
