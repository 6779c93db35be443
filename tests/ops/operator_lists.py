"""Collections of operators in a module's source, found by ``ast``.

A literal of several operators' names, or of several operators, says something about
these operators that belongs into their records. Tables of an emitter, from opcodes to
code, are none: opcodes are the Loop IR's own names.
"""

import ast


def operator_lists(text, known):
    """The lines and the names of the collections of operators in a module's text.

    ``known`` are the names of all operators. A collection is a tuple, a list, a set,
    the keys of a dictionary or a text that is split. Two of its elements at least, and
    more than half of all, are operators: their names, ``find_op("name")``, or variables
    that hold them. What is bound to as many variables one by one is no collection, nor
    is a module's ``__all__``.
    """
    tree = ast.parse(text)
    held = _variables(tree, known)
    left_out = {id(part) for part in (*_unpacked(tree), *_tables_of_emitters(tree))}
    found = []
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        items = _items(node)
        names = [name for item in items if (name := _name(item, held, known))]
        if len(names) > 1 and len(names) > len(items) / 2:
            found.append((node.lineno, " ".join(names)))
    return sorted(found)


def _items(node):
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return node.elts
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        text = node.func.value
        if node.func.attr == "split" and isinstance(text, ast.Constant):
            return [ast.Constant(word) for word in str(text.value).split()]
    return []


def _name(item, held, known):
    """The name of the operator that an expression is, or None."""
    if isinstance(item, ast.Constant):
        return item.value if item.value in known else None
    if isinstance(item, ast.Name):
        return held.get(item.id)
    if _finds(item):
        return _name(item.args[0], {}, known)
    return None


def _finds(item):
    called = isinstance(item, ast.Call) and isinstance(item.func, ast.Name)
    return called and item.func.id == "find_op" and len(item.args) == 1


def _variables(tree, known):
    """The variables of a module that hold operators, and the operators' names."""
    held = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.name.removesuffix("_op")
                if alias.name != name and name in known:
                    held[alias.asname or alias.name] = name
                elif alias.name.isupper() and alias.name.lower() in known:
                    held[alias.asname or alias.name] = alias.name.lower()
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = _name(node.value, {}, known) if _finds(node.value) else None
            if name is not None:
                held[node.targets[0].id] = name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            targets = [getattr(t, "id", "") for t in node.targets[0].elts]
            values = list(_bound(node.value))
            names = [_name(value, {}, known) for value in values]
            if len(targets) == len(names):
                held.update({t: n for t, n in zip(targets, names, strict=True) if n})
    return held


def _bound(value):
    """What the variables on the left of an assignment get, one by one."""
    if isinstance(value, ast.Tuple):
        return value.elts
    literals = [n for n in ast.walk(value) if isinstance(n, (ast.Tuple, ast.List))]
    return literals[0].elts if literals else []


def _unpacked(tree):
    """The collections that are unpacked into as many variables, and those variables."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        if getattr(node.targets[0], "id", "") == "__all__":
            yield node.value
        if isinstance(node.targets[0], ast.Tuple):
            yield node.targets[0]
            count = len(node.targets[0].elts)
            for part in ast.walk(node.value):
                if isinstance(part, (ast.Tuple, ast.List)) and len(part.elts) == count:
                    yield part


def _tables_of_emitters(tree):
    """The dictionaries of a module that emits code, and all that is in them."""
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    if any(node.module == "llvmlite" for node in imports):
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                yield from ast.walk(node)
