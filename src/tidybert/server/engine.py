"""The engine: the models of a server, from opening to closing, and what all requests share."""

import asyncio
import logging
import os
import signal
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import accumulate, count, islice
from mmap import mmap
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from tidybert.checkpoints.sentence_form import POOLINGS
from tidybert.data.features import Features, text_features
from tidybert.errors import suggestion
from tidybert.inference.embedding import fitted
from tidybert.inference.forward import encoding_features
from tidybert.inference.loading import check_texts
from tidybert.server.answers import WRONG_TASK, Refusal, as_refusals
from tidybert.server.served_model import (
    EMBED,
    FILL_MASK,
    NEXT_SENTENCE,
    PREDICT,
    ModelLane,
    ServedModel,
    open_models,
)
from tidybert.server.settings import ServerSettings
from tidybert.server.work_queue import (
    Meters,
    Stages,
    WorkQueue,
    sizes_of,
    slices,
)
from tidybert.system.cores import num_threads, return_freed_memory
from tidybert.tasks.answer import TaskAnswer
from tidybert.tasks.answers import Answers
from tidybert.tasks.text_task import TextTask
from tidybert.tokenization.tokenizer import Encoding

_LOGGER: Final = logging.getLogger(__name__)
MOST_CHARACTERS: Final = 2**18
"""Most characters of an input whose every token has a place: to tag, answer, choose or fill."""
MOST_SHOWN: Final = 2**19
"""Most tokens that one request may have shown: each is some 60 bytes of an answer."""
# Seconds for which a reload waits for requests that hold the old models, before it says that it is
# done.
_PATIENCE: Final = 1.0
_BATCH_TOKENS: Final = {"cpu": 1024, "cuda": 16_384}


class Engine:
    """The models of a server, its queue and threads.

    Of a worker ``parent`` is the process that opens models; ``reloading`` is a byte that all share,
    which is 1 while it does.
    """

    def __init__(
        self,
        settings: ServerSettings,
        parent: int | None = None,
        reloading: bytearray | mmap | None = None,
    ) -> None:
        self.settings = settings
        self.parent = parent
        self._shared = bytearray(1) if reloading is None else reloading
        self._reload: asyncio.Task[None] | None = None
        #: Requests that may hold a model.
        self.in_work = 0
        self.models: Mapping[str, ServedModel] = {}
        self.is_ready = False
        #: Whether clients shall open new connections, because another process takes over.
        self.is_leaving = False
        device = settings.device_type
        cores = num_threads() if device == "cpu" else 1
        #: Most tokens that a thread computes at once.
        self.batch_tokens = settings.batch_tokens or _BATCH_TOKENS.get(device, 1024)
        self.queue = WorkQueue(
            settings.queue_tokens, settings.queue_inputs, self.batch_tokens, cores
        )
        self.meters = Meters(self.queue, is_alone=parent is None)
        self.stages = Stages(self.queue, self.meters, cores)

    def open(self, models: Mapping[str, ServedModel] | None = None) -> None:
        """``open_models``, or take those that somebody else has opened."""
        self.models = open_models(self.settings) if models is None else models
        for each in self.models.values() if models is not None and self.settings.are_graphs else ():
            # Their sessions are a process's own.
            each.warm()
        self.is_ready = True

    def start(self) -> None:
        self.stages.start()

    def close(self) -> None:
        self.is_ready = False
        self.stages.close()

    def reload(self, own: int = 0) -> asyncio.Future[bool] | None:
        """Begin to open all models again, for requests to come; one at a time, else Refusal 409.

        ``own`` is 1 if a request asks for it, which does not wait for itself.
        The future gets False if that failed and the old models stay.  None: the parent does it.
        """
        if self._shared[0] or self._reload is not None or not self.models:
            message = "the models are being opened already; send it again once that is done"
            raise Refusal(409, message, retry_after=1)
        if self.parent is not None:
            self._shared[0] = 1
            os.kill(self.parent, signal.SIGHUP)
            return None
        opened = asyncio.get_running_loop().create_future()
        self._reload = asyncio.ensure_future(self._open_again(opened, own))
        return opened

    async def _open_again(self, opened: asyncio.Future[bool], own: int) -> None:
        """Ends once the requests in work have let go of the old models."""
        loop = asyncio.get_running_loop()
        old = [weakref.ref(each.encoder) for each in self.models.values()]
        is_opened = True
        try:
            self.models = await loop.run_in_executor(None, open_models, self.settings)
        except Exception:
            _LOGGER.exception("reloading failed; the old models stay")
            is_opened = False
        else:
            _LOGGER.info("the models were opened again")
            now = loop.time()
            while self.in_work > own and any(each() is not None for each in old):
                if loop.time() > now + _PATIENCE and not opened.done():
                    opened.set_result(True)
                if loop.time() > now + self.settings.deadline:
                    break
                await asyncio.sleep(0.02)
        await loop.run_in_executor(None, return_freed_memory)
        self._reload = None
        if not opened.done():
            opened.set_result(is_opened)

    def model(self, name: str | None) -> ServedModel:
        """A model by its name, the first one for None; Refusal 404 if no model has the name."""
        if not self.models:
            raise Refusal(503, "the models are being loaded; send it again later", retry_after=1)
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            known = ", ".join(self.models)
            more = suggestion(name, self.models)
            raise Refusal(404, f"no model is named {name!r:.80}; there are {known}{more}", "model")
        return self.models[name]


