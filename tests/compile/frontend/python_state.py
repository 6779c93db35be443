"""A catalogue of the ways in which a function depends on Python, or changes it.

Each kind is a few lines of source text, run anew for each trial:

    READS     a name: (what is there, what f(x) returns, what changes between calls)
    WRITES    a name: (what is there, what f(x, a) does, what can be seen afterwards)
    HANDLERS  a name: what f(x) does around a question that needs a value

``tried`` gives "noticed" where compiled calls do what eager ones do, "refused" where
the function is refused and nothing has changed, else "missed".
"""

import collections
import contextlib
import linecache
import textwrap
import warnings

import weft
from weft.graph import CaptureError

# fmt: off
READS = {
    # names
    "a global number": ("s = 2.0", "x * s", "s = 3.0"),
    "a global int": ("s = 2", "x * s", "s = 3"),
    "a global bool": ("s = True", "x * 2 if s else x", "s = False"),
    "a global string": ("s = 'a'", "x * len(s)", "s = 'bc'"),
    "a global bytes": ("s = b'a'", "x * s[0]", "s = b'b'"),
    "a global None": ("s = None", "x if s is None else x * 2", "s = 1"),
    "a global complex": ("s = 1j", "x * s.imag", "s = 2j"),
    "a global tuple": ("s = (1, 2)", "x * s[1]", "s = (1, 3)"),
    "a global frozenset": ("s = frozenset([1])", "x * len(s)", "s = frozenset()"),
    "a global range": ("s = range(2)", "x * len(s)", "s = range(3)"),
    "a global slice": ("s = slice(0, 1)", "x[s]", "s = slice(0, 2)"),
    "a global tensor": ("s = weft.ones(2)", "x * s", "s = weft.zeros(2)"),
    "a tensor in place": ("s = weft.ones(2)", "x * s", "s.mul_(3)"),
    "a tensor's other dtype": (
        "s = weft.ones(2)", "x * s", "s = weft.ones(2, dtype=weft.float64)"),
    "a global deleted": ("s = 2.0", "x * s if 's' in globals() else x", "del s"),
    "a global that comes": ("", "x * s if 's' in globals() else x", "s = 2.0"),
    "a builtin that is hidden": ("", "x * abs(-2)", "abs = lambda v: 7"),
    "a global through another function": (
        "s = 2.0\ndef g(x): return x * s", "g(x)", "s = 3.0"),
    "another function": ("def g(x): return x * 2", "g(x)", "def g(x): return x * 3"),
    "another function's code": (
        "def g(x): return x * 2\ndef h(x): return x * 3", "g(x)",
        "g.__code__ = h.__code__"),
    "a lambda in a list": (
        "fs = [lambda x: x * 2]", "fs[0](x)", "fs[0] = lambda x: x * 3"),
    "a default argument": (
        "def g(x, s=2.0): return x * s", "g(x)", "g.__defaults__ = (3.0,)"),
    "a keyword default": (
        "def g(x, *, s=2.0): return x * s", "g(x)", "g.__kwdefaults__ = {'s': 3.0}"),
    "a mutable default": (
        "def g(x, s=[2.0]): return x * s[0]", "g(x)", "g.__defaults__[0][0] = 3.0"),
    "a closure": (
        "def make():\n s = 2.0\n def g(x): return x * s\n def put(v):\n"
        "  nonlocal s\n  s = v\n return g, put\ng, put = make()", "g(x)", "put(3.0)"),
    "a closure's list": (
        "def make(l): return lambda x: x * l[0]\nl = [2.0]\ng = make(l)", "g(x)",
        "l[0] = 3.0"),
    "a closure's cell": (
        "def make(s): return lambda x: x * s\ng = make(2.0)", "g(x)",
        "g.__closure__[0].cell_contents = 3.0"),
    "a partial": (
        "import functools\ndef g(s, x): return x * s\n"
        "p = functools.partial(g, 2.0)", "p(x)", "p = functools.partial(g, 3.0)"),
    "a partial's list": (
        "import functools\ndef g(s, x): return x * s[0]\nl = [2.0]\n"
        "p = functools.partial(g, l)", "p(x)", "l[0] = 3.0"),
    "a partial's keywords": (
        "import functools\ndef g(x, s): return x * s\n"
        "p = functools.partial(g, s=2.0)", "p(x)", "p.keywords['s'] = 3.0"),
    "a function's attribute": (
        "def g(x): return x * g.s\ng.s = 2.0", "g(x)", "g.s = 3.0"),
    "a function's own attribute": ("", "x * getattr(f, 's', 1.0)", "f.s = 3.0"),
    "a function's attribute of a list": (
        "def g(x): return x * g.s[0]\ng.s = [2.0]", "g(x)", "g.s[0] = 3.0"),
    "a wrapped function": (
        "import functools\ndef d(g):\n @functools.wraps(g)\n"
        " def w(x): return g(x) * w.s\n w.s = 2.0\n return w\n@d\n"
        "def g(x): return x", "g(x)", "g.s = 3.0"),
    "an lru_cache": (
        "import functools\ns = 2.0\n@functools.lru_cache\ndef g(): return s", "x * g()",
        "g.cache_clear(); s = 3.0"),
    "a function's name": (
        "def g(): pass", "x * len(g.__name__)", "g.__name__ = 'longer'"),
    "a docstring": ("def g(): 'doc'", "x * len(g.__doc__)", "g.__doc__ = 'longer'"),
    "an annotation": (
        "def g(a: 2): pass", "x * g.__annotations__['a']",
        "g.__annotations__['a'] = 3"),
    # containers
    "a list's item": ("l = [2.0]", "x * l[0]", "l[0] = 3.0"),
    "a list's length": ("l = [1, 2]", "x * len(l)", "l.append(3)"),
    "a list's sum": ("l = [1, 2]", "x * sum(l)", "l[1] = 5"),
    "a list in a loop": ("l = [1, 2]", "x * [v * 2 for v in l][1]", "l[1] = 5"),
    "a list's order": ("l = [1, 2]", "x * l[0]", "l.reverse()"),
    "whether in a list": ("l = [1]", "x * 2 if 5 in l else x", "l.append(5)"),
    "a nested list": ("l = [[1, [2]]]", "x * l[0][1][0]", "l[0][1][0] = 3"),
    "a slice of a list": ("l = [1, 2, 3]", "x * sum(l[1:])", "l[2] = 9"),
    "an unpacked list": ("l = [1, 2]", "x * (lambda a, b: b)(*l)", "l[1] = 5"),
    "a sorted list": ("l = [3, 1]", "x * sorted(l)[0]", "l[1] = 2"),
    "a zipped list": ("l = [3, 1]", "x * dict(zip('ab', l))['b']", "l[1] = 2"),
    "a list's index": ("l = [3, 1]", "x * (1 + l.index(1))", "l.insert(0, 1)"),
    "a list's count": ("l = [3, 1]", "x * l.count(1)", "l.append(1)"),
    "a list's copy": ("l = [3, 1]", "x * l.copy()[1]", "l[1] = 2"),
    "a subclass of list": (
        "class L(list): pass\nl = L([2.0])", "x * l[0]", "l[0] = 3.0"),
    "a UserList": (
        "import collections\nl = collections.UserList([2.0])", "x * l[0]",
        "l[0] = 3.0"),
    "a tuple of lists": ("t = ([1],)", "x * t[0][0]", "t[0][0] = 2"),
    "a named tuple of lists": (
        "import collections\nT = collections.namedtuple('T', 'a')\nt = T([1])",
        "x * t.a[0]", "t.a[0] = 2"),
    "a dict's value": ("d = {'s': 2.0}", "x * d['s']", "d['s'] = 3.0"),
    "a dict's get": ("d = {}", "x * d.get('s', 2.0)", "d['s'] = 3.0"),
    "a dict's length": ("d = {1: 1}", "x * len(d)", "d[2] = 2"),
    "a dict's keys": ("d = {1: 1}", "x * max(d)", "d[2] = 2"),
    "a dict's values": ("d = {1: 1}", "x * max(d.values())", "d[1] = 2"),
    "a dict's items": (
        "d = {1: 1}", "x * [k + v for k, v in d.items()][0]", "d[1] = 2"),
    "a dict's view": ("d = {1: 1}\nv = d.values()", "x * list(v)[0]", "d[1] = 2"),
    "a dict's order": ("d = {1: 1, 2: 2}", "x * next(iter(d))", "d[1] = d.pop(1)"),
    "whether in a dict": ("d = {}", "x if 's' in d else x * 2", "d['s'] = 1"),
    "a dict by a computed key": (
        "d = {'ab': 2.0}", "x * d['a' + 'b'.lower()]", "d['ab'] = 3.0"),
    "a dict unpacked": ("d = {'s': 2.0}", "(lambda s: x * s)(**d)", "d['s'] = 3.0"),
    "a dict merged": ("d = {'s': 2.0}", "x * (d | {})['s']", "d['s'] = 3.0"),
    "a dict matched": (
        "d = {'s': 2.0}\ndef g(x):\n match d:\n  case {'s': s}: return x * s", "g(x)",
        "d['s'] = 3.0"),
    "an OrderedDict": (
        "import collections\nd = collections.OrderedDict(s=2.0)", "x * d['s']",
        "d['s'] = 3.0"),
    "a defaultdict": (
        "import collections\nd = collections.defaultdict(lambda: 2.0, s=2.0)",
        "x * d['s']", "d['s'] = 3.0"),
    "a Counter": (
        "import collections\nd = collections.Counter('aab')", "x * d['a']",
        "d['a'] = 3"),
    "a ChainMap": (
        "import collections\nd = {'s': 2.0}\nm = collections.ChainMap({}, d)",
        "x * m['s']", "d['s'] = 3.0"),
    "a UserDict": (
        "import collections\nd = collections.UserDict(s=2.0)", "x * d['s']",
        "d['s'] = 3.0"),
    "a mapping proxy": (
        "import types\nd = {'s': 2.0}\np = types.MappingProxyType(d)", "x * p['s']",
        "d['s'] = 3.0"),
    "a set": ("s = {1}", "x * 2 if 5 in s else x", "s.add(5)"),
    "a set's length": ("s = {1}", "x * len(s)", "s.add(5)"),
    "a set's union": ("s = {1}", "x * len(s | {2})", "s.add(5)"),
    "a deque": (
        "import collections\nq = collections.deque([2.0])", "x * q[0]", "q[0] = 3.0"),
    "a deque's length": (
        "import collections\nq = collections.deque([2.0])", "x * len(q)",
        "q.append(1)"),
    "a queue's size": (
        "import queue\nq = queue.Queue()\nq.put(1)", "x * q.qsize()", "q.put(2)"),
    "a heap": (
        "import heapq\nh = [2, 3]", "x * heapq.nsmallest(1, h)[0]",
        "heapq.heapreplace(h, 9)"),
    "an array": ("import array\na = array.array('d', [2.0])", "x * a[0]", "a[0] = 3.0"),
    "a bytearray": ("b = bytearray(b'ab')", "x * b[0]", "b[0] = 9"),
    "a memoryview": ("b = bytearray(b'ab')\nm = memoryview(b)", "x * m[0]", "b[0] = 9"),
    "a memoryview of an array": (
        "import array\na = array.array('d', [2.0])\nm = memoryview(a)", "x * m[0]",
        "a[0] = 3.0"),
    "a NumPy array": (
        "import numpy as np\na = np.array([2.0])", "x * float(a[0])", "a[0] = 3.0"),
    "a NumPy array as a tensor": (
        "import numpy as np\na = np.ones(2, np.float32)", "x * weft.from_numpy(a)",
        "a[0] = 3.0"),
    "a NumPy array's sum": (
        "import numpy as np\na = np.array([2.0])", "x * float(a.sum())", "a[0] = 3.0"),
    "a NumPy array's view": (
        "import numpy as np\na = np.array([2.0, 1.0])\nv = a[:1]", "x * float(v[0])",
        "a[0] = 3.0"),
    "a NumPy number": (
        "import numpy as np\ns = np.float64(2.0)", "x * s", "s = np.float64(3.0)"),
    "a NumPy record": (
        "import numpy as np\na = np.zeros(1, [('s', 'f8')])", "x * float(a['s'][0])",
        "a['s'][0] = 3.0"),
    "a list of tensors": ("l = [weft.ones(2)]", "x * l[0]", "l[0] = weft.zeros(2)"),
    "a list in a dict in a list": (
        "l = [{'a': [1]}]", "x * l[0]['a'][0]", "l[0]['a'][0] = 2"),
    # objects
    "an attribute": ("class O: pass\no = O()\no.s = 2.0", "x * o.s", "o.s = 3.0"),
    "an attribute of an attribute": (
        "class O: pass\no = O()\no.o = O()\no.o.s = 2.0", "x * o.o.s", "o.o.s = 3.0"),
    "getattr": (
        "class O: pass\no = O()\no.s = 2.0", "x * getattr(o, 's')", "o.s = 3.0"),
    "getattr with a default": (
        "class O: pass\no = O()", "x * getattr(o, 's', 2.0)", "o.s = 3.0"),
    "hasattr": (
        "class O: pass\no = O()", "x if hasattr(o, 's') else x * 2", "o.s = 3.0"),
    "vars": ("class O: pass\no = O()\no.s = 2.0", "x * vars(o)['s']", "o.s = 3.0"),
    "__dict__": (
        "class O: pass\no = O()\no.s = 2.0", "x * o.__dict__['s']", "o.s = 3.0"),
    "dir": ("class O: pass\no = O()", "x * ('s' in dir(o))", "o.s = 3.0"),
    "attrgetter": (
        "import operator\nclass O: pass\no = O()\no.s = 2.0",
        "x * operator.attrgetter('s')(o)", "o.s = 3.0"),
    "object.__getattribute__": (
        "class O: pass\no = O()\no.s = 2.0", "x * object.__getattribute__(o, 's')",
        "o.s = 3.0"),
    "copy.copy": (
        "import copy\nclass O: pass\no = O()\no.s = 2.0", "x * copy.copy(o).s",
        "o.s = 3.0"),
    "copy.deepcopy": (
        "import copy\nclass O: pass\no = O()\no.s = [2.0]", "x * copy.deepcopy(o).s[0]",
        "o.s[0] = 3.0"),
    "pickle": (
        "import pickle\nimport collections\no = collections.UserDict(s=2.0)",
        "x * pickle.loads(pickle.dumps(o))['s']", "o['s'] = 3.0"),
    "another class": (
        "class A: s = 2.0\nclass B: s = 3.0\no = A()", "x * o.s", "o.__class__ = B"),
    "isinstance": (
        "class A: pass\nclass B: pass\no = A()", "x * 2 if isinstance(o, A) else x",
        "o.__class__ = B"),
    "type of an object": (
        "class A: pass\nclass B: pass\no = A()", "x * 2 if type(o) is A else x",
        "o.__class__ = B"),
    "a class attribute": ("class O: s = 2.0\no = O()", "x * o.s", "O.s = 3.0"),
    "a class attribute by the class": ("class O: s = 2.0", "x * O.s", "O.s = 3.0"),
    "an inherited attribute": (
        "class P: s = 2.0\nclass O(P): pass\no = O()", "x * o.s", "P.s = 3.0"),
    "an attribute that comes to hide": (
        "class O: s = 2.0\no = O()", "x * o.s", "o.s = 3.0"),
    "a class attribute that comes to hide": (
        "class P: s = 2.0\nclass O(P): pass\no = O()", "x * o.s", "O.s = 3.0"),
    "another base class": (
        "class P: s = 2.0\nclass Q: s = 3.0\nclass O(P): pass\no = O()", "x * o.s",
        "O.__bases__ = (Q,)"),
    "a method": (
        "class O:\n def m(self, x): return x * 2\no = O()", "o.m(x)",
        "O.m = lambda self, x: x * 3"),
    "a bound method": (
        "class O:\n def m(self, x): return x * self.s\no = O()\no.s = 2.0\n"
        "b = o.m", "b(x)", "o.s = 3.0"),
    "a method of an instance": (
        "class O: pass\no = O()\no.m = lambda x: x * 2", "o.m(x)",
        "o.m = lambda x: x * 3"),
    "a class method": (
        "class O:\n s = 2.0\n @classmethod\n def m(cls, x): return x * cls.s", "O.m(x)",
        "O.s = 3.0"),
    "a static method": (
        "class O:\n @staticmethod\n def m(x): return x * 2", "O.m(x)",
        "O.m = staticmethod(lambda x: x * 3)"),
    "a property": (
        "class O:\n @property\n def p(self): return self.s\no = O()\no.s = 2.0",
        "x * o.p", "o.s = 3.0"),
    "a cached property": (
        "import functools\nclass O:\n @functools.cached_property\n"
        " def p(self): return 2.0\no = O()", "x * o.p", "o.p = 3.0"),
    "a descriptor": (
        "class D:\n def __get__(self, o, k): return o.s\nclass O: d = D()\n"
        "o = O()\no.s = 2.0", "x * o.d", "o.s = 3.0"),
    "a descriptor's own state": (
        "class D:\n s = 2.0\n def __get__(self, o, k): return self.s\nd = D()\n"
        "class O: p = d\no = O()", "x * o.p", "d.s = 3.0"),
    "__getattr__": (
        "class O:\n def __init__(self): self.t = {'s': 2.0}\n"
        " def __getattr__(self, n):\n  return self.__dict__['t'][n]\no = O()",
        "x * o.s", "o.t['s'] = 3.0"),
    "__getattribute__": (
        "class O:\n def __init__(self): self.t = 2.0\n"
        " def __getattribute__(self, n):\n"
        "  return object.__getattribute__(self, 't')\no = O()", "x * o.s", "o.t = 3.0"),
    "__getitem__": (
        "class O:\n s = 2.0\n def __getitem__(self, k): return self.s\no = O()",
        "x * o[0]", "o.s = 3.0"),
    "__call__": (
        "class O:\n s = 2.0\n def __call__(self, x): return x * self.s\no = O()",
        "o(x)", "o.s = 3.0"),
    "__len__": (
        "class O:\n n = 2\n def __len__(self): return self.n\no = O()", "x * len(o)",
        "o.n = 3"),
    "__iter__": (
        "class O:\n n = 2\n def __iter__(self): return iter([self.n])\no = O()",
        "x * list(o)[0]", "o.n = 3"),
    "__bool__": (
        "class O:\n n = True\n def __bool__(self): return self.n\no = O()",
        "x * 2 if o else x", "o.n = False"),
    "__eq__": (
        "class O:\n n = 2\n def __eq__(self, k): return self.n == k\no = O()",
        "x * 2 if o == 2 else x", "o.n = 3"),
    "__contains__": (
        "class O:\n n = 2\n def __contains__(self, k): return self.n == k\n"
        "o = O()", "x * 2 if 2 in o else x", "o.n = 3"),
    "__index__": (
        "class O:\n n = 0\n def __index__(self): return self.n\no = O()", "x[o]",
        "o.n = 1"),
    "__float__": (
        "class O:\n n = 2.0\n def __float__(self): return self.n\no = O()",
        "x * float(o)", "o.n = 3.0"),
    "__format__": (
        "class O:\n n = 2\n def __format__(self, s): return 'a' * self.n\n"
        "o = O()", "x * len(f'{o}')", "o.n = 3"),
    "__enter__": (
        "class O:\n n = 2\n def __enter__(self): return self.n\n"
        " def __exit__(self, *e): pass\no = O()\ndef g(x):\n"
        " with o as n: return x * n", "g(x)", "o.n = 3"),
    "a slot": (
        "class O: __slots__ = ('s',)\no = O()\no.s = 2.0", "x * o.s", "o.s = 3.0"),
    "a dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass O:\n"
        " s: float = 2.0\no = O()", "x * o.s", "o.s = 3.0"),
    "a dataclass as a dict": (
        "import dataclasses\n@dataclasses.dataclass\nclass O:\n"
        " s: float = 2.0\no = O()", "x * dataclasses.asdict(o)['s']", "o.s = 3.0"),
    "a replaced dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass O:\n"
        " s: float = 2.0\n n: int = 1\no = O()", "x * dataclasses.replace(o, n=2).s",
        "o.s = 3.0"),
    "a matched object": (
        "class O:\n __match_args__ = ('s',)\no = O()\no.s = 2.0\ndef g(x):\n"
        " match o:\n  case O(s): return x * s", "g(x)", "o.s = 3.0"),
    "a namespace": (
        "import types\no = types.SimpleNamespace(s=2.0)", "x * o.s", "o.s = 3.0"),
    "an argparse namespace": (
        "import argparse\no = argparse.Namespace(s=2.0)", "x * o.s", "o.s = 3.0"),
    "an enum's choice": (
        "import enum\nclass E(enum.Enum):\n A = 2\n B = 3\ne = E.A", "x * e.value",
        "e = E.B"),
    "a metaclass's attribute": (
        "class M(type): s = 2.0\nclass O(metaclass=M): pass", "x * O.s", "M.s = 3.0"),
    "a module": (
        "import types, sys\nm = types.ModuleType('m')\nm.__file__ = 'm.py'\n"
        "m.s = 2.0", "x * m.s", "m.s = 3.0"),
    "a weak reference": (
        "import weakref\nclass O: pass\no = O()\no.s = 2.0\nr = weakref.ref(o)",
        "x * r().s", "o.s = 3.0"),
    "a weak dictionary": (
        "import weakref\nclass O: pass\nk = O()\n"
        "d = weakref.WeakKeyDictionary()\nd[k] = 2.0", "x * d[k]", "d[k] = 3.0"),
    "a thread's local": (
        "import threading\no = threading.local()\no.s = 2.0", "x * o.s", "o.s = 3.0"),
    "a context variable": (
        "import contextvars\nv = contextvars.ContextVar('v', default=2.0)",
        "x * v.get()", "v.set(3.0)"),
    "an event": (
        "import threading\ne = threading.Event()", "x * 2 if e.is_set() else x",
        "e.set()"),
    "a config parser": (
        "import configparser\nc = configparser.ConfigParser()\n"
        "c.read_dict({'a': {'s': '2'}})", "x * c.getfloat('a', 's')",
        "c['a']['s'] = '3'"),
    "a fraction": (
        "import fractions\ns = fractions.Fraction(1, 2)", "x * float(s)",
        "s = fractions.Fraction(1, 3)"),
    "the environment by a module in a closure": (
        "import os as _os\n_os.environ['WEFT_S'] = '2'\ndef make():\n import os\n"
        " return lambda: int(os.environ['WEFT_S'])\ng = make()", "x * g()",
        "_os.environ['WEFT_S'] = '3'"),
    "the environment by a function's import": (
        "import os as _os\n_os.environ['WEFT_S'] = '2'\ndef g():\n import os\n"
        " return int(os.getenv('WEFT_S'))", "x * g()", "_os.environ['WEFT_S'] = '3'"),
    "the environment by a function's import of a name": (
        "import os as _os\n_os.environ['WEFT_S'] = '2'\ndef g():\n"
        " from os import environ as e\n return int(e['WEFT_S'])", "x * g()",
        "_os.environ['WEFT_S'] = '3'"),
    "getenv in a closure": (
        "import os as _os\n_os.environ['WEFT_S'] = '2'\ndef make():\n"
        " from os import getenv as e\n return lambda: int(e('WEFT_S'))\ng = make()",
        "x * g()", "_os.environ['WEFT_S'] = '3'"),
    "the arguments by a function's import": (
        "import sys as _sys\n_sys.argv = ['a']\ndef g():\n import sys\n"
        " return len(sys.argv)", "x * g()",
        "_sys.argv = [*_sys.argv, 'a']"),
    "the arguments by an inner function": (
        "import sys as _sys\n_sys.argv = ['a']\ndef g():\n from sys import argv\n"
        " def inner(): return len(argv)\n return inner()", "x * g()",
        "_sys.argv.append('a')"),
    "a logger's level": (
        "import logging\nl = logging.getLogger('weft-level')\nl.setLevel('INFO')",
        "x * (2 if l.isEnabledFor(logging.DEBUG) else 3)", "l.setLevel('DEBUG')"),
    "a parent logger's level": (
        "import logging\nl = logging.getLogger('weft-up.below')\nl.setLevel(0)\n"
        "up = logging.getLogger('weft-up')\nup.setLevel('INFO')",
        "x * l.getEffectiveLevel()", "up.setLevel('DEBUG')"),
    "the contents of a StringIO": (
        "import io\ns = io.StringIO('2')", "x * int(s.getvalue())",
        "s.seek(0)\ns.write('3')"),
    "the environment": (
        "import os\nos.environ['WEFT_S'] = '2'", "x * int(os.environ['WEFT_S'])",
        "os.environ['WEFT_S'] = '3'"),
    "getenv": (
        "import os\nos.environ['WEFT_S'] = '2'", "x * int(os.getenv('WEFT_S'))",
        "os.environ['WEFT_S'] = '3'"),
    "the recursion limit": (
        "import sys\nsys.weft_s = 2", "x * sys.weft_s", "sys.weft_s = 3"),
    "a BytesIO": (
        "import io\nb = io.BytesIO(b'a')", "x * len(b.getvalue())",
        "b = io.BytesIO(b'ab')"),
    # modules and tensors
    "a module's training": (
        "m = weft.nn.Dropout(0.5)", "m(x * 0) + (2 if m.training else 1)", "m.eval()"),
    "a parameter": (
        "m = weft.nn.Linear(2, 2)", "m(x)", "m.weight = weft.nn.Parameter(m.weight*2)"),
    "a parameter's data": (
        "m = weft.nn.Linear(2, 2)", "m(x)", "weft.nn.init.ones_(m.weight)"),
    "a buffer": (
        "class M(weft.nn.Module):\n def __init__(self):\n  super().__init__()\n"
        "  self.register_buffer('b', weft.ones(2))\n"
        " def forward(self, x): return x * self.b\nm = M()", "m(x)",
        "m.b = weft.zeros(2)"),
    "a module's attribute": (
        "class M(weft.nn.Module):\n s = 2.0\n def forward(self, x):\n"
        "  return x * self.s\nm = M()", "m(x)", "m.s = 3.0"),
    "a submodule": (
        "class M(weft.nn.Module):\n def __init__(self):\n  super().__init__()\n"
        "  self.a = weft.nn.ReLU()\n def forward(self, x): return self.a(x)\n"
        "m = M()", "m(x)", "m.a = weft.nn.Hardtanh()"),
    "a module list": (
        "m = weft.nn.ModuleList([weft.nn.ReLU()])", "m[0](x) * len(m)",
        "m.append(weft.nn.ReLU())"),
    "a sequential's entry": (
        "m = weft.nn.Sequential(weft.nn.ReLU())", "m(x)", "m[0] = weft.nn.Hardtanh()"),
    "a forward hook": (
        "m = weft.nn.ReLU()", "m(x)", "m.register_forward_hook(lambda m, a, o: o * 3)"),
    "requires_grad": (
        "m = weft.nn.Linear(2, 2)", "x * 2 if m.weight.requires_grad else x",
        "m.weight.requires_grad_(False)"),
    "a gradient": (
        "w = weft.ones(2, requires_grad=True)", "x if w.grad is None else x * 2",
        "w.sum().backward()"),
    "the default dtype": (
        "", "x.double() * weft.zeros(2).element_size()",
        "weft.set_default_dtype(weft.float64)"),
    "an optimizer's rate": (
        "w = weft.ones(2, requires_grad=True)\no = weft.optim.SGD([w], lr=2.0)",
        "x * o.param_groups[0]['lr']", "o.param_groups[0]['lr'] = 3.0"),
}

