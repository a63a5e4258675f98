"""BERT in one page: the whole model in plain PyTorch, to be read from top to bottom.

    python examples/bert_in_one_page.py
    python examples/bert_in_one_page.py "She plays the [MASK] in an orchestra." path/to/MODEL

It opens the weights that tidybert and Hugging Face open, and computes the same hidden states.  It
takes one text at a time and does not train: no batch, no padding, no dropout.  What tidybert does
beyond this page is to run many texts at once, fast.

Paper: Devlin et al. 2019, "BERT: Pre-training of deep bidirectional transformers"; its layers are
those of Vaswani et al. 2017, "Attention is all you need".

S tokens, H width of a hidden state, N heads, D = H / N width of a head, V words in the vocabulary.
"""

import json
import math
import sys
from importlib.resources import files
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import gelu

from tidybert import BertTokenizer


class Bert:
    """A MODEL directory's config.json and model.safetensors, and the functions that use them."""

    def __init__(self, directory: Path) -> None:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        assert config["hidden_act"] == "gelu"
        self.num_layers: int = config["num_hidden_layers"]
        self.num_heads: int = config["num_attention_heads"]
        self.epsilon: float = config["layer_norm_eps"]
        stored = load_file(directory / "model.safetensors")
        # The encoder's names begin with "bert." where the file has heads, too.
        self.weights = {name.removeprefix("bert."): each.float() for name, each in stored.items()}

    # The encoder: from S ids to S states.

    def encode(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        """Ids (S,) to hidden states (S, H), one for each token, which depends on all the others."""
        hidden = self.embed(input_ids, token_type_ids)
        for number in range(self.num_layers):
            hidden = self.layer(f"encoder.layer.{number}", hidden)
        return hidden

    def embed(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        """Ids (S,) to (S, H): what the token is, where it is, and in which of two texts."""
        words = self.weights["embeddings.word_embeddings.weight"]  # (V, H)
        positions = self.weights["embeddings.position_embeddings.weight"]  # (512, H)
        types = self.weights["embeddings.token_type_embeddings.weight"]  # (2, H)
        hidden = words[input_ids] + positions[: len(input_ids)] + types[token_type_ids]
        return self.layer_norm("embeddings.LayerNorm", hidden)

    def layer(self, name: str, hidden: Tensor) -> Tensor:
        """(S, H) to (S, H): tokens look at each other, then each one thinks by itself."""
        context = self.attend(f"{name}.attention.self", hidden)
        change = self.linear(f"{name}.attention.output.dense", context)
        hidden = self.layer_norm(f"{name}.attention.output.LayerNorm", hidden + change)
        expanded = gelu(self.linear(f"{name}.intermediate.dense", hidden))  # (S, 4H)
        change = self.linear(f"{name}.output.dense", expanded)
        return self.layer_norm(f"{name}.output.LayerNorm", hidden + change)

    def attend(self, name: str, hidden: Tensor) -> Tensor:
        """softmax(Q K^T / sqrt(D)) V in N heads at once: (S, H) to (S, H)."""
        query, key, value = (
            self.linear(f"{name}.{part}", hidden)  # (S, H)
            .view(len(hidden), self.num_heads, -1)  # (S, N, D)
            .transpose(0, 1)  # (N, S, D)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])  # (N, S, S)
        context = scores.softmax(-1) @ value  # (N, S, D)
        return context.transpose(0, 1).flatten(1)

    def linear(self, name: str, hidden: Tensor) -> Tensor:
        """W x + b for each row x of ``hidden``."""
        return hidden @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def layer_norm(self, name: str, hidden: Tensor) -> Tensor:
        """Each row with mean 0 and variance 1, then a gain and a bias for each column."""
        centred = hidden - hidden.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        normalized = centred / torch.sqrt(variance + self.epsilon)
        return normalized * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    # The heads: what the states are good for.

    def pool(self, hidden: Tensor) -> Tensor:
        """States (S, H) to one vector (H,) of the whole text, from its first token, [CLS]."""
        return torch.tanh(self.linear("pooler.dense", hidden[0]))

    def predict_words(self, hidden: Tensor) -> Tensor:
        """States (S, H) to a logit (S, V) for every word in the place of every token."""
        hidden = gelu(self.linear("cls.predictions.transform.dense", hidden))
        hidden = self.layer_norm("cls.predictions.transform.LayerNorm", hidden)
        # A word is the likelier the more its own embedding points where the state points.
        words = self.weights["embeddings.word_embeddings.weight"]
        return hidden @ words.T + self.weights["cls.predictions.bias"]


def fill_mask(bert: Bert, tokenizer: BertTokenizer, text: str, count: int = 5) -> None:
    """Print the likeliest words for each [MASK] of a text."""
    encoding = tokenizer.encode(text, special_tokens_in_text=True)
    input_ids = torch.tensor(encoding.input_ids)
    token_type_ids = torch.tensor(encoding.token_type_ids)
    print(" ".join(tokenizer.convert_ids_to_tokens(encoding.input_ids)))
    probabilities = bert.predict_words(bert.encode(input_ids, token_type_ids)).softmax(-1)
    for place in (input_ids == tokenizer.mask_token_id).nonzero().flatten().tolist():
        best = probabilities[place].topk(count)
        words = tokenizer.convert_ids_to_tokens(best.indices.tolist())
        for probability, word in zip(best.values.tolist(), words, strict=True):
            print(f"{probability:6.1%}  {word}")


if __name__ == "__main__":
    given = sys.argv[1:]
    sentence = given[0] if given else "My brother and my [MASK]."
    shipped = Path(str(files("tidybert"))) / "resources" / "tidybert-small"
    model = Path(given[1]) if len(given) > 1 else shipped
    fill_mask(Bert(model), BertTokenizer.from_pretrained(model), sentence)