# What a request must pass before its inputs are computed.


@asynccontextmanager
async def admitted(engine: Engine, client: str, num_inputs: int) -> AsyncIterator[None]:
    """Refuse what cannot be taken, end what takes too long, turn users' errors into Refusals."""
    settings = engine.settings
    if num_inputs == 0:
        raise Refusal(422, "there are no inputs; give one at least", "inputs")
    if num_inputs > settings.max_inputs:
        raise Refusal(
            422,
            f"{num_inputs:,} inputs in one request; at most {settings.max_inputs:,} are "
            "taken: send several requests",
            "inputs",
        )
    if not engine.is_ready:
        raise Refusal(503, "the server is not ready; send it again later", retry_after=1)
    engine.queue.admit(client)
    try:
        with as_refusals("inputs"):
            async with asyncio.timeout(settings.deadline):
                yield
    except TimeoutError:
        raise late(engine) from None


def late(engine: Engine) -> Refusal:
    """What to raise once a request's time is over."""
    return Refusal(
        504,
        f"no answer within {engine.settings.deadline:g} seconds; send fewer inputs, or send it "
        "again later",
        retry_after=engine.queue.seconds_left(),
    )


def lane_of(model: ServedModel, name: str) -> ModelLane:
    """The lane of one of a model's heads; Refusal if the model lacks it."""
    if name not in model.lanes:
        head = name.partition(":")[0]
        can = ", ".join(model.heads)
        raise Refusal(
            422, f"{model.name!r} has no head for {head}; it can {can}", "model", WRONG_TASK
        )
    return model.lanes[name]


def refuse_unknown_ids(model: ServedModel, ids: Sequence[object], where: str) -> None:
    """Raise Refusal for the first value that is no id of the model's vocabulary."""
    size = model.tokenizer.vocab_size
    for each in ids:
        if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each < size:
            raise Refusal(422, f"{each!r:.40} is not an id; the model knows 0 to {size - 1}", where)


def refuse_long(sizes: Sequence[int], where: str = "inputs") -> None:
    """Raise Refusal for the first input with too many characters for work that no deadline ends."""
    for number, size in enumerate(sizes):
        if size > MOST_CHARACTERS:
            message = (
                f"{size:,} characters; at most {MOST_CHARACTERS:,} are taken: send it in parts"
            )
            raise Refusal(422, message, f"{where}.{number}", "too_long")


def refuse_cut(
    parts: Sequence[Sequence[Any]], made: Sequence[Sequence[Features]], longest: int
) -> None:
    """Raise Refusal for the first input that was cut; ``made`` are the features of each slice."""
    starts = accumulate(map(len, parts), initial=0)
    for start, slice_ in zip(starts, made, strict=False):
        for one in slice_:
            if one.truncated:
                raise Refusal(
                    422,
                    f"{one.num_tokens:,} tokens, and the model reads {longest:,}: shorten the "
                    "text, or give truncate: true to cut it",
                    f"inputs.{start + one.example}",
                    "too_long",
                )


# A model, as a client asks it: inputs to answers, on the event loop; all routes call this.
#
# A request is tokenised, its features wait in the queue, threads compute them in batches with those
# of other requests, and the model's head decodes its rows.


T = TypeVar("T")
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Embedded:
    """Vectors (n, d) float32, and for each input its tokens before cutting, and whether it was."""

    vectors: Vectors
    num_tokens: list[int]
    truncated: list[bool]


