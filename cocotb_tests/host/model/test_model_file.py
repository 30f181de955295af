"""Model files as a user names them: programs, and ONNX files with what they refer to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lutterfly.golden.program.program import MAGIC
from lutterfly.host.model.model_file import read_model_file

_READ = """\
import sys
from lutterfly.host.model.model_file import read_model_file
read_model_file(sys.argv[1])
print("onnx" in sys.modules)
"""


def test_a_program_is_read_as_it_is_and_waits_for_no_import(tmp_path: Path) -> None:
    path = tmp_path / "program.bin"
    path.write_bytes(MAGIC + bytes(100))
    assert read_model_file(path) == MAGIC + bytes(100)
    read = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=True)
    assert read.stdout == "False\n"
