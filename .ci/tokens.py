"""Print how many tokens the code of each package under a folder has: `python .ci/tokens.py cfljax`.

Names, operators, numbers and strings count; docstrings, comments and layout are free. So a longer
explanation, a keyword argument on a line of its own or a shorter line never looks like more code.
The counts are read by people. Nothing fails because of them.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

COUNTED = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}
COUNTED.add(getattr(tokenize, "FSTRING_START", tokenize.STRING))  # its own token since Python 3.12
LONG_STRING = 200
TOKENS_OF_A_LONG_STRING = 50


def lines_of_docstrings(source: str) -> set[int]:
    """Return the lines on which a string stands alone as a statement."""
    return {
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def count_tokens(source: str) -> int:
    """Count the tokens of Python code, without docstrings and comments."""
    docstrings = lines_of_docstrings(source)
    count = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        documents = token.type == tokenize.STRING and token.start[0] in docstrings
        if token.type in COUNTED and not documents:
            # Code that is moved into a long string is not free.
            count += 1 + len(token.string) // LONG_STRING * TOKENS_OF_A_LONG_STRING
    return count


def main(top: str) -> None:
    """Print a line for each folder directly under `top`, the largest first, and the sum."""
    rooms: Counter[str] = Counter()
    for path in Path(top).rglob("*.py"):
        inner = path.relative_to(top).parts
        rooms[inner[0] if len(inner) > 1 else "."] += count_tokens(path.read_text())
    for room, tokens in rooms.most_common():
        print(f"{tokens:9,} {top}/{room}")
    print(f"{rooms.total():9,} tokens in {top}")


if __name__ == "__main__":
    main(*sys.argv[1:])
