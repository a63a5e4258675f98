"""ONNX: a padded forward that can be traced, and the files that other programs open."""
