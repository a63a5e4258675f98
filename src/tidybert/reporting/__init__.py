"""The evaluation report: what a model gets right, how sure it is, and where it fails.

An Evaluation, which needs no torch, becomes the contents of report.json, and these become the page.
"""
