"""The pages of Python's reference: which public name is on which, by subject.

The pages hold directives of mkdocstrings, which reads the sources and the stub of the compiled
module and imports nothing. What `__all__` has and no subject names comes on a page of its own, so
that nothing new is left out; tools/check_site.py looks whether all of it is on the site.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "headrace"


@dataclass(frozen=True)
class Subject:
    page: str
    title: str
    says: str  # Markdown, relative to docs/reference/python
    names: tuple[str, ...] = ()  # of headrace itself
    modules: tuple[str, ...] = ()  # whole, below headrace


SUBJECTS = [
    Subject(
        "opening",
        "Opening",
        "How arrays, groups and stores are opened. Guides: [quick start](../../quickstart.md), "
        "[object stores](../../object_stores.md), [references and Icechunk](../../stores.md), "
        "[slow stores](../../cached.md).",
        (
            "open", "open_array", "open_group", "open_store", "memory_store", "Store",
            "consolidate_metadata", "references", "cached", "cache_stats",
        ),
    ),
    Subject(
        "arrays",
        "Arrays",
        "What `headrace.open_array` gives, the futures of its asynchronous calls, and views that "
        "read when asked. Guide: [selections](../../selections.md).",
        ("Array", "Future", "read_many"),
        ("lazy",),
    ),
    Subject(
        "groups",
        "Groups and attributes",
        "Mappings of names to arrays and groups, and of names to what an array or group says of "
        "itself. Guide: [groups and attributes](../../groups.md).",
        ("Group",),
        ("attributes", "tree"),
    ),
    Subject(
        "creating",
        "Creating and writing",
        "New arrays and groups, whole arrays in one call, and copies into other chunks. "
        "`Array.write` is with [arrays](arrays.md). Guides: [chunks and codecs](../../chunks.md), "
        "[rechunk and convert](../../rechunk.md), [what survives](../../survives.md).",
        (
            "create_array", "create_group", "array", "zeros", "ones", "full", "empty", "save",
            "load", "copy", "rechunk", "rechunk_plan", "advise",
        ),
    ),
    Subject(
        "codecs",
        "Codecs",
        "The codecs of a chain, decoding and encoding of buffers, and codecs of your own. "
        "Guides: [codecs](../../codecs.md), [existing Blosc data](../../blosc.md).",
        (),
        ("codecs",),
    ),
    Subject(
        "config",
        "Configuration",
        "Every setting with its default is on the page of [all settings](../configuration.md).",
        (),
        ("config",),
    ),
    Subject(
        "devices",
        "Devices and diagnosis",
        "Arrays in a device's memory, and what this build and machine offer. Guides: "
        "[to the GPU](../../gpu.md), [devices](../../devices.md).",
        ("DeviceArray", "DeviceArrowArray", "set_allocator", "doctor", "trace"),
    ),
    Subject(
        "loader",
        "Loader",
        "Batches for training. Guides: [feeding training](../../loader.md), "
        "[several GPUs and machines](../../training.md), [cells](../../cells.md).",
        (),
        ("loader",),
    ),
    Subject(
        "cells",
        "Cells",
        "One data set of AnnData stores; its batches are `headrace.loader.CellLoader`'s. "
        "Guide: [cells](../../cells.md).",
        ("cells", "Cells"),
    ),
    Subject(
        "shm",
        "Shared memory",
        "Arrays between processes. Guide: [arrays between processes](../../shm.md).",
        (),
        ("shm",),
    ),
    Subject(
        "torch",
        "PyTorch",
        "Guide: [PyTorch](../../torch.md).",
        (),
        ("torch",),
    ),
    Subject(
        "arrays_of_others",
        "JAX and MLX",
        "Guide: [JAX and others](../../jax.md).",
        (),
        ("jax", "mlx"),
    ),
    Subject(
        "zarr",
        "zarr-python",
        "headrace inside of zarr-python. Guide: [zarr-python](../../zarr.md).",
        (),
        ("zarr", "zarr.codecs", "zarr.mlx"),
    ),
    Subject(
        "xarray",
        "xarray",
        "headrace as an engine of xarray. Guide: [xarray](../../xarray.md).",
        (),
        ("xarray",),
    ),
    Subject(
        "parallel",
        "Dask and Ray",
        "Guides: [Dask](../../dask.md), [several machines with Dask](../../cluster.md), "
        "[Ray Data](../../ray.md).",
        (),
        ("dask", "ray"),
    ),
    Subject(
        "errors",
        "Errors",
        "The classes that Python has no word for. All errors, and what raises them: "
        "[errors](../errors.md).",
        ("CorruptError", "DeviceError", "CancelledError", "ConflictError"),
    ),
]  # fmt: skip
# What these have, headrace has under its own name.
AGAIN = {"errors", "group"}
# Classes that others make: how they are made is no business of a reader's.
MADE = {
    "Cells", "Group", "attributes.Attributes", "codecs.QueuedBatch", "lazy.LazyArray",
    "shm.Channel", "shm.Publication", "tree.Tree", "xarray.DeviceAccessor", "xarray.HeadraceStore",
    "zarr.CodecPipeline", "zarr.NDBuffer", "zarr.mlx.NDBuffer",
}  # fmt: skip
REST = Subject("more", "More", "What is new, and has no other page yet.")


def sources() -> dict[str, Path]:
    """The public modules below headrace, and where they are."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        if parts and not any(part.startswith("_") for part in parts):
            found[".".join(parts)] = path
    return found


