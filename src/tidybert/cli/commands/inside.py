"""Commands that show what happens inside a model: tokenize, attention, similar and generate."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidybert.cli import flags
from tidybert.cli.flags import command
from tidybert.cli.output import note, print_json, print_line, print_part, print_table
from tidybert.errors import UsageError

if TYPE_CHECKING:
    from tidybert.inference.language_model import NextToken

# The queries, keys and values are for Python.
_IN_JSON: Final = ("text", "text_pair", "encoding", "layer", "head", "causal", "scores", "probs")
_SUFFIXES: Final = (".svg", ".html")


def check_picture(flag: str, path: Path | None) -> None:
    """Raise UsageError for a file whose name ends in another way, before the work begins."""
    if path is not None and path.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"{flag} {path}: expected a name that ends in {' or '.join(_SUFFIXES)}")


def show(shown: Any, picture: Path | None, entries: dict[str, Any] | None) -> None:
    """Print a result, as JSON where there are entries, and write its picture or page."""
    if picture is not None:
        from tidybert.storage.atomic_files import atomic_write_text

        if picture.suffix.lower() == ".html":
            atomic_write_text(picture, shown.page())
        else:
            shown.plot().save(picture)
        note(f"{picture}: written")
    if entries is not None:
        print_json(entries)
    else:
        print_line(str(shown))


@command("tokenize")
class Tokenize(flags.JsonFlag):
    """Show the tokens of a text or a pair: ids, segments, positions, and places in the text.

    Special tokens such as [MASK] in the text count as such. To a RUN of an older version they are
    text, as they were in its training.
    """

    model: str
    """``MODEL``: A name that tidybert models lists, or a directory."""
    text: str
    """``TEXT``: The text."""
    second: str | None = None
    """``TEXT``: The second text of a pair."""
    max_seq_length: int | None = None
    """Most tokens of the text or pair; a longer one is cut. If not set: never cut."""

    def run(self) -> None:
        from tidybert.checkpoints.model_directory import ModelDirectory
        from tidybert.tokenization import BertTokenizer

        directory, length = ModelDirectory.open(self.model), self.max_seq_length
        tokenizer, way = BertTokenizer.from_pretrained(self.model), directory.special_tokens_in_text
        one = tokenizer.encode(self.text, self.second, length, special_tokens_in_text=way)
        rows: list[dict[str, Any]] = []
        columns = (
            one.tokens,
            one.input_ids,
            one.token_type_ids,
            one.offset_mapping,
            one.sequence_ids,
        )
        for token, index, segment, (start, end), side in zip(*columns, strict=True):
            row = {"position": len(rows), "token": token, "id": index, "segment": segment}
            # [CLS] and [SEP] are in neither text.
            place = dict.fromkeys(("start", "end", "text"))
            if side is not None:
                text = (self.text, self.second or "")[side][start:end]
                place = {"start": start, "end": end, "text": text}
            rows.append(row | place)
        if self.json:
            print_json({"tokens": rows, "num_tokens": one.num_tokens, "truncated": one.truncated})
            return
        print_table(
            {name: "" if name in ("token", "text") else "d" for name in rows[0]},
            [["" if value is None else value for value in row.values()] for row in rows],
        )
        if one.truncated:
            note(f"{one.num_tokens:,} tokens were cut to --max-seq-length {length}")


@command("attention")
class Attention(flags.PickleFlag, flags.ThreadsFlag, flags.JsonFlag):
    """Show where each token of a text looks: one matrix, or a summary of all heads.

    Special tokens such as [MASK] in the text count as such.
    """

    model: str
    """``MODEL``: A MODEL or a RUN."""
    text: str
    """``TEXT``: The text."""
    second: str | None = None
    """``TEXT``: The second text of a pair."""
    layer: int | None = None
    """Layer to show, from 1; with --head. If not set: all layers and heads."""
    head: int | None = None
    """Head to show, from 1; with --layer."""
    causal: bool = False
    """``--causal``: Let a token see only itself and the tokens before it."""
    out: Path | None = None
    """``--out FILE``: Also write a picture: F.svg, or F.html with the table."""

    def run(self) -> None:
        if (self.layer is None) != (self.head is None):
            raise UsageError("--layer and --head name one matrix together; give both, or neither")
        check_picture("--out", self.out)
        from tidybert.explain import Explainer

        explainer = Explainer(self.model, allow_pickle=self.allow_pickle)
        found: Any = explainer.attention(self.text, self.second, causal=self.causal)
        if self.layer is not None:
            found = found.head(self.layer, self.head)
        entries = found.to_dict() if self.json else {}
        entries = {name: entries[name] for name in _IN_JSON if name in entries}
        show(found, self.out, entries if self.json else None)


@command("similar")
class Similar(flags.PickleFlag, flags.ThreadsFlag, flags.JsonFlag):
    """Show the cosine similarity of words and texts, or the tokens nearest to one word.

    Several texts are compared by the vectors of tidybert embed, each two with each other. A
    single word is compared with all tokens of the vocabulary, by their word embeddings.
    """

    model: str
    """``MODEL``: A MODEL or a RUN."""
    texts: list[str]
    """``WORD_OR_TEXT``: One word, or several texts."""
    layer: str | None = None
    """``--layer N``: Compare means of a layer's states, such as -1; words for only the word
    embeddings. If not set: the vectors of tidybert embed."""
    top_k: int | None = None
    """Tokens to show beside a single word. If not set: 10."""
    picture: Path | None = None
    """``--picture FILE``: Also write a map of the texts: F.svg, or F.html with the table."""

    def run(self) -> None:
        texts, is_word = self.texts, len(self.texts) == 1
        if is_word and self.layer is not None:
            raise UsageError(
                "--layer has no meaning for a single word; name several, or leave it out"
            )
        if not is_word and self.top_k is not None:
            raise UsageError("--top-k has no meaning for several texts; leave it out")
        check_picture("--picture", self.picture)
        from tidybert.explain import Explainer

        explainer = Explainer(self.model, allow_pickle=self.allow_pickle)
        if is_word:
            found: Any = explainer.nearest(texts[0], top_k=10 if self.top_k is None else self.top_k)
        else:
            found = explainer.similarities(texts, layer=self.layer)
        show(found, self.picture, found.to_dict() if self.json else None)


# Why a text ended.
_WHY: Final = {
    "[EOS]": "the model ended the text: [EOS]",
    "max_tokens": "stopped at --max-tokens",
    "max_seq_length": "stopped at the longest sequence that the model takes, {} tokens with [SOS]",
}


@command("generate")
class Generate(flags.DeviceFlag, flags.JsonFlag):
    """Continue a text: the likeliest next token each time, or one drawn by its probability.

    The words come as the model says them. With --json the tokens have their probabilities.
    """

    model: str
    """``RUN``: A RUN of train-lm."""
    prompt: str = ""
    """``TEXT``: The beginning of the text."""
    max_tokens: int | None = None
    """Most new tokens. If not set: up to [EOS] or the model's longest sequence."""
    temperature: float | None = None
    """Draw tokens with logits divided by this. If not set: take the likeliest token, or 1 with
    --top-k or --top-p."""
    top_k: int | None = None
    """Draw from this many likeliest tokens."""
    top_p: float | None = None
    """Draw from the likeliest tokens that together have this probability."""
    seed: int = 42
    """Random seed for drawing tokens."""

    def run(self) -> None:
        from tidybert.inference.language_model import Sampling, TextGenerator

        sampling = Sampling(self.temperature, self.top_k, self.top_p, self.seed)
        generator = TextGenerator(self.model, device=self.device)
        coming = generator.steps(self.prompt, max_tokens=self.max_tokens, sampling=sampling)
        steps: list[NextToken] = []
        for part in _parts(coming, steps, generator.spelled(self.prompt)):
            if not self.json:
                print_part(part)
        answer = generator.answer(self.prompt, steps, self.max_tokens)
        if self.json:
            print_json(answer)
            return
        print_part("\n")
        note(_WHY[answer["stopped"]].format(generator.max_seq_length))


def _parts(coming: "Iterable[NextToken]", steps: "list[NextToken]", before: str) -> Iterator[str]:
    """The text in parts that no later token changes; ``steps`` collects what comes."""
    shown = 0
    for step in coming:
        steps.append(step)
        # The next token may join the last one to it, as in don't.
        pairs = enumerate(zip(before, step.text, strict=False))
        shorter = min(len(before), len(step.text))
        settled = next((at for at, (old, new) in pairs if old != new), shorter)
        yield step.text[shown:settled]
        shown, before = max(shown, settled), step.text
    yield before[shown:]
