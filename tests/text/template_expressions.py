"""Expressions for every operator, filter, test and method, one per line, over template_cases.VARIABLES."""

EXPRESSIONS = r"""
1 + 2 * 3
(1 + 2) * 3
7 / 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
-7.5 // 2
-7.5 % 2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
2.0 ** 0.5
1 / 0
1 // 0
1 % 0
1.0 / 0
0 ** -1
10 - 2 - 3
1 - -1
+n
-n
- t
not n
not not n
1_000 + 0x1f + 0b11 + 0o17
1.5e3
1e5
1e16
1e-5
0.0001
123456789.123
1.0
100000000000000000.0
f
tiny
huge
third + 0.2
big * 1000
9223372036854775807 + 0
t + t
t * 3
1 == 1.0
1 == true
'1' == 1
nil == none
n < 8 < 9
n < 8 > 9
1 < 2 == true
'a' < 'b'
'a' < 1
[1, 2] < [1, 3]
(1, 2) == (1, 2)
(1, 2) == [1, 2]
[1, [2]] == [1, [2]]
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
l == [3, 1, 2]
nil < 1
1 in l
5 not in l
'ell' in s
1 in s
'a' in d
'z' not in d
1 in nil
1 in missing
missing in l
missing == missing
missing == nil
missing is defined
missing.foo
missing['foo']
missing + 1
1 + missing
missing ~ 'x'
missing < 1
-missing
missing()
missing[1:2]
missing|length
missing|upper
missing|join
missing|list
missing|tojson
missing|int
missing|default('x')
missing|first
missing|last
missing|items|list
missing|string
missing|trim
missing|sort
missing|reverse
nested.x.y
nested.x.y[0]
nested.x.y[1].z
nested['x']['y'][1]['z']
nested.x.q
nested.x.q.r
nested.x.y[5]
nested.x.y[-1]
nil.foo
n.foo
s.foo
l.foo
l[0]
l[-1]
l[3]
l[true]
l['0']
l[1.0]
l.0
s[0]
s[-1]
s[99]
u[3]
u[-1]
u[7:9]
u[::-1]
s[1:4]
s[:4]
s[4:]
s[::2]
s[::-1]
s[-3:]
s[:-3]
s[10:2]
s[5:1:-1]
s[::0]
l[1:]
l[::-1]
l[:]
l[5:]
l[-100:100]
(1, 2, 3)[1:]
range(10)[2:8:2]|list
d[1:2]
nil[1:]
n[1:]
d.a
d['a']
d.items
items_key.items
items_key['items']
items_key.get
items_key['get']
items_key.pop
items_key['pop']
items_key.keys()|list
d.items()|list
d.keys()|list
d.values()|list
d.items()
d.keys()
d.values()
d.get('a')
d.get('z')
d.get('z', 9)
d.get()
d.update({'q': 1})
d.pop('a')
d.clear()
d.setdefault('a', 1)
l.append(1)
l.append
l.append is defined
l.insert(0, 1)
l.extend([1])
l.sort()
l.reverse()
l.remove(1)
l.index(1)
l.index(99)
l.count(1)
(1, 1, 2).count(1)
d.copy()
s.upper()
s.lower()
u.upper()
u.lower()
u.title()
u.capitalize()
s.title()
s.capitalize()
s.swapcase()
"they're bill's".title()
s.split()
s.split(', ')
s.split(',', 1)
'a,b,,c,'.split(',')
'a,b,c'.split(',', 1)
'a,b,c'.rsplit(',', 1)
'  a  b  c  '.split()
'  a  b  c  '.split(none, 1)
'  a  b  c  '.rsplit(none, 1)
'  a  b  '.rsplit()
''.split()
''.split(',')
'abc'.split('')
'aXXbXXc'.split('XX')
'aXXbXXc'.rsplit('XX', 1)
u.split('ß')
ws.strip()
ws.lstrip()
ws.rstrip()
'xxaxx'.strip('x')
'xyaxy'.lstrip('yx')
'xyaxy'.rstrip('yx')
'ééaéé'.strip('é')
s.startswith('Hell')
s.startswith(('x', 'H'))
s.startswith('World', 7)
s.endswith('ld')
s.endswith(('x', 'd'))
s.startswith(1)
s.replace('l', 'L')
s.replace('l', 'L', 1)
'aaa'.replace('', '-')
'aaa'.replace('', '-', 2)
s.replace('zz', '')
s.find('o')
s.rfind('o')
s.find('o', 5)
s.find('z')
u.find('日')
s.index('o')
s.index('z')
s.count('l')
'aaa'.count('aa')
'abc'.count('')
'-'.join(['a', 'b'])
'-'.join([1])
'-'.join('abc')
'12'.isdigit()
'a1'.isdigit()
''.isdigit()
'²'.isdigit()
'²'.isdecimal()
'abc'.isalpha()
'日本'.isalpha()
'a b'.isalpha()
'a1'.isalnum()
' \t'.isspace()
''.isspace()
'AB1'.isupper()
'aB'.islower()
lines.splitlines()
lines.splitlines(true)
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'x'.removesuffix('')
'7'.zfill(3)
'-7'.zfill(4)
'ab'.center(7)
'ab'.center(7, '*')
'abc'.center(8, '*')
'ab'.ljust(5, '.')
'ab'.rjust(5)
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('-')
'abc'.rpartition('-')
'{} {}'.format(1, 'x')
'{0} {1} {0}'.format(1, 2)
'{a}-{b}'.format(a=1, b=none)
'{} {0}'.format(1)
'{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c')
'{:05d} {:+d} {:x} {:,}'.format(42, 42, 255, 1234567)
'{:.2f} {:8.3f} {:e}'.format(3.14159, 2.5, 12345.678)
'{:.3}'.format('abcdef')
'{!r}'.format('a')
'{{}}'.format()
'{'.format()
'{x[a]} {x.a}'.format(x={'a': 1})
'{}'.format()
'%s and %s' % ('a', 1)
'%d%%' % 5
'%5.2f|%-5s|%05d' % (3.14159, 'ab', 42)
'%(a)s' % {'a': 1}
'%s' % [1, 2]
'%s %s' % 'x'
'%s' % ('a', 'b')
'%d' % 'x'
'%x %X %o' % (255, 255, 8)
'%r' % 'it'
'%e' % 12345.678
'%g %g' % (0.0001, 1e10)
'x' % 1
'x' % []
'a' * 3
3 * 'ab'
'a' * -1
[1] * 3
(1,) * 2
[1] + [2]
(1,) + (2,)
[1] + (2,)
'a' + 'b'
'a' + 1
1 + 'a'
'a' ~ 1 ~ none ~ true ~ 2.0 ~ [1]
'a' 'b' "c"
'\n\t\\\'\"\x41\u00e9\101\q'
"it's"
[1, 'a', none, true, 1.5, (1,), {'k': 'v'}, "it's", 'q"']
(1,)
()
[]
{}
{'a': 1, 'b': [1, 2]}
{1: 'a', none: 'b', true: 'c'}
{[1]: 2}
mixed
quotes
[quotes]
[u]
d
range(5)
range(5)|list
range(2, 5)|list
range(5, 0, -2)|list
range(0)|list
range(1, 2, 0)
range()
range('a')
range(3) == range(3)
range(2, 8, 3)
dict(a=1, b=2)
dict({'a': 1}, b=2)
dict([('a', 1), ('b', 2)])
dict(1)
namespace(a=1).a
namespace(a=1).b
namespace({'x': 2}).x
1 if t else 2
1 if no else 2
1 if no
(1 if no)|default('d')
1 if t else 2 if no else 3
(1 if no else 2) if no else 3
t and n
no and n
no or n
nil or empty or 'x'
t and no or n
not t and no
n is defined
n is odd
n is even
n is divisibleby 7
n is divisibleby(2)
n is number
t is number
t is integer
t is boolean
n is integer
f is float
s is string
l is string
d is mapping
l is mapping
l is sequence
s is sequence
d is sequence
n is sequence
d.items() is sequence
l is iterable
n is iterable
nil is none
nil is not none
n is none
t is true
1 is true
no is false
0 is false
n is sameas n
nil is sameas none
n is eq 7
n is equalto 7
n is == 7
n is ne 7
n is lt 8
n is gt 8
n is le 7
n is ge 7
n is greaterthan 3
n is lessthan 3
n is in [7]
n is in(l)
n is not in l
'abc' is lower
'ABC' is upper
'aBC' is upper
'123' is lower
s.upper is callable
n is callable
range is callable
n is nosuch
'upper' is filter
'nope' is filter
'defined' is test
n is defined is true
s|upper
s|lower
u|upper
u|lower
u|title
u|capitalize
s|title
"foo-bar (baz) [qux] {x} <y>"|title
n|upper
nil|upper
s|length
u|length
l|length
d|length
d|count
n|length
nil|length
empty|length
ws|trim
'xxaxx'|trim('x')
n|trim
n|string
nil|string
l|string
f|string
nil|default('x')
nil|default('x', true)
empty|default('x', true)
empty|d('x')
0|d('x', boolean=true)
l|join
l|join(', ')
ls|join('-')
users|join(', ', attribute='name')
users|join(', ', 'age')
s|join('.')
mixed|join('|')
nil|join
d|join(',')
d|items|list
n|items
l|items
d|dictsort
d|dictsort(true)
d|dictsort(by='value')
d|dictsort(reverse=true)
d|dictsort(false, 'value', true)
d|dictsort(by='foo')
l|dictsort
s|list
d|list
n|list
l|sort
l|sort(reverse=true)
ls|sort
ls|sort(case_sensitive=true)
ls|sort(true, true)
users|sort(attribute='age')|map(attribute='name')|list
users|sort(attribute='age,name')|map(attribute='name')|list
users|sort(attribute='name', reverse=true)|map(attribute='name')|list
mixed|sort
ls|unique|list
ls|unique(true)|list
users|unique(attribute='age')|map(attribute='name')|list
l|first
le|first
le|first|default('none')
s|first
d|first
l|last
le|last
s|last
d|last
l|sum
users|sum('age')
users|sum(attribute='age')
l|sum(start=10)
ls|sum
l|min
l|max
ls|min
ls|max
ls|max(case_sensitive=true)
users|max(attribute='age')
le|min
le|max|default('none')
l|reverse|list
s|reverse
d|reverse|list
n|reverse
l|batch(2)|list
l|batch(2, 'x')|list
l|slice(2)|list
l|slice(2, 'x')|list
users|groupby('age')
users|groupby('age')|map(attribute='grouper')|list
users|groupby('age')|map(attribute='list')|map('length')|list
users|groupby('nosuch', default=1)|length
ls|groupby(0)
l|map('string')|list
ls|map('upper')|list
users|map(attribute='name')|list
users|map(attribute='tags')|list
users|map(attribute='tags', default='-')|list
users|map(attribute='tags.0')|list
users|map(attribute='nosuch.x', default='-')|list
l|map|list
l|map('nosuch')|list
l|map('add')|list
nil|map('upper')|list
l|map('round', 1)|list
ls|map('replace', 'a', 'X')|list
l|select('odd')|list
l|select|list
l|reject('odd')|list
mixed|select('string')|list
mixed|reject('none')|list
l|select('gt', 1)|list
l|select('>', 1)|list
users|selectattr('tags')|map(attribute='name')|list
users|selectattr('age', 'eq', 30)|map(attribute='name')|list
users|selectattr('age', '==', 30)|list|length
users|rejectattr('tags')|map(attribute='name')|list
users|rejectattr('age', 'gt', 26)|map(attribute='name')|list
users|selectattr('tags', 'defined')|list|length
users|selectattr('name', 'in', ['Ann', 'bob'])|list|length
users|selectattr|list
l|select('nosuch')|list
nil|select|list
l|select('odd')|length
'a\nb\n\nc'|indent
'a\nb'|indent(2)
'a\nb'|indent(2, true)
'a\n\nb'|indent(2, false, true)
'a\nb\n'|indent(2)
'a\nb'|indent('>>')
''|indent
n|indent
'42'|int
num_s|int
flt_s|int
flt_s|float
'abc'|int
'abc'|int(7)
'abc'|float
'abc'|float(1.5)
'0x1f'|int(0, 16)
'ff'|int(base=16)
'1_000'|int
3.99|int
-3.99|int
t|int
nil|int
l|int
'inf'|float
'nan'|int
''|int
'1e3'|float
-5|abs
-5.5|abs
's'|abs
2.567|round
2.567|round(2)
2.5|round
3.5|round
0.5|round
2.675|round(2)
5|round
1234|round(-2)
2.1|round(method='ceil')
2.9|round(method='floor')
2.123|round(2, 'ceil')
2.5|round(0, 'x')
's'|round
s|replace('l', 'L')
s|replace('l', 'L', 1)
s|replace(1, 2)
n|replace(7, 8)
s|replace('l')
html|e
html|escape
html|e|e
n|e
s|safe
n|safe
'%s-%s'|format(1, 2)
'%(a)s'|format(a=1)
'%s'|format
s|truncate(5)
s|truncate(5, true)
'a long text with words in it'|truncate(15)
'a long text with words in it'|truncate(15, true)
'a long text with words in it'|truncate(15, false, '!')
'a long text with words in it'|truncate(15, leeway=0)
'hello world foo_bar 12'|wordcount
'a b&c/d?é'|urlencode
'ab'|center(6)
d|tojson
mixed|tojson
u|tojson
quotes|tojson
d|tojson(indent=2)
nested|tojson(indent=4)
mixed|tojson(indent=2)
le|tojson(indent=2)
[[], {}, [1]]|tojson(indent=1)
d|tojson(sort_keys=true)
d|tojson(separators=(',', ':'))
d|tojson(indent=2, separators=(' ,', ' : '))
u|tojson(ensure_ascii=true)
u|tojson(true)
d|tojson(indent='--')
'<>&\''|tojson
f|tojson
1e16|tojson
1e-7|tojson
nil|tojson
t|tojson
(1, 2)|tojson
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
range(3)|tojson
l|map('string')|tojson
d.items()|tojson
tojson
s|attr('upper')
d|attr('a')
d|attr('items')
s|nosuch
s|upper|lower|title
s|upper()
s|replace('l', 'x')|upper
n|string + 'x'
'x' + n|string
-1|abs
(-1)|abs
1 + 2|string
l|join(',')|upper
s is string and n is number
s is string or nosuch.foo
'a' if s is string else 'b'
'a' if missing is undefined else 'b'
l|length > 2
l|length is odd
[1, 2, 3,]
{'a': 1,}
(1, 2,)
s.replace(old='l', new='x')
raise_exception('no')
raise_exception()
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y')
strftime_now('%B %-d, %Y at %H:%M:%S %p %I %y %j %A %a %e')
'a'.upper
s.upper()[0]
s.split(',')[0].upper()[:3]
[x for x in l]
lambda: 1
n = 1
n +
(n
n)
[1, 2
{'a' 1}
'unclosed
n..x
n.1.2
1.5.x
s.__class__
''.__class__.__mro__
l.__len__()
d._x
0.1 + 0.2
1e308 * 10
-1e308 * 10
5 // 0.0
2 ** 62
-(2 ** 62)
7.0 // 2
1 // 3.0
n / 7
n * f
1 <= 1 <= 1
'%.3s' % 'abcdef'
'%c' % 65
'%i' % 3.7
'%5d|%-5d|%+d|% d' % (42, 42, 42, 42)
'%s' % none
'%s' % d
'%*d' % (5, 42)
'%%'
'%' % 1
"{:d}".format(true)
"{}".format(true)
"{:s}".format(1)
"{:>8.2f}|".format(2.5)
"{:*^9}|".format('mid')
"{0:<4}{1:>4}".format('a', 'b')
"{:%}".format(0.25)
"{:g}".format(0.00001)
"{:.0f}".format(2.5)
"{:10}|".format(5)
"{:10}|".format('x')
"{:#x}".format(255)
"{:b}".format(5)
'ǆ'.title()
'ǆ'.upper()
'ΑΣ'.lower()
'ΑΣΑ'.lower()
'Σ'.lower()
'straße'.upper()
'ŉ'.upper()
'ﬃ'.title()
'\u0130'.lower()
'a\u00a0b'.split()
'a\x1cb'.splitlines()
'a\x1cb'.split()
'\x7f\x80\xad\u2028'|list
['\x7f\x80\xad\u2028\U0001F600']
"\u0041\U00000042"
'\ud800'
'\xg'
""".strip("\n").split("\n")
