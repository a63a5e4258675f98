"""The engine: the models of a server, from opening to closing, and what all requests share."""

import asyncio
from collections.abc import Mapping
from typing import Final

import torch

from tidybert.errors import suggestion
from tidybert.inference.loading import choose_device
from tidybert.server.faults import Refusal
from tidybert.server.meters import Meters
from tidybert.server.served_model import ServedModel, open_models
from tidybert.server.settings import ServerSettings, Worker
from tidybert.server.stages import Stages
from tidybert.server.work_queue import WorkQueue

_BATCH_TOKENS: Final = {"cpu": 1024, "cuda": 16_384}


class Engine:
    """The models of a server, the queue, and the threads that compute.

    Args:
        settings: the models and limits.
        worker: which of a server's processes this is; None for the only one.

    ``open`` loads the models; ``start`` begins the threads; both before the first request.
    """

    def __init__(self, settings: ServerSettings, worker: Worker | None = None) -> None:
        self.settings = settings
        self.worker = worker
        self.models: Mapping[str, ServedModel] = {}
        self.is_ready = False
        #: Whether clients shall open new connections, because another process takes over.
        self.is_leaving = False
        device = choose_device(settings.device).type
        cores = torch.get_num_threads() if device == "cpu" else 1
        #: Most tokens that a thread computes at once.
        self.batch_tokens = settings.batch_tokens or _BATCH_TOKENS.get(device, 1024)
        self.queue = WorkQueue(
            settings.queue_tokens, settings.queue_inputs, self.batch_tokens, cores
        )
        self.meters = Meters(self.queue, worker)
        self.stages = Stages(self.queue, self.meters, cores)

    def open(self, models: Mapping[str, ServedModel] | None = None) -> None:
        """Load, verify and warm all models, or take ``models``; raises what ``ServedModel`` raises.

        ``models`` come from ``open_models``.
        """
        self.models = open_models(self.settings) if models is None else models
        self.is_ready = True

    def start(self) -> None:
        """Begin to compute."""
        self.stages.start()

    def close(self) -> None:
        """Compute what waits, then end the threads."""
        self.is_ready = False
        self.stages.close()

    async def reload(self) -> None:
        """Open all models again; requests that have begun end with the old ones.

        Raises what ``open`` raises, and keeps the old models then.
        """
        loop = asyncio.get_running_loop()
        self.models = await loop.run_in_executor(None, open_models, self.settings)

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