@dataclass(frozen=True)
class AskedModel:
    """The model that a request asks, and who asks; every method raises Refusal."""

    engine: Engine
    model: ServedModel
    client: str

    async def predict(
        self,
        texts: Sequence[Any],
        text_pairs: Sequence[Any] | None = None,
        *,
        truncate: bool = False,
    ) -> list[TaskAnswer]:
        """One answer an input, as ``Predictor.predict`` takes and gives them."""
        return await self.answered(texts, text_pairs, Answers.predictions, truncate=truncate)

    async def answered(
        self,
        texts: Sequence[Any],
        text_pairs: Sequence[Any] | None,
        decode: Callable[[Answers[Any, Any]], list[T]],
        *,
        truncate: bool = False,
    ) -> list[T]:
        """What ``decode`` makes of the answers, one an input."""
        lane, predictor = lane_of(self.model, PREDICT), self.model.predictor
        assert predictor is not None
        task, stages = predictor.task, self.engine.stages

        def examples() -> list[Any]:
            check_texts(texts, text_pairs)
            found = task.from_texts(texts, text_pairs)
            task.check_inputs(found, predictor.metadata.inputs)
            return found

        def featured(part: Sequence[Any]) -> list[Features]:
            return task.features(part, predictor.tokenizer, predictor.max_seq_length)

        def decoded(*given: Any) -> list[T]:
            return decode(task.answers(*given))

        async with admitted(self.engine, self.client, len(texts)):
            sizes = sizes_of(texts, text_pairs)
            if not isinstance(task, TextTask):
                refuse_long(sizes)
            parts = slices(await stages.tokenise(sum(sizes), examples), sizes)
            made = await stages.tokenise_slices(parts, sizes, featured)
            if not truncate:
                # Of a question, only the question itself is cut: its context has windows.
                longest = getattr(task, "max_query_length", None) or predictor.max_seq_length
                refuse_cut(parts, made, longest)
            features = [one for each in made for one in each]
            outputs = iter(await stages.compute(lane, self.client, features))
            found: list[T] = []
            for part, each in zip(parts, made, strict=True):
                rows = list(islice(outputs, len(each)))
                found += await stages.decode(each, decoded, rows, each, part)
            return found

    async def embed(
        self,
        inputs: Sequence[str] | Sequence[Sequence[int]],
        *,
        truncate: bool = False,
        normalize: bool | None = None,
        pooling: str | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
    ) -> Embedded:
        """The vectors of texts, or of lists of ids.

        ``normalize`` scales each vector to length 1; ``pooling`` is mean, cls or max; a text comes
        after the prompt of this name; ``dimensions`` is how many numbers of a vector are kept.
        None: as the model's directory says.
        """
        form = self.model.form
        pooling = form.pooling if pooling is None else pooling
        with as_refusals("prompt_name"):
            prompt = form.prompt(name=prompt_name)
        if pooling not in POOLINGS:
            known = ", ".join(POOLINGS)
            raise Refusal(422, f"pooling is {pooling!r:.40}; expected one of {known}", "pooling")
        model, stages = self.model, self.engine.stages
        if dimensions is not None and dimensions > model.dimension:
            message = f"dimensions is {dimensions}: the model gives {model.dimension} at most"
            raise Refusal(422, message, "dimensions")
        lane = lane_of(model, f"{EMBED}:{pooling}")
        is_scaled = form.normalize and normalize is not False
        if form.graph_width is not None:
            if form.normalize and normalize is False:
                message = "the vectors of this graph have length 1: leave normalize out"
                raise Refusal(422, message, "normalize")
            # The graph has scaled and cut them.
            is_scaled = False
        numbers = count()

        def featured(part: Sequence[Any]) -> list[Features]:
            for one, number in zip(part, numbers, strict=False):
                if not isinstance(one, str):
                    refuse_unknown_ids(model, one, f"inputs.{number}")
            return model.embedding_features(part, prompt)

        async with admitted(self.engine, self.client, len(inputs)):
            sizes = sizes_of(inputs)
            parts = slices(inputs, sizes)
            made = await stages.tokenise_slices(parts, sizes, featured)
            features = [one for each in made for one in each]
            if not truncate:
                refuse_cut(parts, made, model.embedding_length)
            vectors = np.concatenate(await stages.compute(lane, self.client, features))
        # As ``Embedder``: the module scales before the cut, a request after it.
        vectors = fitted(vectors, None, normalize=is_scaled)
        return Embedded(
            fitted(vectors, dimensions or form.truncate_dim, normalize=bool(normalize)),
            [one.num_tokens for one in features],
            [one.truncated for one in features],
        )

    async def fill_mask(
        self, texts: Sequence[str], *, top_k: int | None = None, among: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """One answer a text, as ``MaskFiller.fill`` gives them."""
        lane, filler = lane_of(self.model, FILL_MASK), self.model.mask_filler
        assert filler is not None
        stages = self.engine.stages
        numbers = count()

        def encoded(part: Sequence[str]) -> list[Encoding]:
            return [filler.encoded(text, f"inputs.{next(numbers)}") for text in part]

        async with admitted(self.engine, self.client, len(texts)):
            with as_refusals("top_k" if among is None else "among"):
                sizes = sizes_of(among or ())
                refuse_long(sizes, "among")
                size = sum(sizes)
                ids, num_words = await stages.tokenise(size, filler.words, top_k, among)
            sizes = sizes_of(texts)
            refuse_long(sizes)
            made = await stages.tokenise_slices(slices(texts, sizes), sizes, encoded)
            encodings = [one for each in made for one in each]
            features = encoding_features(encodings)
            outputs = await stages.compute(lane, self.client, features)
            return await stages.decode(
                features,
                lambda: [
                    filler.answer(*each, ids, num_words)
                    for each in zip(texts, encodings, outputs, strict=True)
                ],
            )

    async def next_sentence(
        self, texts: Sequence[str], next_texts: Sequence[str], *, truncate: bool = False
    ) -> list[dict[str, Any]]:
        """One answer a pair, as ``NextSentencePredictor.predict`` gives them."""
        model, stages = self.model, self.engine.stages
        lane, predictor = lane_of(model, NEXT_SENTENCE), model.next_sentences
        assert predictor is not None

        def featured(part: Sequence[tuple[str, str]]) -> list[Features]:
            first, second = zip(*part, strict=True)
            check_texts(first, second)
            return text_features(model.tokenizer, first, second, model.max_positions)

        async with admitted(self.engine, self.client, len(texts)):
            sizes = sizes_of(texts, next_texts)
            parts = slices([*zip(texts, next_texts, strict=True)], sizes)
            made = await stages.tokenise_slices(parts, sizes, featured)
            features = [one for each in made for one in each]
            if not truncate:
                refuse_cut(parts, made, model.max_positions)
            outputs = await stages.compute(lane, self.client, features)
        return [predictor.answer(*each) for each in zip(features, outputs, strict=True)]

    async def tokenized(
        self,
        texts: Sequence[str],
        shown: Callable[[str, Encoding], Any],
        add_special_tokens: bool = True,
    ) -> list[orjson.Fragment]:
        """What is ``shown`` of each text's tokens, as JSON; Refusal for more than are shown."""
        tokenizer, stages = self.model.tokenizer, self.engine.stages

        def counted() -> int:
            return sum(map(len, tokenizer.encode_batch(texts, add_special_tokens)))

        def encoded(part: Sequence[str]) -> list[orjson.Fragment]:
            found = []
            for text in part:
                encoding = tokenizer.encode(text, add_special_tokens=add_special_tokens)
                found.append(orjson.Fragment(orjson.dumps(shown(text, encoding))))
            return found

        with as_refusals("inputs"):
            sizes = sizes_of(texts)
            refuse_long(sizes)
            # To count them takes a thirtieth of the time.
            num_tokens = await stages.tokenise(sum(sizes), counted)
            if num_tokens > MOST_SHOWN:
                raise Refusal(
                    422,
                    f"{num_tokens:,} tokens in one request; at most {MOST_SHOWN:,} are shown: send "
                    "several requests",
                    "inputs",
                )
            made = await stages.tokenise_slices(slices(texts, sizes), sizes, encoded)
        return [one for each in made for one in each]

    async def decoded(
        self, lists: Sequence[Sequence[int]], skip_special_tokens: bool = True
    ) -> list[str]:
        """The text of each list of ids."""
        numbers = count()

        def text_of(part: Sequence[Sequence[int]]) -> list[str]:
            for ids, number in zip(part, numbers, strict=False):
                refuse_unknown_ids(self.model, ids, f"ids.{number}" if lists[1:] else "ids")
            return [self.model.tokenizer.decode(ids, skip_special_tokens) for ids in part]

        sizes = sizes_of(lists)
        made = await self.engine.stages.tokenise_slices(slices(lists, sizes), sizes, text_of)
        return [one for each in made for one in each]