def public_names(path: Path) -> list[str]:
    """`__all__`, or what a module without it defines, in its order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if "__all__" in targets:
                return list(ast.literal_eval(node.value))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            defined.append(node.name)
    return list(dict.fromkeys(defined))


def top_names() -> list[str]:
    """Of headrace itself, without its modules."""
    modules = sources()
    return [name for name in public_names(PACKAGE / "__init__.py") if name not in modules]


def everything() -> list[str]:
    """Every public name, as it is imported: what the site must have."""
    found = [f"headrace.{name}" for name in top_names()]
    for module, path in sources().items():
        if module in AGAIN:
            assert set(public_names(path)) <= set(top_names()), module
            continue
        found += [f"headrace.{module}.{name}" for name in public_names(path)]
    return found


def _directive(name: str, **options: object) -> str:
    if name.removeprefix("headrace.") in MADE:
        options = {**options, "merge_init_into_class": "false"}
    lines = [f"::: {name}"]
    if options:
        lines += ["    options:", *(f"      {key}: {value}" for key, value in options.items())]
    return "\n".join(lines)


def _module(name: str) -> str:
    """The text that a module opens with, then each of its names."""
    names = [f"headrace.{name}.{each}" for each in public_names(sources()[name])]
    # The heading of the module is that of its text alone: its members follow one by one.
    text = _directive(f"headrace.{name}", members="false")
    return "\n\n".join([text, *(_directive(each, heading_level=3) for each in names)])


def subjects() -> list[Subject]:
    """Those above, and one more of what they leave out."""
    named = {name for subject in SUBJECTS for name in subject.names}
    shown = {module for subject in SUBJECTS for module in subject.modules}
    unknown = (named - set(top_names())) | (shown - set(sources()))
    if unknown:
        missing = ", ".join(sorted(unknown))
        raise ValueError(f"tools/docs_python.py: headrace has no public {missing}")
    names = tuple(name for name in top_names() if name not in named)
    modules = tuple(name for name in sources() if name not in shown | AGAIN)
    if not names and not modules:
        return SUBJECTS
    return [*SUBJECTS, Subject(REST.page, REST.title, REST.says, names, modules)]


def pages() -> dict[str, str]:
    """Address and Markdown of each page, in the order of the navigation."""
    found = {}
    for subject in subjects():
        parts = [f"# {subject.title}", subject.says]
        parts += [_directive(f"headrace.{name}") for name in subject.names]
        parts += [_module(name) for name in subject.modules]
        found[f"reference/python/{subject.page}.md"] = "\n\n".join(parts) + "\n"
    return found


def index() -> str:
    """The page in front of them: every name, by subject."""
    lines = [
        "# Python",
        "",
        "`import headrace as hr`. Modules other than `headrace` are imported when first used, and",
        "need the library that they are named after.",
        "",
        "| subject | names |",
        "|---|---|",
    ]
    for subject in subjects():
        names = [f"headrace.{name}" for name in subject.names]
        for module in subject.modules:
            names += [f"headrace.{module}.{each}" for each in public_names(sources()[module])]
        shown = ", ".join(f"[`{name.removeprefix('headrace.')}`][{name}]" for name in names)
        lines.append(f"| [{subject.title}]({subject.page}.md) | {shown} |")
    return "\n".join(lines) + "\n"
