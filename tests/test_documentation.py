"""What `help()` and `inspect.signature()` say at run time is what the stub says."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ClassMethodDescriptorType
from typing import TYPE_CHECKING, Any

import pytest

import sluicegate
from sluicegate import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

Parameter = tuple[str, Any, Any]
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
STUB = Path(_core.__file__).with_name("_core.pyi")
CLASSES = [
    node for node in ast.parse(STUB.read_text("utf-8")).body if isinstance(node, ast.ClassDef)
]
PROGRAMS = ["cli", "demo"]
MODULES = ["sluicegate"] + [
    f"sluicegate.{module.name}"
    for module in pkgutil.iter_modules(sluicegate.__path__)
    if not module.name.startswith("_") and module.name not in PROGRAMS
]


def is_public(name: str) -> bool:
    return not name.startswith("_")


def members(node: ast.ClassDef) -> dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return what a class of the stub defines: one each, but overloads and setters."""
    found: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
    for member in node.body:
        if isinstance(member, FUNCTIONS):
            found.setdefault(member.name, []).append(member)
    return found


def is_property(node: Definition) -> bool:
    return any(
        isinstance(decorator, ast.Name) and decorator.id == "property"
        for decorator in node.decorator_list
    )


def is_static(node: Definition) -> bool:
    return any(
        isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
        for decorator in node.decorator_list
    )


def summary(*nodes: Definition) -> str | None:
    """Return the first paragraph of the docs, in one line."""
    docs = [doc for node in nodes if (doc := ast.get_docstring(node))]
    return one_line(docs[0].split("\n\n")[0]) if docs else None


def one_line(text: str) -> str:
    return " ".join(text.split())


def documented() -> Iterator[tuple[str, str | None]]:
    for node in CLASSES:
        if is_public(node.name):
            yield node.name, summary(node)
        for name, definitions in members(node).items():
            if is_public(name):
                yield f"{node.name}.{name}", summary(*definitions)


def with_parameters() -> Iterator[tuple[str, list[Parameter]]]:
    for node in CLASSES:
        for name, definitions in members(node).items():
            if is_property(definitions[0]):
                continue
            if name == "__new__":
                yield node.name, parameters(*definitions)
            elif is_public(name):
                yield f"{node.name}.{name}", parameters(*definitions)


def parameters(*overloads: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Parameter]:
    """Return names, kinds and defaults, without `self`; those of overloads are one signature."""
    signatures = [list(parameters_of(overload)) for overload in overloads]
    merged = []
    for same in zip(*signatures, strict=True):
        assert len({(name, kind) for name, kind, _ in same}) == 1
        defaults = [default for _, _, default in same if default is not inspect.Parameter.empty]
        merged.append((*same[0][:2], defaults[0] if defaults else inspect.Parameter.empty))
    return merged if is_static(overloads[0]) else merged[1:]


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Parameter]:
    given = node.args
    assert given.vararg is None
    assert given.kwarg is None
    kinds = inspect.Parameter
    positional: list[tuple[ast.arg, Any]] = [
        *((argument, kinds.POSITIONAL_ONLY) for argument in given.posonlyargs),
        *((argument, kinds.POSITIONAL_OR_KEYWORD) for argument in given.args),
    ]
    first_default = len(positional) - len(given.defaults)
    for index, (argument, kind) in enumerate(positional):
        default = None if index < first_default else given.defaults[index - first_default]
        yield argument.arg, kind, value_of(default)
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield argument.arg, kinds.KEYWORD_ONLY, value_of(default)


def value_of(default: ast.expr | None) -> Any:
    return inspect.Parameter.empty if default is None else ast.literal_eval(default)


def of_core(path: str) -> Any:
    found: Any = _core
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    return found


DOCUMENTED = dict(documented())
WITH_PARAMETERS = dict(with_parameters())


@pytest.mark.parametrize("path", DOCUMENTED)
def test_the_docs_are_those_of_the_stub(path: str) -> None:
    assert DOCUMENTED[path], f"{path} has no docs in the stub"
    found = of_core(path)
    if isinstance(found, staticmethod):
        found = found.__func__
    assert one_line(found.__doc__ or "") == DOCUMENTED[path]


@pytest.mark.parametrize("path", WITH_PARAMETERS)
def test_the_signature_is_that_of_the_stub(path: str) -> None:
    found = of_core(path)
    shown = list(inspect.signature(found).parameters.values())
    if not isinstance(found, (type, staticmethod)):
        is_of_the_class = isinstance(found, ClassMethodDescriptorType)
        assert shown.pop(0).name == ("cls" if is_of_the_class else "self")
    assert [(one.name, one.kind, one.default) for one in shown] == WITH_PARAMETERS[path]
    # The type too: 1 is not 1.0 to whoever reads it.
    assert [type(one.default) for one in shown] == [
        type(default) for _, _, default in WITH_PARAMETERS[path]
    ]


def test_the_stub_is_all_there_is() -> None:
    """That the two tests above ask about everything."""
    for kind in filter(inspect.isclass, vars(_core).values()):
        for name in filter(is_public, vars(kind)):
            assert f"{kind.__name__}.{name}" in DOCUMENTED
    assert "CoDelQueue.put" in WITH_PARAMETERS
    assert len(DOCUMENTED) > len(WITH_PARAMETERS) > len(CLASSES)


def test_what_a_user_asks_for() -> None:
    assert "Wait in line" in (sluicegate.SemaphoreLimiter.acquire.__doc__ or "")
    signature = inspect.signature(sluicegate.CoDelQueue.put)
    assert str(signature) == (
        "(self, item, /, *, criticality=None, deadline=None, operation=None, cancellable=False, "
        "timeout=None)"
    )
    assert (
        str(inspect.signature(sluicegate.SemaphoreLimiter)) == "(limit, *, name=None, clock=None)"
    )


def from_python() -> Iterator[tuple[str, object]]:
    """Yield what is public in the modules, and the methods and properties of their classes."""
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        yield module_name, module
        for name in module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue  # a constant or a type alias, which cannot have docs of their own
            yield f"{module_name}.{name}", value
            for base in inspect.getmro(value) if inspect.isclass(value) else ():
                if not base.__module__.startswith("sluicegate"):
                    continue
                for member, method in vars(base).items():
                    is_a_method = inspect.isroutine(method) or isinstance(method, property)
                    if is_public(member) and is_a_method:
                        yield f"{module_name}.{name}.{member}", method


def test_what_is_defined_in_python_has_docs() -> None:
    # The generated ones of a dataclass or a protocol are its signature, and no docs.
    without = [
        path
        for path, value in from_python()
        if not (doc := value.__doc__) or doc.startswith(f"{path.split('.')[-1]}(")
    ]
    assert not without
    assert "sluicegate.classic" in MODULES
