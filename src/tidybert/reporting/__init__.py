"""The evaluation report: what a model gets right, how sure it is, and where it fails.

An Evaluation, plain values without torch, becomes report.json, and report.json becomes the page.
"""
