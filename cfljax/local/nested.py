"""The trees of parameters as nested dictionaries: the entry at a path of keys."""

from __future__ import annotations

from cfljax.types import Array, Tree


def inner(tree: Tree, path: tuple[str, ...]) -> Tree:
    """The entry of nested dictionaries at the path of keys."""
    for name in path:
        tree = tree[name]
    return tree


def without(tree: Tree, path: tuple[str, ...]) -> Tree:
    """A copy of the nested dictionaries without the entry at the path of keys."""
    head, *rest = path
    if not rest:
        return {name: value for name, value in tree.items() if name != head}
    return {name: without(value, tuple(rest)) if name == head else value for name, value in tree.items()}


def replaced(tree: Tree, path: tuple[str, ...], leaf: Array) -> Tree:
    """A copy of the nested dictionaries with this leaf at the path of keys."""
    head, *rest = path
    return {**tree, head: replaced(tree[head], tuple(rest), leaf) if rest else leaf}
