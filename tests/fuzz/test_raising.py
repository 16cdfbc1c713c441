"""Operations on known values that raise: each does so as in Python, in the user's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from .running import Case, failure
from .tree import Line

RAISING = """\
del v[:1.5]
del v['a']
del v[10**30]
del v[::0]
v[:1.5]
v[::0]
v[10**30]
v[1.5:] = [1]
v[::0] = []
v[::2] = [1, 2, 3]
v[:2] = 3
v[10**30] = 1
v.insert(10**30, 1)
v.insert('a', 1)
v.pop(10**30)
v.pop('a')
v.index(9, 'a')
v.extend(3)
v * 10**30
'ab' * 10**30
(1, 2)[:1.5]
(1, 2)[::0]
'ab'[:1.5]
'ab'[::0]
'ab'['a']
(3)[1:2]
(3)[1]
None[1:]
range(3)[:1.5]
range(3)[::0]
range(3)[7]
range(1.5)
range(0, 1, 0)
{1: 2}[1:2]
{1: 2}[[]]
{}['k']
{[]: 1}
{[1]}
set([[]])
dict([1])
frozenset([[]])
sorted([1, 'a'])
max([])
min(1)
sum(['a'])
','.join([1])
'{}{}'.format(1)
'{k}'.format(1)
'%d' % 'a'
'%d %d' % (1,)
zip(1)
enumerate(1)
int('x')
float('x')
chr(-1)
ord('ab')
divmod(1, 0)
pow(0, -1)
pow(2, 3, 0)
round('a')
abs('a')
len(3)
list(3)
tuple(3)
iter(3)
reversed(3)
next(iter([]))
next(3)
1 << -1
1 >> -1
1 // 0
1 % 0
1.5 // 0
2.0 ** 10000
0.0 ** -1
int(float('inf'))
int(float('nan'))
bytes(-1)
'a'.encode('xx')
isinstance(1, 1)
issubclass(1, int)
getattr(st, 'zz')
getattr(st, 1)
setattr(st, 1, 2)
math.sqrt(-1)
math.factorial(-1)
math.log(0)
math.exp(10000)
'ab'.split('')
'ab'.index('z')
'a'.zfill('b')
format(1, 'zz')
f"{1:zz}"
f"{'a':d}"
(1).bit_length(2)
[].remove(1)
{}.popitem()
set().pop()
hash([])
functools.reduce(max, [])
Color('zz')
Color['ZZ']
Point(1, 2, 3)
Pair(1)
-'a'
~1.5
'a' + 1
1 + 'a'
1 < 'a'
1 in 2
1 in 'a'
*v, = 3
p, q = [1]
p, q = 3
p, *q, s = [1]
dict(**{1: 2})
helper(**{1: 2})
variadic(1, **{'k': 1}, k=2)
variadic(1, k=2, **{'k': 1})
variadic(1, **{**{n: 2}})
'%s' % ()
'%q' % 3
'%(k)s' % 3
'%(k)s' % {}
[*3]
{**3}
print(*3)
(lambda x: x)()
(lambda x: x)(1, 2)
(lambda x: x)(y=1)
v.sort(key=3)
zip([1], [1, 2], strict=True).__next__(3)
'{!z}'.format(1)
'{'.format(1)
list(map(1, v))""".split("\n")


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("first", range(0, len(RAISING), 19))
@pytest.mark.parametrize("caught", [True, False], ids=["caught", "leaves"])
def test_raising(caught: bool, first: int, tmp_path: Path) -> None:
    path = tmp_path / "tests" / "programs" / "raising.py"
    statements = RAISING[first : first + 19]
    if caught:
        lines = ["v = [1, 2, 3]"]
        for statement in statements:
            lines += ["try:", f"    {statement}", "    print('none')"]
            lines += ["except Exception as error:", "    print(repr(error))"]
        programs = [lines]
    else:
        programs = [["v = [1, 2, 3]", s, "print(v)"] for s in statements]
    for lines in programs:
        case = Case(tuple(map(Line, lines)), 0, "plain", numbers="known")
        assert not failure(case, path), lines
