"""The labels themselves: the checks before training, wrong labels, near-duplicates.

``check_examples`` gives Findings.  ``data.corrections`` reads what a person wrote beside them.
"""

from tidybert.checking.label_check import Findings, check_examples

__all__ = ["Findings", "check_examples"]
