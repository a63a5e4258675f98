"""The flags that several benches share."""

from typing import Annotated

import typer

ModelOption = Annotated[
    str,
    typer.Option("--model", metavar="MODEL", help="Model to time, with its vocabulary."),
]
AgainstOption = Annotated[
    str | None,
    typer.Option("--against", metavar="SIDE", help="transformers: time it too, in turn."),
]
RoundsOption = Annotated[
    int, typer.Option("--rounds", metavar="N", min=1, help="Measure each side this many times.")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads", metavar="N", min=1, help="Threads on each side. If not set: PyTorch's choice."
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, with every sample.")
]
PrecisionOption = Annotated[
    str, typer.Option("--precision", help="auto, float32 or bfloat16, on both sides.")
]
SizeOption = Annotated[
    str, typer.Option("--size", metavar="SIZE", help="Size of the model, with random weights.")
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DIR", help="Corpus that build-corpus wrote. If not set: a small one."
    ),
]
StepsOption = Annotated[
    int,
    typer.Option("--steps", metavar="N", min=4, help="Steps to take; 3 are not timed."),
]
TokensPerStepOption = Annotated[
    int, typer.Option("--tokens-per-step", metavar="N", min=128, help="Tokens in each step.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="Device to compute on: cpu, cuda or cuda:N.")
]