WRITES = {
    # arguments
    "append": ("a = []", "a.append(x.sum())\nreturn x", "a"),
    "append a number": ("a = []", "a.append(1)\nreturn x * len(a)", "a"),
    "append the argument": ("a = []", "a.append(x)\nreturn x", "[v is x for v in a]"),
    "append a view": ("a = []", "a.append(x[:1])\nreturn x * 2", "a"),
    "append a list": ("a = []", "a.append([x, 1])\nreturn x", "a"),
    "append a dict": ("a = []", "a.append({'k': x * 2})\nreturn x", "a"),
    "append a set": ("a = []", "a.append({1})\nreturn x", "a"),
    "append an array": (
        "import numpy as np\na = []", "a.append(np.zeros(1))\nreturn x", "a"),
    "append to itself": (
        "a = [[1]]", "a[0].append(a[0][0])\nreturn x * len(a[0])", "a"),
    "extend": ("a = []", "a.extend([x, x * 2])\nreturn x", "a"),
    "insert": ("a = [1]", "a.insert(0, x.sum())\nreturn x", "a"),
    "pop": ("a = [1, 2, 3, 4]", "return x * a.pop()", "a"),
    "pop a tensor": ("a = [x, x * 2, x * 3]", "return x * a.pop()", "a"),
    "remove": ("a = [1, 2, 3]", "a.remove(a[0])\nreturn x", "a"),
    "clear": ("a = [1, 2]", "n = len(a)\na.clear()\nreturn x * n", "a"),
    "reverse": ("a = [1, 2]", "a.reverse()\nreturn x * a[0]", "a"),
    "sort": ("a = [2, 1]", "n = a[0]\na.sort()\nreturn x * n", "a"),
    "set an item": ("a = [1]", "a[0] += 1\nreturn x * a[0]", "a"),
    "set a tensor": ("a = [x]", "a[0] = a[0] * 2\nreturn x", "a"),
    "set a slice": ("a = [1, 2]", "a[:1] = [3, 4]\nreturn x", "a"),
    "delete an item": ("a = [1, 2, 3]", "del a[0]\nreturn x * a[0] if a else x", "a"),
    "add in place": ("a = [1]", "a += [2]\nreturn x * len(a)", "a"),
    "multiply in place": ("a = [1]", "a *= 2\nreturn x * len(a)", "a"),
    "an inner list": ("a = {'l': []}", "a['l'].append(x.sum())\nreturn x", "a"),
    "a list in a tuple": ("a = ([],)", "a[0].append(1)\nreturn x * len(a[0])", "a"),
    "a list twice": ("l = []\na = (l, l)", "a[0].append(1)\nreturn x * len(a[1])", "a"),
    "a dict's item": ("a = {}", "a['k'] = x * 2\nreturn x", "a"),
    "a dict's number": ("a = {}", "a['n'] = a.get('n', 0) + 1\nreturn x * a['n']", "a"),
    "a dict's pop": ("a = {'k': 1, 'j': 2}", "return x * a.pop('k', 7)", "a"),
    "a dict's popitem": ("a = {1: 1, 2: 2, 3: 3}", "return x * a.popitem()[0]", "a"),
    "a dict's update": ("a = {}", "a.update(k=x, j=1)\nreturn x", "a"),
    "a dict's setdefault": (
        "a = {}", "a.setdefault('l', []).append(x.sum())\nreturn x", "a"),
    "a dict's deletion": (
        "a = {1: 1, 2: 2, 3: 3}", "del a[min(a)]\nreturn x * len(a)", "a"),
    "a dict's clear": ("a = {1: 1}", "n = len(a)\na.clear()\nreturn x * n", "a"),
    "a dict's order": ("a = {1: 1, 2: 2}", "a[1] = a.pop(1)\nreturn x", "list(a)"),
    "a dict joined": ("a = {}", "a |= {'k': 1}\nreturn x * len(a)", "a"),
    "a defaultdict": (
        "import collections\na = collections.defaultdict(list)",
        "a['k'].append(x.sum())\nreturn x", "dict(a)"),
    "a Counter": (
        "import collections\na = collections.Counter()",
        "a['k'] += 1\nreturn x * a['k']", "dict(a)"),
    "an OrderedDict": (
        "import collections\na = collections.OrderedDict(a=1, b=2)",
        "a.move_to_end('a')\nreturn x * next(iter(a.values()))", "list(a)"),
    "a subclass of dict": (
        "class D(dict): pass\na = D()", "a['k'] = 1\nreturn x * len(a)", "a"),
    "an attribute of a dict's subclass": (
        "class D(dict): pass\na = D()\na.n = 1", "a.n += 1\nreturn x * a.n", "a.n"),
    "a subclass of list": (
        "class L(list): pass\na = L()", "a.append(1)\nreturn x * len(a)", "list(a)"),
    "the list is returned": ("a = []", "a.append(x)\nreturn a", "f(x, a) is a"),
    "the argument is returned": ("a = 0", "return x", "f(x, a) is x"),
    "a view is returned and written": ("a = 0", "return x[:1]", "f(x, 0).add_(1)\nx"),
    "a result is returned twice": (
        "a = 0", "y = x * 2\nreturn y, y", "r = f(x, 0)\nr[0].add_(1)\nr"),
    "a result and its view": (
        "a = 0", "y = x * 2\nreturn y, y[:1]", "r = f(x, 0)\nr[1].add_(1)\nr"),
    "a result and its detached one": (
        "a = 0", "y = x * 2\nreturn y, y.detach()", "r = f(x, 0)\nr[1].add_(1)\nr"),
    "a global tensor is returned": (
        "a = 0\ns = weft.ones(2)", "return s", "f(x, 0).add_(1)\ns"),
    "a gradient is returned": (
        "a = 0\nw = weft.ones(2, requires_grad=True)",
        "w.grad = None\n(w * x).sum().backward()\nreturn w.grad",
        "f(x, 0).add_(1)\nw.grad"),
    "a set that is made": ("a = 0", "return x, {1}", "f(x, 0)[1].add(2)\nf(x, 0)[1]"),
    "an array that is made": (
        "import numpy as np\na = 0", "return x, np.zeros(1)",
        "f(x, 0)[1].fill(2)\nf(x, 0)[1]"),
    "a list that is made": ("a = 0", "return x, [1]", "f(x, 0)[1].append(2)\nf(x, 0)"),
    "a text of a value": ("a = 0", "return f'{x.sum():.2f} {x}'", "a"),
    "a set": ("a = set()", "a.add(len(a))\nreturn x * len(a)", "a"),
    "a deque": (
        "import collections\na = collections.deque()", "a.append(1)\nreturn x * len(a)",
        "list(a)"),
    "a deque of tensors": (
        "import collections\na = collections.deque()", "a.append(x.sum())\nreturn x",
        "list(a)"),
    "a bytearray": ("a = bytearray(b'a')", "a[0] += 1\nreturn x * a[0]", "a"),
    "a NumPy array's item": (
        "import numpy as np\na = np.ones(2, np.float32)",
        "a += 1\nreturn x * weft.as_tensor(a)", "a.tolist()"),
    "an object's attribute": (
        "class O: n = 0\na = O()", "a.n += 1\nreturn x * a.n", "a.n"),
    "an object's tensor": ("class O: t = None\na = O()", "a.t = x\nreturn x", "a.t"),
    "an object's list": (
        "class O: pass\na = O()\na.l = []", "a.l.append(1)\nreturn x * len(a.l)",
        "a.l"),
    "an object's deletion": (
        "class O: pass\na = O()\na.n = 1",
        "n = getattr(a, 'n', 5)\nif n == 1: del a.n\nreturn x * n", "vars(a)"),
    "setattr": (
        "class O: n = 0\na = O()", "setattr(a, 'n', a.n + 1)\nreturn x * a.n", "a.n"),
    "object.__setattr__": (
        "class O: n = 0\na = O()", "object.__setattr__(a, 'n', 1)\nreturn x",
        "vars(a)"),
    "an object's __dict__": (
        "class O: pass\na = O()", "a.__dict__['n'] = 1\nreturn x", "vars(a)"),
    "a slot": (
        "class O: __slots__ = ('n',)\na = O()\na.n = 0", "a.n += 1\nreturn x * a.n",
        "a.n"),
    "a dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass O:\n n: int = 0\n"
        "a = O()", "a.n += 1\nreturn x * a.n", "a.n"),
    "a namespace": (
        "import types\na = types.SimpleNamespace(n=0)", "a.n += 1\nreturn x * a.n",
        "a.n"),
    "a class": ("class O: n = 0\na = O()", "type(a).n += 1\nreturn x * a.n", "O.n"),
    "an object's class": (
        "class A: n = 1\nclass B: n = 2\na = A()",
        "n = a.n\na.__class__ = B\nreturn x * n", "type(a).__name__"),
    "an iterator": ("a = iter([1, 2, 3, 4])", "return x * next(a)", "0"),
    "a generator": ("a = (n for n in range(1, 9))", "return x * next(a)", "0"),
    "an iterator in a list": ("a = [iter([1, 2, 3, 4])]", "return x * next(a[0])", "0"),
    "a count": ("import itertools\na = itertools.count(1)", "return x * next(a)", "0"),
    "an object that counts": (
        "class O:\n n = 0\n def __next__(self):\n  self.n += 1\n"
        "  return self.n\na = O()", "return x * next(a)", "a.n"),
    "a queue": (
        "import queue\na = queue.Queue()\nfor i in range(9): a.put(i)",
        "return x * a.get()", "a.qsize()"),
    "a StringIO": (
        "import io\na = io.StringIO()", "a.write('a')\nreturn x", "a.getvalue()"),
    "reading a StringIO": (
        "import io\na = io.StringIO('123')", "return x * int(a.read(1))", "0"),
    "a random generator": (
        "import random\na = random.Random(0)", "return x * a.random()", "0"),
    "the system's generator": (
        "import random\na = random.SystemRandom()", "return x * a.random()", "0"),
    "NumPy's generator": (
        "import numpy as np\na = np.random.default_rng(0)", "return x * a.random()",
        "0"),
    "NumPy's old generator": (
        "import numpy as np\na = np.random.RandomState(0)", "return x * a.rand()", "0"),
    # outside
    "a global": ("n = 0\na = 0", "global n\nn += 1\nreturn x * n", "n"),
    "a global tensor": ("n = 0\na = 0", "global n\nn = x.sum()\nreturn x", "n"),
    "a global by its dictionary": (
        "n = 0\na = 0", "globals()['n'] = n + 1\nreturn x * n", "n"),
    "a global list": ("l = []\na = 0", "l.append(1)\nreturn x * len(l)", "l"),
    "a global list of tensors": ("l = []\na = 0", "l.append(x.sum())\nreturn x", "l"),
    "a global dict": ("d = {}\na = 0", "d['k'] = x.sum()\nreturn x", "d"),
    "a global set": ("s = set()\na = 0", "s.add(len(s))\nreturn x * len(s)", "s"),
    "a global counter": (
        "import collections\nd = collections.Counter()\na = 0",
        "d['k'] += 1\nreturn x * d['k']", "dict(d)"),
    "a global random": (
        "import random\nrandom.seed(0)\na = 0", "return x * random.random()", "0"),
    "an imported random": (
        "import random\nrandom.seed(0)\na = 0",
        "import random as r\nreturn x * r.random()", "0"),
    "a function from random": (
        "import random\nrandom.seed(0)\na = 0",
        "from random import random as r\nreturn x * r()", "0"),
    "random.shuffle": (
        "import random\nrandom.seed(0)\na = 0",
        "l = [1, 2, 3]\nrandom.shuffle(l)\nreturn x * l[0]", "0"),
    "a global NumPy random": (
        "import numpy as np\nnp.random.seed(0)\na = 0", "return x * np.random.rand()",
        "0"),
    "a generator in an attribute": (
        "import random, types\no = types.SimpleNamespace(r=random.Random(0))\n"
        "a = 0", "return x * o.r.random()", "0"),
    "a generator in a closure": (
        "import random\ndef make(r): return lambda: r.random()\n"
        "g = make(random.Random(0))\na = 0", "return x * g()", "0"),
    "weft's generator": (
        "weft.manual_seed(0)\na = 0", "return x * weft.rand(2)", "weft.rand(1)"),
    "weft's own generator": (
        "g = weft.Generator().manual_seed(0)\na = 0",
        "return x * weft.rand(2, generator=g)", "weft.rand(1, generator=g)"),
    "a function's attribute": (
        "a = 0", "f.n = getattr(f, 'n', 0) + 1\nreturn x * f.n", "f.n"),
    "a closure's variable": (
        "def make():\n n = 0\n def g(x):\n  nonlocal n\n  n += 1\n"
        "  return x * n\n return g, lambda: n\ng, get = make()\na = 0", "return g(x)",
        "get()"),
    "a default": (
        "def g(x, l=[]):\n l.append(1)\n return x * len(l)\na = 0", "return g(x)", "0"),
    "an iterator from outside": (
        "i = iter([1, 2, 3, 4])\na = 0", "return x * next(i)", "0"),
    "a generator that is resumed": (
        "def make():\n n = 0\n while True:\n  n += 1\n  yield n\ng = make()\n"
        "a = 0", "return x * next(g)", "0"),
    "the environment": (
        "import os\na = 0", "os.environ['WEFT_T'] = 'b'\nreturn x",
        "os.environ.pop('WEFT_T', None)"),
    "a tensor in place": ("s = weft.ones(2)\na = 0", "s.add_(1)\nreturn x * s", "s"),
    "a buffer": (
        "m = weft.nn.BatchNorm1d(2)\na = 0", "return m(x.expand(3, 2) + x)",
        "m.running_mean"),
    "a module's attribute": (
        "m = weft.nn.ReLU()\nm.n = 0\na = 0", "m.n += 1\nreturn m(x) * m.n", "m.n"),
    "an optimizer's step": (
        "w = weft.ones(2, requires_grad=True)\no = weft.optim.SGD([w], 0.1)\n"
        "a = 0",
        "o.zero_grad()\n(w * x).sum().backward()\no.step()\n"
        "return w.detach() * 1", "w"),
    # people
    "print": ("a = 0", "print('sum', x.sum(), [x])\nreturn x", "said()"),
    "print a text": ("a = 0", "print(f'{x.sum():.1f} {x!s}')\nreturn x", "said()"),
    "print to a file": (
        "import io\ns = io.StringIO()\na = 0", "print(x.sum(), file=s)\nreturn x",
        "s.getvalue()"),
    "print to a file that is read": (
        "import io\ns = io.StringIO()\na = 0",
        "print('a', file=s)\nreturn x * len(s.getvalue())", "s.getvalue()"),
    "print to a file that is made": (
        "import io\na = 0",
        "s = io.StringIO()\nprint('a', file=s)\nreturn x * len(s.getvalue())", "0"),
    "print inside redirect_stdout": (
        "import contextlib, io\ns = io.StringIO()\na = 0",
        "with contextlib.redirect_stdout(s):\n print('sum', x.sum())\nreturn x",
        "s.getvalue() + said()"),
    "print inside redirect_stdout and read it": (
        "import contextlib, io\na = 0",
        "with contextlib.redirect_stdout(io.StringIO()) as s:\n print('a')\n"
        "return x * len(s.getvalue())", "said()"),
    "print to another stdout": (
        "import sys, io\ns = io.StringIO()\na = 0",
        "old, sys.stdout = sys.stdout, s\nprint('a')\nsys.stdout = old\nreturn x",
        "s.getvalue() + said()"),
    "write to the stdout of each call": (
        "import contextlib, sys, io\na = 0\nold = []\ndef around(s):\n"
        " old.append(sys.stdout)\n sys.stdout = s\ns = io.StringIO()",
        "sys.stdout.write('a')\nreturn x",
        "around(s) or s.getvalue() + said()"),
    "write to a stream of before": (
        "import os\na = 0\nr, w = os.pipe()\ns = open(w, 'w', 1, closefd=False)",
        "s.write('a\\n')\nreturn x", "s.flush() or os.read(r, 100)"),
    "a warning that is caught": (
        "import warnings\na = 0",
        "with warnings.catch_warnings(record=True) as w:\n"
        " warnings.simplefilter('always')\n warnings.warn('a')\nreturn x * len(w)",
        "0"),
    "a warning that is an error": (
        "import warnings\na = 0",
        "try:\n with warnings.catch_warnings():\n  warnings.simplefilter('error')\n"
        "  warnings.warn('a')\nexcept UserWarning:\n return x * 5\nreturn x", "0"),
    "a warning that is ignored": (
        "import warnings\na = 0\nseen = []\ndef keep(m, *a): seen.append(str(m))\n"
        "warnings.showwarning = keep\nwarnings.simplefilter('always')",
        "with warnings.catch_warnings():\n warnings.simplefilter('ignore')\n"
        " warnings.warn('a')\nreturn x", "seen"),
    "a warning that is shown inside": (
        "import warnings\na = 0\nseen = []\ndef keep(m, *a): seen.append(str(m))\n"
        "warnings.showwarning = keep\nwarnings.simplefilter('ignore')",
        "with warnings.catch_warnings():\n warnings.simplefilter('always')\n"
        " warnings.warn('a')\nreturn x", "seen"),
    "a logger whose level changes": (
        "import logging, sys\nh = logging.StreamHandler(sys.stdout)\n"
        "l = logging.getLogger('weft-levels')\nl.handlers = [h]\n"
        "l.setLevel('INFO')\nl.propagate = False\na = 0\ndef next_level():\n"
        " l.setLevel('DEBUG' if l.level == 20 else 'ERROR')",
        "l.info('i')\nl.debug('d')\nreturn x", "next_level() or said()"),
    "write to stdout": (
        "import sys\na = 0", "sys.stdout.write(f'{x.sum()}')\nreturn x", "said()"),
    "a logger": (
        "import logging, sys\nh = logging.StreamHandler(sys.stdout)\n"
        "l = logging.getLogger('weft-state')\nl.handlers = [h]\n"
        "l.setLevel('INFO')\nl.propagate = False\na = 0",
        "l.info('sum %s', x.sum())\nreturn x", "said()"),
    "a warning": (
        "import warnings\na = 0\nseen = []\ndef keep(m, *a): seen.append(str(m))\n"
        "warnings.showwarning = keep\nwarnings.simplefilter('always')",
        "warnings.warn(f'sum {x.sum():.1f}')\nreturn x", "seen"),
    "a warning that is shown once": (
        "import warnings\na = 0\nseen = []\ndef keep(m, *a): seen.append(str(m))\n"
        "warnings.showwarning = keep\nwarnings.simplefilter('default')",
        "warnings.warn('once')\nreturn x", "seen"),
    "a thread": (
        "import threading\na = 0\nl = []",
        "t = threading.Thread(target=lambda: l.append(x * 2))\nt.start()\nt.join()\n"
        "return l.pop()", "0"),
    "a pool of threads": (
        "from concurrent.futures import ThreadPoolExecutor\na = 0",
        "with ThreadPoolExecutor(1) as p:\n return p.submit(lambda: x * 2).result()",
        "0"),
    "a pool from outside": (
        "from concurrent.futures import ThreadPoolExecutor\na = 0\nw = weft.ones(2)\n"
        "p = ThreadPoolExecutor(1)\np.submit(len, '').result()",
        "return x * p.submit(lambda: w * 2).result()", "0"),
    "open a file": (
        "import os\na = 0",
        "with open(os.devnull) as g: n = len(g.read())\nreturn x + n", "0"),
    "read a path": (
        "import pathlib, os\na = 0",
        "return x + len(pathlib.Path(os.devnull).read_text())", "0"),
}

