"""What the engine's server sets before it answers, with a stand-in for uvicorn."""

import subprocess
import sys
from pathlib import Path

import pytest

from medley.environment import payload

# As uvicorn runs an application: it loads its configuration, then answers.
SERVER = f"""
import os, sys, types
sys.path.insert(0, {str(payload.FOLDER)!r})
import engine_server
config = types.ModuleType("uvicorn.config")
class Config:
    def load(self):
        self.loaded_app = os.path.exists("template.jinja")
config.Config = Config
sys.modules.update({{"uvicorn": types.ModuleType("uvicorn"), "uvicorn.config": config}})
engine_server.install_api()
server = Config()
server.load()
print(server.loaded_app.application, os.getcwd(), os.listdir(), os.environ["OPENCV_FFMPEG_CAPTURE_OPTIONS"])
"""


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        pytest.param("", "protocol_whitelist;data", id="none"),
        pytest.param(
            "hwaccel;cuda|protocol_whitelist;file",
            "hwaccel;cuda|protocol_whitelist;file|protocol_whitelist;data",
            id="the user's, of which the last counts",
        ),
    ],
)
def test_a_video_names_no_file_of_the_folder(tmp_path: Path, options: str, shown: str) -> None:
    """The flags may name files of the folder where the user typed, and the requests none."""
    (tmp_path / "template.jinja").touch()
    for _ in range(2):  # as several processes of one server do
        finished = subprocess.run(
            [sys.executable, "-c", SERVER],
            cwd=tmp_path,
            env={"MEDLEY_SOCKET": str(tmp_path / "engine.sock"), "OPENCV_FFMPEG_CAPTURE_OPTIONS": options},
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.stdout == f"True {tmp_path / 'empty'} [] {shown}\n", finished.stderr


# As SGLang 0.5.23 chooses between its servers of language and of image models.
IMAGE_MODEL = f"""
import sys, types
sys.path.insert(0, {str(payload.FOLDER)!r})
import engine_server
engine_server.serve_no_images()  # an older SGLang has no such choice
serve = types.ModuleType("sglang.cli.serve")
exec("get_is_diffusion_model = lambda path: True", vars(serve))
exec("detect = lambda path: get_is_diffusion_model(path)", vars(serve))
cli = types.ModuleType("sglang.cli")
cli.serve = serve
sys.modules.update({{"sglang": types.ModuleType("sglang"), "sglang.cli": cli, "sglang.cli.serve": serve}})
before = serve.detect("/m")
engine_server.serve_no_images()
print(before, serve.detect("/m"))
"""


def test_sglang_serves_no_image_model_whose_code_it_would_run() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", IMAGE_MODEL], capture_output=True, text=True, check=False
    )
    assert finished.stdout == "True False\n", finished.stderr
