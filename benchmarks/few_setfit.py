"""SetFit on labelled texts: JSON on standard input, accuracy and seconds on standard output.

few.py runs this in an environment that has the package setfit.
"""

import json
import sys
import time

import setfit  # type: ignore[import-not-found]
from datasets import Dataset  # type: ignore[import-not-found]


def main() -> None:
    """Train with SetFit's defaults, and score."""
    work = json.load(sys.stdin)
    train, test = work["train"], work["test"]
    begin = time.perf_counter()
    model = setfit.SetFitModel.from_pretrained(work["model"], local_files_only=True)
    trainer = setfit.Trainer(
        model=model,
        args=setfit.TrainingArguments(
            seed=work["seed"], save_strategy="no", report_to="none", show_progress_bar=False
        ),
        train_dataset=Dataset.from_dict(
            {"text": [text for text, _ in train], "label": [label for _, label in train]}
        ),
    )
    trainer.train()
    seconds = time.perf_counter() - begin
    found = model.predict([text for text, _ in test])
    right = sum(str(a) == label for a, (_, label) in zip(found, test, strict=True))
    print(json.dumps({"accuracy": right / len(test), "seconds": seconds}))


if __name__ == "__main__":
    main()
