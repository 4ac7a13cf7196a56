"""Count non-standard terms in what a person reads or greps: `python -m tests.terminology [FOLDER]`.

`python -m tests.terminology --sample SEED` prints twenty identifiers and twenty sentences, drawn with that seed, for a
reader without context: how many are understood on first reading?

docs/GLOSSARY.md has the standard terms. Production sources, docs and the front end are counted; generated files,
fixtures, migrations (they must name what was stored) and tests are not.
"""

import ast
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("agent", "backend", "frontend/src", "docs", "README.md")
SUFFIXES = {".py", ".ts", ".tsx", ".md"}
GENERATED = {"schema.d.ts", "GLOSSARY.md"}

TERMS: dict[str, str] = {
    "wish → desired value": r"\bwish(es|ed)?\b",
    "knob → tunable": r"\bknobs?\b",
    "conclusion → evaluation, result": r"\bconclusions?\b|\bconcluded\b",
    "held back → deferred": r"\bheld[ _]back\b",
    "left alone → skipped": r"\bleft alone\b|\bunmoved\b",
    "landing → RX placement": r"\blandings?\b",
    "teller, keeper → publisher, store": r"\b\w*(teller|keeper)s?\b",
    "heard → received": r"\bheard\b",
    "lent, loan → delegated, lease": r"\blent\b|\bloan(s|ed)?\b",
    "told of → report": r"\b(is|are|was|were|be|been) told\b|\btold of\b",
    "one door → single write path": r"\b(one|same|another|other) door\b",
    "put back → restore": r"\bputs? \w* ?back\b|\bgoes back\b|\bgo back to\b|\btaken back\b|\btakes? \w* ?back\b",
    "returns by itself → reverts on timeout": r"\b(returns|undoes) (by )?itself\b",
    "by lot → randomized": r"\bby lot\b|\bdrawn (by|at random|anew)\b",
    "no way back → minimum time before reverting": r"\bno way back\b",
    "back and forth → flap damping": r"\bback and forth\b",
    "so many … inside → concurrency limit": r"\bso many\b|\binside at once\b",
    "dialect": r"\bunder way\b|\bwhoever\b|\bsomebody else\b|\bof which only\b|\bnobody\b",
    "Seen → ChangeAck": r"(?-i:(?<![a-z] )\bSeen\b)",
    "kept, Keep → confirmed, Confirm": r"\bkept (it|the change) in time\b|\bnot kept\b|\bkeep (it|the|this) change\b",
    "to go on and warn → warn": r"\bgo on and\b",
    "staying → skipped": r"\bstaying\b",
    "thinks → evaluation": r"\bthinks\b",
    "word(s) → message(s)": r"\bown words\b|\b(last|latest|agent'?s|node'?s) words?\b",
    "variable told/asked/heard → reported, requested": r"\b(told|asked|heard)\b(?=\)?\s*[=:,)(])",
    "method take/tell/told/look/asked/say/heard": r"\bdef (take|tell|told|look|asked|say|heard)\(",
}
"""Standard term by pattern, matched in any case and also inside identifiers that underscores or capitals divide."""


def sources(root: Path) -> Iterator[Path]:
    """Yield every counted file below a checkout."""
    for folder in FOLDERS:
        path = root / folder
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            ours = "node_modules" not in file.parts and ".test." not in file.name and file.name not in GENERATED
            if file.suffix in SUFFIXES and ours and file.is_file():
                yield file


def occurrences(text: str) -> Counter[str]:
    """Count each term in one text."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ")
    found = {}
    for term, pattern in TERMS.items():
        searched = text if term.startswith("method") else words
        found[term] = len(re.findall(pattern.replace("[ _]", " "), searched, re.IGNORECASE))
    return Counter(found)


def what_docstrings(text: str) -> int:
    """Count docstrings of Python source that begin with “What”."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    return sum((ast.get_docstring(node) or "").startswith("What ") for node in nodes)


def count(root: Path) -> tuple[dict[Path, Counter[str]], int]:
    """Return the occurrences by file, and the docstrings that begin with “What”."""
    terms, what = {}, 0
    for file in sources(root):
        text = file.read_text()
        terms[file] = occurrences(text)
        what += what_docstrings(text) if file.suffix == ".py" else 0
    return terms, what


def readable(root: Path) -> tuple[list[str], list[str]]:
    """Return the public identifiers of Python sources, and sentences: docstrings' first lines and messages."""
    identifiers, sentences = [], []
    for file in sources(root):
        if file.suffix != ".py":
            continue
        place = file.relative_to(root).with_suffix("")
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if not node.name.startswith("_"):
                    identifiers.append(f"{node.name}  ({place})")
                sentences += (ast.get_docstring(node) or "").splitlines()[:1]
            elif isinstance(node, ast.JoinedStr):
                text = ast.unparse(node)[2:-1]
                sentences += [text] if text.count(" ") >= 5 and text.endswith(".") else []
    return identifiers, sentences


def sample(seed: int, root: Path = ROOT) -> None:
    """Print twenty identifiers and twenty sentences."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    print(f"seed {seed}")
    for found in readable(root):
        print(*chance.sample(found, 20), "", sep="\n")


def main(root: Path) -> None:
    """Print the counts by term, and the files with the most."""
    terms, what = count(root)
    total: Counter[str] = sum(terms.values(), Counter())
    for term, number in total.most_common():
        print(f"{number:5}  {term}")
    print(f"{total.total():5}  in all\n{what:5}  docstrings that begin with “What”\n")
    for file, found in sorted(terms.items(), key=lambda item: -item[1].total())[:25]:
        if found.total():
            print(f"{found.total():5}  {file.relative_to(root)}  {dict(found.most_common(3))}")


if __name__ == "__main__":
    if "--sample" in sys.argv:
        sample(int(sys.argv[-1]))
        sys.exit()
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