QUESTION = "if x.sum() > 0: return x * 2\nreturn x * 3"
HANDLERS = {
    "except Exception": ("try:", "except Exception: return x * 100"),
    "except RuntimeError": ("try:", "except RuntimeError: return x * 100"),
    "except TypeError": ("try:", "except TypeError: return x * 100"),
    "except several": ("try:", "except (ValueError, TypeError): return x * 100"),
    "except BaseException": ("try:", "except BaseException: return x * 100"),
    "a bare except": ("try:", "except: return x * 100"),
    "except and go on": ("try:", "except Exception: pass\nreturn x * 100"),
    "except and raise another": (
        "try:", "except Exception as e: raise ValueError('mine') from e"),
    "finally with return": ("try:", "finally: return x * 100"),
    "suppress": ("with contextlib.suppress(Exception):", "return x * 100"),
    "suppress TypeError": ("with contextlib.suppress(TypeError):", "return x * 100"),
    "suppress BaseException": (
        "with contextlib.suppress(BaseException):", "return x * 100"),
    "a context that swallows": ("with Swallow():", "return x * 100"),
    "an exit stack": ("with stack():", "return x * 100"),
    "a loop that tries again": (
        "for _ in range(3):\n try:", " except Exception: continue\nreturn x * 100"),
}
# fmt: on
SETTLE = """
class Swallow:
    def __enter__(self): return self
    def __exit__(self, *error): return True
def stack():
    found = contextlib.ExitStack()
    found.push(lambda *error: True)
    return found
"""


