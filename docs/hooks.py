"""For mkdocs: pages and pictures of the site that are kept elsewhere in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"experiments.md": "experiments/README.md", "contributing.md": "CONTRIBUTING.md"}
PICTURES = {"speed.png": "benchmarks/results/cpu-2-cores-xeon-amx.png"}
BOOST = {
    **dict.fromkeys(("faq.md", "own.md", "tuning.md", "tutorial.md", "data.md", "which.md"), 4.0),
    **dict.fromkeys(("methods.md", "reference.md", "contributing.md", "ledger.md"), 0.3),
    **dict.fromkeys(("experiments.md", "changes.md", "errata.md"), 0.1),
}
"""The weights of pages in the site's search, 1 for others: guides come before long lists. Folders,
which have evidence, have the weight `BOOST_OF_FOLDERS`."""
BOOST_OF_FOLDERS = 0.1


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


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead links to a file that is a page of the site to that page; weigh it in the search."""
    name = page.file.src_uri
    page.meta["search"] = {"boost": BOOST_OF_FOLDERS if "/" in name else BOOST.get(name, 1.0)}
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
