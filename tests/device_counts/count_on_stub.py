"""Count what steps on CUDA would launch, copy and wait for; needs g++ and no GPU.

    python count_on_stub.py

compiles stub_device.cpp, a device that computes nothing, with which FakeTensorMode takes tensors
on "cuda".  Prints JSON: the counts by the name of the step.
"""

import ctypes
import json
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path


def load_stub() -> None:
    """Compile the stub against the headers that PyTorch ships, and load it."""
    found = find_spec("torch")
    assert found is not None
    assert found.origin is not None
    torch_directory = Path(found.origin).parent
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "stub.so"
        command = [
            "g++", "-O0", "-shared", "-fPIC", "-std=c++20",
            str(Path(__file__).with_name("stub_device.cpp")), "-o", str(library),
            f"-I{torch_directory}/include", f"-I{torch_directory}/include/torch/csrc/api/include",
            f"-L{torch_directory}/lib", "-ltorch_cpu", "-lc10",
        ]  # fmt: skip
        subprocess.run(command, check=True)
        for each in (torch_directory / "lib" / "libtorch_cpu.so", library):
            ctypes.CDLL(str(each), mode=ctypes.RTLD_GLOBAL)


def main() -> None:
    # PyTorch asks for its device once, when it is imported.
    load_stub()
    from counting import count_steps

    print(json.dumps(count_steps(), indent=1))


if __name__ == "__main__":
    main()
