"""Checks that no modules of python/headrace import each other in a circle: check_imports.py [ROOT].

Every import counts, wherever it stands: at the top, in a function, under TYPE_CHECKING. An import
that waits in a function hides a circle from Python and not from a reader, and two modules that name
each other's types cannot be understood one after the other. What both need belongs below them; of
what stands above, a module can ask for a `Protocol`.

A module of a package also imports the package, whose __init__ Python runs first, unless it is of
that package itself. The names that `headrace` gets when they are first used count as well.
"""

import ast
import sys
from pathlib import Path

PACKAGE = "headrace"


def modules(root):
    """Path of each module by its name; of an extension that of its stub."""
    found = {}
    folder = root / "python"
    for path in sorted((folder / PACKAGE).rglob("*.py*")):
        if path.suffix not in (".py", ".pyi"):
            continue
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def package_of(name, path):
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


def imported(tree, package):
    """(line, module, names) of each import of the package's own modules, names None for all."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ()
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [node.module])])
            yield node.lineno, base, [alias.name for alias in node.names]


def late_names(tree):
    """Modules of `_LAZY = {"name": ("module", ...)}`, what `headrace` imports on first use."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_LAZY":
            for value in node.value.values:
                yield value.lineno, value.elts[0].value


def edges(root):
    """{module: {module that it imports: line}}."""
    known = modules(root)
    graph = {}
    for name, path in known.items():
        package = package_of(name, path)
        targets = graph.setdefault(name, {})
        if path.suffix == ".pyi":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))

        def add(target, line, package=package, targets=targets, name=name):
            # Of packages that this module is not in, the __init__ runs first.
            parts = target.split(".")
            for n in range(1, len(parts) + 1):
                above = ".".join(parts[:n])
                inside = f"{package}.".startswith(f"{above}.")
                if above in known and above != name and (n == len(parts) or not inside):
                    targets.setdefault(above, line)

        for line, base, names in imported(tree, package):
            if base.partition(".")[0] != PACKAGE:
                continue
            inner = [n for n in names if f"{base}.{n}" in known]
            for each in inner:
                add(f"{base}.{each}", line)
            if len(inner) < len(names) or not names:
                add(base, line)
        for line, target in late_names(tree):
            add(f"{package}.{target}", line)
    return graph


def circles(graph):
    """The sets of modules of which each reaches all others (Tarjan), those of more than one."""
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            at = stack.index(node)
            members, stack[at:] = stack[at:], []
            if len(members) > 1:
                found.append(sorted(members))

    for node in graph:
        if node not in order:
            visit(node)
    return sorted(found)


def check(root):
    known, graph = modules(root), edges(root)
    errors = []
    for members in circles(graph):
        errors.append("modules import each other in a circle: " + ", ".join(members))
        for name in members:
            for target, line in sorted(graph[name].items()):
                if target in members:
                    where = known[name].relative_to(root)
                    errors.append(f"  {where}:{line}: {target}")
    return errors


def main(argv):
    root = Path(argv[1] if len(argv) > 1 else Path(__file__).parent.parent).resolve()
    errors = check(root)
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
