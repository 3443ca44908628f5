"""For mkdocs: pages and pictures of the site that are kept elsewhere in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
PAGES = {"experiments.md": "experiments/README.md", "contributing.md": "CONTRIBUTING.md"}
PICTURES = {"speed.png": "benchmarks/results/cpu-2-cores-xeon-amx.png"}


def text(name: str) -> str:
    """Turn a page's links to other files of the repository into links inside the site."""
    return re.sub(
        r"\]\(([^)#:]+)",
        lambda found: f"]({_inside(name, found[1])}",
        (ROOT / PAGES[name]).read_text(),
    )


def _inside(name: str, target: str) -> str:
    """Where a file that a page links to is on the site."""
    path = (ROOT / PAGES[name]).parent.joinpath(target).resolve()
    for page, source in PAGES.items():
        if path == ROOT / source:
            return page
    return (
        path.relative_to(ROOT / "docs").as_posix() if path.is_relative_to(ROOT / "docs") else target
    )


def on_page_markdown(markdown: str, **_: object) -> str:
    """Lead links to a file that is a page of the site to that page."""
    for page, source in PAGES.items():
        markdown = markdown.replace(f"](../../{source}", f"](../{page}")
    return markdown


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them."""
    from mkdocs.structure.files import File

    for name in PAGES:
        files.append(File.generated(config, name, content=text(name)))
    for name, source in PICTURES.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files
