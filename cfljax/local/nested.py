"""The trees of parameters as nested dictionaries: the entry at a path of keys."""

from __future__ import annotations

from cfljax.types import Array, Tree


def get_path(tree: Tree, path: tuple[str, ...]) -> Tree:
    """Return the entry of nested dictionaries at the path of keys."""
    for name in path:
        tree = tree[name]
    return tree


def drop_path(tree: Tree, path: tuple[str, ...]) -> Tree:
    """Copy the nested dictionaries without the entry at the path of keys."""
    head, *rest = path
    if not rest:
        return {name: value for name, value in tree.items() if name != head}
    return {name: drop_path(value, tuple(rest)) if name == head else value for name, value in tree.items()}


def replace_path(tree: Tree, path: tuple[str, ...], leaf: Array) -> Tree:
    """Copy the nested dictionaries with this leaf at the path of keys."""
    head, *rest = path
    return {**tree, head: replace_path(tree[head], tuple(rest), leaf) if rest else leaf}
