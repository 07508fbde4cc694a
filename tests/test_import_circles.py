"""No module imports itself by way of others, and no folder does so by way of its neighbours.

Imports inside functions count: they only postpone a circle. Imports under ``TYPE_CHECKING`` count
too: they never run, but whoever reads one module of such a circle has to read the other. What a
package's ``__init__`` imports counts for that module alone, though Python runs it before any module
inside.
"""

from __future__ import annotations

import copy

import grimp

PACKAGE = "napari_gpu_denoise"


def circles(graph: grimp.ImportGraph) -> list[str]:
    """Return the shortest circle through each import that is part of one, in words."""
    found = set()
    for importer in graph.modules:
        # A folder squashed into one imports itself where its modules import each other.
        for imported in graph.find_modules_directly_imported_by(importer) - {importer}:
            back = graph.find_shortest_chain(imported, importer)
            if back is not None:
                first = back.index(min(back))
                found.add((*back[first:], *back[:first]))
    short = [[name.removeprefix(f"{PACKAGE}.") for name in circle] for circle in sorted(found)]
    return [" -> ".join([*names, names[0]]) for names in short]


def circles_between_folders(graph: grimp.ImportGraph) -> list[str]:
    """Return the circles between the parts of each folder, a folder inside it being one part."""
    found = []
    for package in sorted(name for name in graph.modules if graph.find_children(name)):
        inside = copy.deepcopy(graph)
        for child in graph.find_children(package):
            inside.squash_module(child)
        prefix = f"{package}.".removeprefix(f"{PACKAGE}.")
        found += [c for c in circles(inside) if all(n.startswith(prefix) for n in c.split(" -> "))]
    return sorted(set(found))


def test_no_module_and_no_folder_imports_itself_through_others(import_graph):
    for found in (circles(import_graph), circles_between_folders(import_graph)):
        assert not found, "circles of imports:\n" + "\n".join(found)


def made_of(*imports: tuple[str, str]) -> grimp.ImportGraph:
    """Return a graph of these imports."""
    graph = grimp.ImportGraph()
    for pair in imports:
        for name in pair:
            parts = f"{PACKAGE}.{name}".split(".")
            for end in range(1, len(parts) + 1):
                graph.add_module(".".join(parts[:end]))
        importer, imported = (f"{PACKAGE}.{name}" for name in pair)
        graph.add_import(importer=importer, imported=imported)
    return graph


def test_circles_of_modules_and_of_folders_are_found_and_named():
    graph = made_of(("x.a", "x.b"), ("x.b", "x.c"), ("x.c", "x.a"), ("x.c", "x.d"), ("x.d", "x.c"))
    assert circles(graph) == ["x.a -> x.b -> x.c -> x.a", "x.c -> x.d -> x.c"]
    graph = made_of(("x.a.p", "x.b.q"), ("x.b.r", "x.a.s"), ("x.a.s", "x.a.t"), ("y", "x.a.p"))
    assert circles(graph) == []
    assert circles_between_folders(graph) == ["x.a -> x.b -> x.a"]