def source(setup, body, arguments):
    """The text of a module with a function ``f``."""
    inner = textwrap.indent(body, "    ")
    return f"import weft, contextlib\n{setup}\ndef f({arguments}):\n{inner}\n"


class World:
    """A module made of some text, and what its function is called with."""

    def __init__(self, text, compiled):
        self.names = {"__name__": "state", "said": self.said}
        weft.manual_seed(0)
        self.output = []
        run(text, self.names, "<state>")
        self.fn = self.names["f"]
        if compiled:
            self.fn = self.names["f"] = weft.compile(self.fn)
        self.x = self.names["x"] = weft.tensor([1.0, 2.0])

    def said(self):
        return "".join(self.output)

    def do(self, text):
        run(text, self.names, "<change>")

    def see(self, text):
        """Run some lines; what the last one is."""
        *lines, last = text.split("\n")
        self.do("\n".join(lines))
        return shown(eval(last, self.names))


def run(text, names, file):
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    exec(compile(text, file, "exec"), names)


def shown(value):
    """A value as something that can be compared."""
    if isinstance(value, weft.Tensor):
        return "tensor", str(value.dtype), value.detach().tolist()
    if isinstance(value, dict):
        return "dict", [(k, shown(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [shown(v) for v in value]
    return repr(value)


def logged(trial):
    """What a trial saw, and whether it was refused."""
    log = []
    try:
        for seen in trial:
            log.append(seen)
    except CaptureError:
        return log, True
    except Exception as error:
        log.append(type(error).__name__)
    return log, False


def read(case, compiled):
    setup, expression, change = case
    world = World(source(setup, f"return {expression}", "x"), compiled)
    before = weft.get_default_dtype()
    try:
        yield shown(world.fn(world.x))
        yield shown(world.fn(world.x))
        world.do(change)
        yield shown(world.fn(world.x))
        yield shown(world.fn(world.x))
    finally:
        weft.set_default_dtype(before)


def write(case, compiled):
    import sys

    setup, body, look = case
    stream = Stream()
    with contextlib.redirect_stdout(stream), warnings.catch_warnings():
        world = World(source(f"x = weft.tensor([1.0, 2.0])\n{setup}", body, "x, a"),
                      compiled)  # fmt: skip
        stream.to = world.output
        assert sys.stdout is stream
        for k in range(3):
            yield shown(world.fn(world.x + k, world.names["a"]))
            yield world.see(look)


class Stream:
    """A place to write to."""

    to: list

    def write(self, text):
        self.to.append(text)
        return len(text)

    def flush(self):
        pass


def handle(case, compiled):
    before, after = case
    depth = " " * (len(before.splitlines()[-1]) - len(before.splitlines()[-1].lstrip()))
    body = f"{before}\n{textwrap.indent(QUESTION, depth + '  ')}\n{after}"
    world = World(source(SETTLE, body, "x"), compiled)
    yield shown(world.fn(world.x))


TRIALS = {
    **{f"read {name}": (read, case) for name, case in READS.items()},
    **{f"write {name}": (write, case) for name, case in WRITES.items()},
    **{f"handle {name}": (handle, case) for name, case in HANDLERS.items()},
}


def tried(name):
    """What became of a kind: a word, and what was seen eagerly and compiled."""
    way, case = TRIALS[name]
    eager, _ = logged(way(case, False))
    compiled, refused = logged(way(case, True))
    if refused and compiled == eager[: len(compiled)]:
        return "refused", (eager, compiled)
    return "noticed" if compiled == eager else "missed", (eager, compiled)


if __name__ == "__main__":
    tally = collections.Counter()
    for name in TRIALS:
        word, seen = tried(name)
        tally[word] += 1
        if word == "missed":
            print(name, *seen, sep="\n    ")
    print(len(TRIALS), dict(tally))
