"""The labels themselves: the checks before training, wrong labels, near-duplicates, what to label.

``check_examples`` gives Findings.  ``apply_corrections`` reads what a person wrote beside them.
"""

from tidybert.checking.checking_run import Findings, check_examples
from tidybert.checking.corrections import Corrected, apply_corrections

__all__ = ["Corrected", "Findings", "apply_corrections", "check_examples"]
