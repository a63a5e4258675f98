"""``tidybert quickstart --poem``: learn a poem by heart, then say it from its first two words.

The poem is Li Bai's "Quiet Night Thought" (8th century), in Chinese, a token a character, and in an
English rendering of this project's own.
"""

import shlex
import textwrap
from importlib import resources
from pathlib import Path
from typing import Any, Final

from tidybert.cli.commands.pretraining.pretrain import shown_training
from tidybert.cli.output import MAX_WIDTH, note, print_json, print_line, print_table, say
from tidybert.pretraining.language_model_arguments import LanguageModelArguments
from tidybert.storage.atomic_files import atomic_write_bytes

POEM: Final = "quiet-night-thought.txt"
PROMPTS: Final = ("床前", "Before my")
MODEL: Final = "transformer-tiny"
MAX_STEPS: Final = 150
# A step reads both versions once or twice.
TOKENS_PER_STEP: Final = 128
MAX_SEQ_LENGTH: Final = 64
# Of the end of a prompt, in the table of steps.
_SHOWN: Final = 46


def recite(out: Path, program: str, *, seed: int, resume: bool, as_json: bool) -> None:
    """Train the model in ``out``, and print each step of both recitations, and what is next.

    ``program`` is the word to type for tidybert.
    """
    from tidybert.inference.generation import TextGenerator
    from tidybert.pretraining.batches.instance_options import NextTokenOptions
    from tidybert.pretraining.pretraining_job import PretrainingJob
    from tidybert.pretraining.pretraining_run import run_pretraining

    poem = resources.files("tidybert") / "resources" / "poem" / POEM
    say("tidybert quickstart --poem: learn a poem by heart, then say it from its first two words")
    say(
        "1. The text. Li Bai wrote it; the Chinese is read a character at a time, and the English "
        "a word at a time."
    )
    note(*(f"   {line}" for line in poem.read_text("utf-8").splitlines()))
    say(
        f"2. Training. A {MODEL} learns, at each token, to say the next one. It sees only the "
        f"tokens before it, and reads both versions in each of {MAX_STEPS} steps."
    )
    with resources.as_file(poem) as path, shown_training(out, None) as callbacks:
        job = PretrainingJob(
            MODEL,
            path,
            LanguageModelArguments(
                max_steps=MAX_STEPS,
                tokens_per_step=TOKENS_PER_STEP,
                eval_tokens=TOKENS_PER_STEP,
                seed=seed,
            ),
            instances=NextTokenOptions(max_seq_length=MAX_SEQ_LENGTH),
            out=out,
            resume=resume,
            device="cpu",
        )
        result = run_pretraining(job, callbacks)
    atomic_write_bytes(out / POEM, poem.read_bytes())

    generator = TextGenerator(out, device="cpu")
    documents = poem.read_text("utf-8").strip().split("\n\n")
    answers = []
    say(
        f"3. From two words, after {result.seconds:.0f} s of training: the likeliest next token "
        "joins the prompt, until the model says [EOS]."
    )
    for prompt, document in zip(PROMPTS, documents, strict=True):
        steps = list(generator.steps(prompt))
        text = steps[-1].text
        is_right = steps[-1].is_end and text == generator.spelled(document)
        answers.append(
            {
                "prompt": prompt,
                "text": text,
                "is_word_for_word": is_right,
                "steps": [
                    {"prompt": one.prompt, "token": one.token, "probability": one.probability}
                    for one in steps
                ],
            }
        )
        if not as_json:
            _print(answers[-1])
    if as_json:
        print_json({**result.metrics, "answers": answers, "run": str(out)})
        return
    say(f"4. The model is in {out}. What to try next:")
    run, file = shlex.quote(str(out)), shlex.quote(str(out / POEM))
    for purpose, command in (
        ("begin it in another way:", f'{program} generate {run} "I lift"'),
        ("see how likely it finds each token:", f'echo "I bow my head" | {program} score {run} -'),
        (
            "train on a text of your own, some thousand steps where it is longer:",
            f"{program} train-lm {file} --out my-model --max-steps 150 --tokens-per-step 128",
        ),
    ):
        note(f"   {purpose}\n     {command}")


def _print(answer: dict[str, Any]) -> None:
    print_table(
        {"prompt": "left", "next token": "left", "probability": "right"},
        [
            (_end(one["prompt"]), one["token"], f"{one['probability']:.2f}")
            for one in answer["steps"]
        ],
    )
    how = "word for word" if answer["is_word_for_word"] else "not as it was written"
    print_line(f"\n{textwrap.fill(answer['text'], MAX_WIDTH)}\n({how})\n")


def _end(text: str) -> str:
    if len(text) <= _SHOWN:
        return text
    end = text[1 - _SHOWN :]
    return f"… {end.partition(' ')[2] or end}"
