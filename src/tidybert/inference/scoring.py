"""How likely a text is: the probability of each of its tokens, and the perplexity.

A language model gives each token a probability from the tokens before it, so their product is the
probability of the text.  A BERT sees both sides: each token is masked in turn and predicted from
all others (Salazar et al. 2020, "Masked language model scoring").  That product is not the
probability of any text, and the perplexity made from it is called pseudo-perplexity.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.configuration import CausalConfig
from tidybert.data.batching import Batch
from tidybert.data.features import Features, sequence
from tidybert.errors import LINE, DataError, param
from tidybert.files.text_examples import TextExample
from tidybert.inference.answer_precision import prepare_precision
from tidybert.inference.forward import in_chunks, run_batches
from tidybert.inference.loading import check_texts, fitting_length, load_with_head, to_device
from tidybert.inference.notebooks import ShowsPretraining
from tidybert.modeling.heads import BertForMaskedLM, CausalLM
from tidybert.modeling.kernels.transfer import to_device as copied_to

# Texts in memory at once; a BERT reads each as often as it has tokens.
_CHUNK: Final = 64
# Rows whose logits, V each, exist at once.
_ROWS: Final = 256
Ids = npt.NDArray[np.int32]


class TextScorer(ShowsPretraining):
    """A language model, or a BERT with its masked-LM head, that says how likely texts are.

    Args:
        model: a RUN of train-lm, or a MODEL with a masked-LM head.
        device: auto, cpu, cuda or cuda:N.
        precision: as for MaskFiller.
        allow_pickle: read weights from a pickle if there is no safetensors file.

    ``is_causal`` says which of the two it is.  Raises what ``load`` raises, and WeightsError for a
    BERT without the head.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "auto",
        precision: str = "auto",
        allow_pickle: bool = False,
    ) -> None:
        self.is_causal = isinstance(ModelDirectory.open(model).config, CausalConfig)
        build: Any = CausalLM if self.is_causal else BertForMaskedLM
        head = "output layer" if self.is_causal else "masked-LM head"
        loaded: tuple[Any, Any] = load_with_head(build, model, head=head, allow_pickle=allow_pickle)
        self.model, self.tokenizer = loaded
        #: The key of an answer's figure.
        self.measure = "perplexity" if self.is_causal else "pseudo_perplexity"
        if self.is_causal:
            self.start_id, self.end_id = self.tokenizer.vocabulary.text_bounds
        self.device = to_device(self.model, device)
        self.precision = prepare_precision(precision, self.model, model, self.device)
        self.max_seq_length = fitting_length(self.model.config, None)
        self._note(model, self.model.config)

    def score(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """One answer a text, in order: {"text", "tokens", "perplexity", "num_tokens"}.

        "tokens" has {"token", "probability"} for each; a language model's last one is [EOS].
        "perplexity" is exp of the mean of -ln(probability); a BERT's answer has
        "pseudo_perplexity" in its place.  A text with more tokens than the model
        has positions is predicted in pieces, each without the others.

        Raises DataError where a BERT is given a text without tokens.
        """
        check_texts(texts)
        return self._score(texts, [f"text {number}" for number in range(1, len(texts) + 1)])

    def score_stream(self, examples: Iterable[TextExample]) -> Iterator[dict[str, Any]]:
        """The same answers for examples, in constant memory; DataError for a pair of texts."""
        for chunk in in_chunks(examples, largest=_CHUNK):
            for one in chunk:
                if one.text_pair is not None:
                    raise DataError(
                        f"{LINE} {one.row}: a pair of texts, and this reads single texts: name "
                        f"their column with {param('text')}"
                    )
            names = [f"{LINE} {one.row}" for one in chunk]
            yield from self._score([one.text for one in chunk], names)

    def _score(self, texts: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
        found = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        features: list[Features] = []
        pieces: list[list[Ids]] = []
        for number, (ids, name) in enumerate(zip(found, names, strict=True)):
            if not len(ids) and not self.is_causal:
                raise DataError(f"{name}, {texts[number]!r:.60}, has no token to score")
            pieces.append(self._pieces(ids.astype(np.int32)))
            for piece in pieces[-1]:
                features += self._features(piece, number)
        rows = [len(one.label) for one in features]
        logs = run_batches(self.outputs, features, rows, self.device, precision=self.precision)
        of_texts: list[list[float]] = [[] for _ in texts]
        for one, each in zip(features, logs, strict=True):
            of_texts[one.example] += each[:, 0].tolist()
        return [
            self._answer(text, np.concatenate(of_text), each)
            for text, of_text, each in zip(texts, pieces, of_texts, strict=True)
        ]

    def _pieces(self, ids: Ids) -> list[Ids]:
        """The ids in pieces that fit the model; a language model also says where a text ends."""
        room = self.max_seq_length - (1 if self.is_causal else 2)
        cuts = [ids[start : start + room] for start in range(0, max(1, len(ids)), room)]
        if self.is_causal:
            cuts[-1] = np.append(cuts[-1], np.int32(self.end_id))
        return cuts

    def _features(self, piece: Ids, number: int) -> list[Features]:
        """What the model reads to predict a piece; ``label`` has the ids that it predicts."""
        if self.is_causal:
            ids = np.concatenate([[self.start_id], piece[:-1]], dtype=np.int32)
            types = np.zeros(len(ids), np.uint8)
            return [Features(ids, types, len(ids), example=number, label=piece)]
        features = []
        for place, hidden in enumerate(piece, start=1):
            ids, types = sequence(self.tokenizer, [piece])
            ids[place] = self.tokenizer.mask_token_id
            label = np.array([hidden])
            features.append(
                Features(ids, types, len(ids), example=number, place=place, label=label)
            )
        return features

    def outputs(self, batch: Batch) -> Tensor:
        """(M, 1): ln(probability) of the labels of a batch's features, among the known words."""
        rows, device = batch.rows, batch.rows.input_ids.device
        labels = np.concatenate([one.label for one in batch.features]).astype(np.int64)
        targets = copied_to(torch.from_numpy(labels), device)
        if self.is_causal:
            hidden = self.model.bert(rows).last_hidden_state
            parts = [slice(start, start + _ROWS) for start in range(0, len(hidden), _ROWS)]
            return torch.cat(
                [self._logs(self.model.logits(hidden[part]), targets[part]) for part in parts]
            )
        starts = np.cumsum([0, *rows.lengths[:-1]])
        places = starts + np.array([one.place for one in batch.features])
        positions = copied_to(torch.from_numpy(places), device)
        return self._logs(self.model(rows, masked_lm_positions=positions), targets)

    def _logs(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(M, 1) of logits (M, V) and targets (M,)."""
        known = logits.float()[:, : self.tokenizer.vocab_size]
        return known.log_softmax(-1).gather(1, targets[:, None])

    def _answer(self, text: str, ids: Ids, logs: list[float]) -> dict[str, Any]:
        tokens = self.tokenizer.convert_ids_to_tokens(ids.tolist())
        return {
            "text": text,
            "tokens": [
                {"token": token, "probability": math.exp(each)}
                for token, each in zip(tokens, logs, strict=True)
            ],
            self.measure: math.exp(min(-float(np.mean(logs)), 700.0)),
            "num_tokens": len(logs),
        }
