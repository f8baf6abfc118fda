"""The gallery as notebooks: run each page's code and put what it prints and draws behind it.

A hook of MkDocs. With ``SEA_NN_GALLERY`` in the environment, as ``make docs`` has it, pages in
``docs/gallery`` are executed; without, they are built as they stand, with code alone.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

FOLDER = "gallery/"
CODE = re.compile(r"^```python\n(?P<code>.*?)^```\n", re.DOTALL | re.MULTILINE)
LONGEST = 40
"""Lines of output that are shown."""


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """MkDocs asks for the text of each page here."""
    address, wanted = page.file.src_uri, os.environ.get("SEA_NN_GALLERY")
    if not wanted or not address.startswith(FOLDER) or address.endswith("index.md"):
        return markdown
    text, pictures = execute(markdown, Path(address).stem)
    for name, content in pictures.items():
        files.append(File.generated(config, FOLDER + name, content=content))
    return text


def execute(markdown: str, title: str) -> tuple[str, dict[str, bytes]]:
    """Run a page's blocks one after another; returns its text with outputs, and its pictures."""
    pictures: dict[str, bytes] = {}
    names: dict[str, Any] = {"__name__": "__main__"}

    def run(block: re.Match[str]) -> str:
        before = {path: path.stat().st_mtime_ns for path in Path().glob("*.png")}
        said = io.StringIO()
        with contextlib.redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(block["code"], f"{title}.md", "exec"), names)
        drawn = [p for p in sorted(Path().glob("*.png")) if before.get(p) != p.stat().st_mtime_ns]
        result = block[0]
        if lines := said.getvalue().rstrip().splitlines():
            more = ["…"] if len(lines) > LONGEST else []
            result += "\n".join(["\n```text", *lines[:LONGEST], *more, "```\n"])
        for path in drawn:
            name = f"{title}_{path.name}"
            pictures[name] = path.read_bytes()
            result += f"\n![{path.stem.replace('_', ' ')}]({name})\n"
        return result

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return CODE.sub(run, markdown), pictures
