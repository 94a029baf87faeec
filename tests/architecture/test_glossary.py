"""The names of the model and of the contracts are made of the words of the glossary.

A finding says which name has which unknown word. Then do one of these, the first that fits:
use the word that the glossary has for the concept; add a line to `docs/explain/glossary.md` (a new
concept, or another form of a word, in the first column); add the word to `GENERAL`, if every
programmer knows it and it means nothing special here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from tests.architecture.sources import PACKAGE, ROOT, Module, source_modules

GLOSSARY = ROOT / "docs" / "explain" / "glossary.md"
NAMED_BY_IT = ("model", "contracts")

# Words that every programmer knows, and that mean nothing special here.
GENERAL_WORDS = """
    already and any attempts back base batch bug by close configuration conflict count create delete
    detail draft drain drop ed25519 ended entry env error event exhausted exists field find
    forbidden forget found fraction gauge get gnomon grpc has hmac http id in insert invalid is
    kafka keep key large leave list listen live lost many migrate mismatch missed mock
    monotonic name new next no not now observe of open own page pid precondition
    prepare process processes push python rabbitmq remove replace request result resume revoke
    rotate row rule run schema selection set size sql stale stop summary supported survey swap table
    text to too transaction trusted unauthenticated unavailable unchanged unknown unreadable
    up use missing value verify verifying wait waiting work working write adopt acquire beat execute
"""
GENERAL = frozenset(GENERAL_WORDS.split())

REMEDY = "use a word of docs/explain/glossary.md, or add it there; see the head of this test"

WORD = re.compile(r"[A-Z]+[0-9]*(?![a-z])|[A-Z]?[a-z]+[0-9]*")
ENTRY = re.compile(r"^\| (\*\*.+?\*\*[^|]*) \|", re.MULTILINE)


def words_in(name: str) -> list[str]:
    """`ClaimedEntity` and `claimed_entity` are claimed, entity; `Ed25519Key` is ed25519, key."""
    return [part.lower() for part in WORD.findall(name)]


def is_among(word: str, known: Collection[str]) -> bool:
    """Whether it is one of them, or the plural of one."""
    singular = {word, word.removesuffix("s"), word.removesuffix("es")}
    if word.endswith("ies"):
        singular.add(word[:-3] + "y")
    return any(form in known for form in singular)


def glossary_words(page: str) -> dict[str, str]:
    """Every word of every first column, with its entry."""
    return {word: entry for entry in ENTRY.findall(page) for word in words_in(entry)}


def heads_of(page: str) -> list[str]:
    """The bold word, or words, of every entry."""
    return [head for entry in ENTRY.findall(page) for head in re.findall(r"\*\*(.+?)\*\*", entry)]


def public_classes(module: Module) -> Iterator[ast.ClassDef]:
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node


def contract_verbs(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """The public methods of the protocols of a module."""
    for owner in public_classes(module):
        if not any(ast.unparse(base).startswith("Protocol") for base in owner.bases):
            continue
        for node in owner.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                yield node.name, node


def name_findings(module: Module, known: Collection[str]) -> list[str]:
    """Class names and contract verbs with a word that is in neither list."""
    names = [(node.name, node) for node in public_classes(module)]
    verbs = list(contract_verbs(module)) if module.is_in("contracts") else []
    return [
        f"{module.where(node)}: {name}: the word {word!r} is not in the glossary"
        for name, node in [*names, *verbs]
        for word in words_in(name)
        if not is_among(word, known)
    ]


def used_words(modules: Iterable[Module]) -> set[str]:
    """All words of all names in these modules, the modules' own among them; plurals as singulars
    too, so that a glossary word is found whichever form it has."""
    words: set[str] = set()
    for module in modules:
        words.update(words_in(module.name))
        for node in module.nodes:
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                    words.update(words_in(name))
                case (
                    ast.ClassDef(name=name)
                    | ast.FunctionDef(name=name)
                    | ast.AsyncFunctionDef(name=name)
                ):
                    words.update(words_in(name))
    return words | {word.removesuffix("s") for word in words}


def test_names_are_made_of_glossary_words() -> None:
    """Every public class of the model and the contracts, and every verb of a contract."""
    known = glossary_words(GLOSSARY.read_text()).keys() | GENERAL
    modules = [module for module in source_modules() if module.is_in(*NAMED_BY_IT)]
    findings = [finding for module in modules for finding in name_findings(module, known)]
    assert [] == findings, "\n".join([REMEDY, *findings])


def test_every_glossary_word_is_used() -> None:
    """A word that no name in the source has any more leaves the glossary."""
    used = used_words(source_modules())
    unused = [
        f"no name in src has the word {word!r} of the entry {entry!r}: remove it or rename it there"
        for word, entry in glossary_words(GLOSSARY.read_text()).items()
        if word not in used
    ]
    assert [] == unused, "\n".join(unused)


def test_a_word_is_general_or_ours() -> None:
    """What is in the glossary has a meaning here, and so is no general word."""
    assert set() == GENERAL & set(heads_of(GLOSSARY.read_text()))


def test_glossary_is_a_line_for_each_word() -> None:
    """No word stands in two entries: one word, one meaning."""
    heads = heads_of(GLOSSARY.read_text())
    assert sorted(set(heads)) == sorted(heads)


def test_rules_can_fail() -> None:
    """The rules above would pass on an empty glossary; here they find what they look for."""
    page = "| word | means |\n|---|---|\n| **entity**, entities | a document |\n"
    known = frozenset(glossary_words(page))
    assert {"entity", "entities"} == known
    text = "class ChangedEntity: ...\nclass S(Protocol):\n    def feed_entity(self): ...\n"
    module = Module.of_text(f"{PACKAGE}.contracts.store", text)
    assert ["changed", "s", "feed"] == [
        finding.split("'")[1] for finding in name_findings(module, known)
    ]
    assert "chain" in used_words([Module.of_text(f"{PACKAGE}.model.entity", "chains = 1")])
