"""Renders small templates with jinja2 as transformers sets it up, for jinja_golden_test.cpp.

    .venv/bin/python tests/text/make_jinja_goldens.py

writes tests/text/jinja_golden.jsonl: a line a template with its variables, and the text or that it fails.
tests/parity/jinja_parity.py renders the same cases live.
"""

import datetime
import functools
import json
import pathlib

from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 12)


chat_template_utils.datetime = FixedDate

VARIABLES = {
    "messages": [
        {"role": "user", "content": "Hi <b> \"you\" 'there'\n"},
        {"role": "assistant", "content": "  caf\u00e9 \u6771\u4eac \U0001f642  ", "n": 3},
        {"role": "user", "content": "", "tags": ["b", "A", "c", "a"]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"x": {"type": "int", "max": 1.5, "ok": True, "no": None}, "e": {}, "l": []}}}],
    "bos_token": "<s>",
    "s": "Hello, World",
    "h": "Hi <b> & \"you\" 'there'\n",
    "t": "a-b-c",
    "u": "\u00e9\u00df\u03a3\u01c6 \u03a3\u0391\u03a3",
    "n": 7,
    "m": -7,
    "f": 2.5,
    "l": [3, 1, 2],
    "d": {"b": 1, "a": 2, "C": 3},
    "z": None,
    "y": True,
    "e": [],
    "w": " x y  z ",
    "items_": [{"k": 1, "v": "x"}, {"k": 2, "v": "y"}, {"k": 1, "v": "z"}],
}

EXPRESSIONS = r"""
1 + 2 * 3|2 - 3 - 4|7 / 2|7 // 2|-7 // 2|7 % 3|-7 % 3|7 % -3|m // 2|m % 4|2 ** 3|2 ** 3 ** 2|2 ** -1|-2 ** 2|-n|+n|- -n
1.5 + 1|1.0|1e3|1e16|1e15|1.5e-7|0.0001|0.00001|123456789.123|1e22|7.0 // 2|-7.5 // 2|7.5 % 2|-7.5 % 2|1 / 3|2.0 ** 0.5|100000000000000000.0|10 / 5|True + 1|true|none|True == 1
1 == 1.0|'a' == 'a'|'a' < 'b'|1 < 2 < 3|3 > 2 > 2|[1, 2] == [1, 2]|[1] < [1, 2]|(1, 2) == [1, 2]|{'a': 1} == {'a': 1.0}|none == false|none is none|1 != 2|not 1|not ''|1 in l|9 in l|9 not in l|'ell' in s|'b' in d|'x' in d|1 in {1: 2}
y and n|e and n|e or n|0 or none|n if y else 1|n if e else 1|n if e|'a' if y|1 if y else 2 if e else 3|(1 if e else 2) + 1
1 ~ 2|'a' ~ none ~ 1.5 ~ [1]|'a' 'b'|s ~ nothing ~ 1|'a' + 'b'|[1] + [2]|(1,) + (2,)|'ab' * 3|3 * 'ab'|[0] * 3|(1, 2)|(1,)|()|[1, 'a', none, true, 1.5]|{'a': [1, {'b': ()}]}|{1: 2, 'a': none}|{'a': 1, 'a': 2}
s[0]|s[-1]|s[1:4]|s[:-1]|s[::-1]|s[::2]|s[5:2]|s[100:]|s[-100:3]|s[10:2:-3]|l[0]|l[-1]|l[1:]|l[::-1]|l[5]|u[1:3]|u[-3:]|d['b']|d.b|d['nothing']|d.nothing|d['items']()|messages[0]['role']|messages[-1].role|messages[0].content.0|l.0|(1, 2)[1]|z.x|nothing|nothing.x|nothing['x']|nothing + 1|n.x|messages[1].n + 1|messages[9].role|'x'['y']|s['upper']()|l[none:2]|l['a']|l[true]|s[1.5]
messages|tools|messages[0]|d|d.items()|d.keys()|d.values()|d.items()|d.get('b')|d.get('q')|d.get('q', 5)|d.get('b', 5)|d.copy()
'it\'s'|"it's"|'say "x"'|['it\'s', "\"", "'\""]|['a\n\t\\b', '\x00\x7f\x85\xa0', 'é東🙂', '\u200b', '\ue000']|'\x41\u00e9\U0001f642\101\q\n'
s.upper()|s.lower()|u.upper()|u.lower()|u.title()|s.title()|s.capitalize()|u.capitalize()|s.swapcase()|'ΑΣ ΑΣ.'.lower()|w.strip()|w.lstrip()|w.rstrip()|'xxaxx'.strip('x')|'abcba'.lstrip('ab')|'abcba'.rstrip('ab')|s.strip('Hd')|'\u3000a\u00a0'.strip()
w.split()|w.split(' ')|t.split('-')|t.split('-', 1)|t.rsplit('-', 1)|t.split(sep='-', maxsplit=1)|w.split(none, 1)|w.rsplit(none, 1)|' a b '.rsplit(None, 0)|' a b '.split(none, 0)|''.split()|''.split(',')|'a,,b'.split(',')|'a\nb\r\nc\n'.splitlines()|'a\nb'.splitlines(true)|t.split('')|t.partition('-')|t.rpartition('-')|t.partition('+')|t.rpartition('+')
s.startswith('Hell')|s.endswith('ld')|s.startswith(('x', 'H'))|s.endswith(('x', 'y'))|s.find('o')|s.rfind('o')|s.find('q')|s.index('o')|s.index('q')|s.count('l')|s.count('')|u.find('Σ')|'-'.join(['a', 'b'])|'-'.join([1])|', '.join(t.split('-'))|s.replace('l', 'L')|s.replace('l', 'L', 1)|s.replace('', '-')|s.replace('', '-', 2)|s.replace('l', '')|t.removeprefix('a-')|t.removesuffix('-c')|'7'.zfill(3)|'-7'.zfill(4)|'a'.ljust(3)|'a'.rjust(3, '.')|'ab'.center(5)|'a'.center(4)|'abc'.center(2)
'12'.isdigit()|'1a'.isdigit()|''.isdigit()|'ab'.isalpha()|'a1'.isalnum()|' '.isspace()|'AB'.isupper()|'ab'.islower()|'A1'.isupper()|'1'.isupper()|'²'.isdigit()|'²'.isdecimal()|'½'.isnumeric()|'{} and {}'.format(1, 'b')|'{0}{1}{0}'.format('a', none)|'{x}'.format(x=3)|'{{}}'.format()|'%s-%s' % ('a', 1)|'%d%%' % 5|'%s' % 'x'|'%r' % 'x'
l.index(1)|l.count(3)|l.index(9)|(1, 2).index(2)|l.append(4)|d.update({})|d.pop('b')|l.copy()|s.__class__|''.__class__.__mro__|d.__len__|l.sort()|d.clear
w (pipe) trim|s (pipe) upper|s (pipe) lower|s (pipe) title|'a-b (c' (pipe) title|u (pipe) title|s (pipe) capitalize|s (pipe) length|l (pipe) length|d (pipe) length|nothing (pipe) length|n (pipe) length|u (pipe) count|s (pipe) replace('l', 'L')|s (pipe) replace('l', 'L', 1)|n (pipe) replace(7, 8)|w (pipe) trim(' x')|5 (pipe) trim|none (pipe) upper
nothing (pipe) default('x')|nothing (pipe) default|none (pipe) default('x')|none (pipe) default('x', true)|'' (pipe) d('x', boolean=true)|'' (pipe) default('x')|nothing (pipe) default(5) + 1
l (pipe) join|l (pipe) join(', ')|messages (pipe) join('/', attribute='role')|messages (pipe) map(attribute='role') (pipe) join(',')|messages (pipe) map(attribute='n', default='-') (pipe) join(',')|messages (pipe) map(attribute='n') (pipe) list|t (pipe) join('.')|d (pipe) join|l (pipe) map('string') (pipe) list|['a', 'b'] (pipe) map('upper') (pipe) join|[' a '] (pipe) map('trim') (pipe) list|l (pipe) map('nothing') (pipe) list|messages (pipe) map(attribute='content.0') (pipe) list|[[1, 2]] (pipe) map('join', '-') (pipe) list|['ab'] (pipe) map('replace', 'a', 'x') (pipe) list
l (pipe) first|l (pipe) last|e (pipe) first|s (pipe) first|s (pipe) last|l (pipe) list|s (pipe) list|d (pipe) list|(1, 2) (pipe) list|nothing (pipe) list|n (pipe) list|l (pipe) sort|l (pipe) sort(reverse=true)|['b', 'A', 'a', 'B'] (pipe) sort|['b', 'A', 'a', 'B'] (pipe) sort(case_sensitive=true)|items_ (pipe) sort(attribute='k') (pipe) map(attribute='v') (pipe) join|items_ (pipe) sort(attribute='k,v', reverse=true) (pipe) map(attribute='v') (pipe) join|[1, 'a'] (pipe) sort|d (pipe) dictsort|d (pipe) dictsort(true)|d (pipe) dictsort(by='value', reverse=true)|['a', 'A', 'b', 'a'] (pipe) unique (pipe) list|items_ (pipe) unique(attribute='k') (pipe) map(attribute='v') (pipe) join|l (pipe) reverse (pipe) list|s (pipe) reverse|l (pipe) min|l (pipe) max|e (pipe) max|['b', 'A'] (pipe) min|l (pipe) sum|items_ (pipe) sum(attribute='k')|l (pipe) sum(start=10)|[1.5, 1] (pipe) sum
l (pipe) select('odd') (pipe) list|l (pipe) reject('odd') (pipe) list|l (pipe) select('>', 1) (pipe) list|l (pipe) select('in', [1, 2]) (pipe) list|[0, 1, '', 'a'] (pipe) select (pipe) list|[0, 1] (pipe) reject (pipe) list|messages (pipe) selectattr('role', 'equalto', 'user') (pipe) list (pipe) length|messages (pipe) selectattr('n') (pipe) map(attribute='n') (pipe) list|messages (pipe) rejectattr('role', '==', 'user') (pipe) map(attribute='role') (pipe) list|messages (pipe) selectattr('n', 'defined') (pipe) list (pipe) length|items_ (pipe) selectattr('k', 'lt', 2) (pipe) map(attribute='v') (pipe) join
d (pipe) items (pipe) list|nothing (pipe) items (pipe) list|l (pipe) items (pipe) list|d (pipe) tojson|tools (pipe) tojson|tools (pipe) tojson(indent=2)|tools (pipe) tojson(indent=2, separators=(',', ':'))|messages (pipe) tojson|messages (pipe) tojson(ensure_ascii=true)|d (pipe) tojson(sort_keys=true)|s (pipe) tojson|'<a> & \'b\' "c" \n\x01\x7f' (pipe) tojson|'🙂é' (pipe) tojson(ensure_ascii=true)|1.0 (pipe) tojson|1e16 (pipe) tojson|none (pipe) tojson|[] (pipe) tojson|[[], {}] (pipe) tojson(indent=4)|(1, 2) (pipe) tojson|nothing (pipe) tojson|{1: 2, none: 3} (pipe) tojson|{true: 1} (pipe) tojson|'a' (pipe) tojson(indent='\t')|[1, [2]] (pipe) tojson(indent=0)
'a\nb\n\nc' (pipe) indent|'a\nb\n\nc' (pipe) indent(2)|'a\nb\n\nc' (pipe) indent(2, true)|'a\nb\n\nc' (pipe) indent(2, blank=true)|'a\nb' (pipe) indent('> ')|'a\nb\n' (pipe) indent(1)|'' (pipe) indent(first=true)
'42' (pipe) int|' 4_2 ' (pipe) int|'42.9' (pipe) int|'x' (pipe) int|'x' (pipe) int(5)|4.9 (pipe) int|-4.9 (pipe) int|true (pipe) int|none (pipe) int|'ff' (pipe) int(0, 16)|'1.5' (pipe) float|'x' (pipe) float|3 (pipe) float|'1e3' (pipe) float|n (pipe) string|f (pipe) string + 'x'|m (pipe) abs|-2.5 (pipe) abs|2.5 (pipe) round|3.5 (pipe) round|2.675 (pipe) round(2)|7 (pipe) round|2.1 (pipe) round(0, 'ceil')|2.19 (pipe) round(1, 'floor')|-1 (pipe) abs
nothing is defined|s is defined|d.q is defined|d.b is defined|nothing is undefined|none is none|s is string|n is string|n is number|f is number|y is number|n is integer|y is integer|f is float|d is mapping|l is mapping|l is sequence|s is sequence|d is sequence|n is sequence|l is iterable|n is iterable|nothing is iterable|nothing is sequence|y is boolean|n is boolean|y is true|n is true|y is false|n is odd|n is even|n is divisibleby 7|n is divisibleby(2)|s is lower|'ab' is lower|'AB' is upper|1 is in l|9 is not in l|n is eq 7|n is equalto 8|n is gt 3|n is not none|n is sameas 7|none is sameas none|s is callable|range is callable|'upper' is filter|'odd' is test|n is ne 7|n is lt 10 and y|not n is odd|s is nothing|l is not mapping|(d | tojson) is string|messages[0].content is not string
range(3) (pipe) list|range(1, 4) (pipe) list|range(5, 0, -2) (pipe) list|range(3)[1]|range(0) (pipe) list|dict(a=1)|dict({'a': 1}, b=2)|dict([['a', 1]])|namespace(a=1).a|namespace().b|namespace({'a': 2}).a|raise_exception('no')|strftime_now('%d %b %Y')|strftime_now('%Y-%m-%d %H:%M:%S %A %j')|strftime_now('%-d %B')|strftime_now('[%Z%z%f%%z]')|d (pipe) tojson (pipe) safe|s (pipe) safe|5 (pipe) safe|nothing (pipe) safe|'<b>' (pipe) safe (pipe) length|nothing()|s()|range('a')|range(1, 2, 0)|loop|1 / 0|1 // 0|1 % 0|'a' + 1|1 + none|none + 'a'|l + (1,)|'a' < 1|none < 1|-'a'|[1][l]|{[1]: 2}|1 in 2|1 in 'a'|n.upper()|s.nothing|s.nothing()|l (pipe) nothing_filter|9223372036854775807 + 0|l | length > 2|l | first + 1|-1 | abs|s | upper ~ 'x'|1 + 2 ~ 3|1 ~ 2 * 3|2 * 3 ~ 4|not n == 7|n == 7 and not e|(n, m) | list|[n, m,]|{'a': 1,}|n if n > 3 and m < 0 else 0
'<b>' (pipe) safe + h + '&'|h + ('<b>' (pipe) safe)|[h (pipe) safe]|{h (pipe) safe: 1}[h]|(h (pipe) safe) ~ '<' + '<'|(h (pipe) safe) * 2 + '<'|2 * (h (pipe) safe) + '<'|('%s %r %s %d' (pipe) safe) % (h, '<', '<' (pipe) safe, 3)|('%s' (pipe) safe) % [1, 'a']|'%s' % (h (pipe) safe) + '<'|('<' (pipe) safe).join([h, 'a' (pipe) safe])|'-'.join([h (pipe) safe]) + '<'|[h (pipe) safe, '<'] (pipe) join('<' (pipe) safe) + '<'|('{}{x}' (pipe) safe).format(h, x='<' (pipe) safe)|'{}'.format(h (pipe) safe) + '<'
(h (pipe) safe) (pipe) upper + '<'|(h (pipe) safe) (pipe) capitalize + '<'|(h (pipe) safe) (pipe) title + '<'|(h (pipe) safe) (pipe) trim + '<'|(h (pipe) safe) (pipe) indent + '<'|(h (pipe) safe) (pipe) string + '<'|(h (pipe) safe) (pipe) default('x') + '<'|(h (pipe) safe) (pipe) first + '<'|(h (pipe) safe) (pipe) last + '<'|(h (pipe) safe) (pipe) reverse + '<'|(h (pipe) safe) (pipe) replace('b', '<') + '<'|(h (pipe) safe) (pipe) list (pipe) last + '<'|(h (pipe) safe) (pipe) tojson + '<'|[h (pipe) safe] (pipe) map('upper') (pipe) first + '<'|5 (pipe) safe + '<'|l (pipe) safe + '<'|nothing (pipe) safe + '<'|h (pipe) safe is escaped|h is escaped
(h (pipe) safe)[1:] + '<'|(h (pipe) safe)[::-1] + '<'|(h (pipe) safe)[0] + '<'|(h (pipe) safe).replace('b', '<')|(h (pipe) safe).replace('b', '<' (pipe) safe)|'abc'.replace('b', '<' (pipe) safe) + '<'|(h (pipe) safe).split()[0] + '<'|(h (pipe) safe).partition('!')[1] + '<'|(h (pipe) safe).partition(' ')[1] + '<'|(h (pipe) safe).splitlines()[0] + '<'|('a' (pipe) safe).ljust(3, '<')|('a' (pipe) safe).center(3) + '<'|('a' (pipe) safe).zfill(3) + '<'|('a' (pipe) safe).removeprefix('a') + '<'|('<' (pipe) safe) + 1|('<' (pipe) safe) in h|(h (pipe) safe) == h
nothing (pipe) int|nothing (pipe) int(5)|nothing (pipe) float|nothing (pipe) float(5)|(l (pipe) length)[1:]|(d.items())[0:2]|z[1:]|d[1:]|(l (pipe) select)[1:]|l[nothing:]|l['a':]|l[1.5:]|range(4)[1:] == range(1, 4)|range(6)[::2][1:] (pipe) list|0 ** n|0 ** m|0.0 ** m|10.0 ** 400|10 ** -400|''.isprintable()|'\\x00'.isprintable()|nothing is callable|d is filter|l is test|nothing is filter|z is le(z)|z is ge none|nothing is le(1)|['a', 'b'] (pipe) sum(start='')
"""

TEMPLATES = [
    "a\n", "a\n\n", "\n", "", "a\r\nb\rc\n", "  {{ n }}  \n  x", "{{ n }}\n{{ n }}\n", "{%if y%}\nx\n{%endif%}\nz",
    "  {% if y %}  \n  x\n  {% endif %}\n  z", "a {% if y %} b {% endif %} c", "a {%- if y -%} b {%- endif -%} c",
    "a  {{- n -}}  b", "a\n\n{{- n }}\n\n{{ n -}}\n\n b", "a\n  {%+ if y %}b{% endif %}", "{% if y +%}\nb{% endif %}", "a\n  {# c #}\nb", "a {#- c -#} b", "{# {{ n }} #}x",
    "{#- a\n b -#}\n x", "a\n  {% if y -%}\n  b\n  {%- endif %}\n c", "x{% raw %}{{ n }} {% if %}{% endraw %}y", "x {%- raw -%} {{ n }} {%- endraw -%} y",
    "  {% raw %}\n {{ a }}\n  {% endraw %}\n b", "{% for i in l %}\n{{ i }}\n{% endfor %}\n", "{% for i in l -%}\n  {{ i }},\n{%- endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}", "{% for i in l %}{{ loop.previtem is defined }}{% endfor %}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{{ loop.depth }}{% endfor %}", "{% for i in e %}x{% else %}none{% endfor %}", "{% for i in l %}x{% else %}none{% endfor %}",
    "{% for i in l if i > 1 %}{{ i }}{{ loop.length }}{% endfor %}", "{% for i in l if i > 9 %}{{ i }}{% else %}-{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | dictsort %}{{ k }}{{ v }}{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for c in s %}{{ c }}.{% endfor %}", "{% for x in nothing %}x{% endfor %}", "{% for x in n %}x{% endfor %}", "{% for x in none %}x{% endfor %}", "{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for i in 1, 2 %}{{ i }}{% endfor %}", "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}", "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% if y %}{% set q = 1 %}{% endif %}{{ q }}", "{% if e %}{% set q = 1 %}{% endif %}{{ q is defined }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, %}{{ a }}", "{% set x %}a{{ n }}b{% endset %}{{ x | upper }}", "{% set x | upper | trim %} a{% endset %}{{ x }}", "{% set x.y = 1 %}", "{% set d.y = 1 %}", "{% set ns = namespace() %}{% set ns.a = {'b': 1} %}{{ ns.a.b }}{{ ns.c }}", "{% set ns = namespace() %}{% set ns._a = 1 %}",
    "{% macro m(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=9) }}{{ m(b=1, a=0) }}{{ m() }}", "{% macro m() %}{{ n }}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{% endmacro %}{{ m(x=1) }}", "{% macro m(a) %}{% if a %}{{ a }}{{ m(a - 1) }}{% endif %}{% endmacro %}{{ m(5) }}", "{% macro m(a, a2=nothing) %}{{ a2 is defined }}{% endmacro %}{{ m(1) }}", "{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m('a') ~ m('b') | upper }}{{ m.name }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}x{{ n }}{% endcall %}", "{% macro m() %}<{{ caller(1, 2) }}>{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}<{{ caller is defined }}>{% endmacro %}{{ m() }}", "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aa{% endfilter %}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with a = 1 %}{% set q = a %}{% endwith %}{{ q is defined }}", "{% generation %}a{{ n }}{% endgeneration %}b",
    "{% for m in messages %}{% generation %}{{ m.content }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}{% endfor %}", "{% for i in [1, [2, [3]]] recursive %}{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}{{ loop.depth }}{% endif %}{% endfor %}", "{% if n == 1 %}a{% elif n == 7 %}b{% elif y %}c{% else %}d{% endif %}", "{% if nothing %}a{% elif nothing.x %}b{% endif %}", "{% if not nothing %}a{% endif %}", "{{ n, m }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': {'b': 1}}}}", "{{ '}}' }}{{ \"{%\" }}", "{{ 'a\nb' }}", "{{ n }}{", "{", "{ {", "{{ n }}}", "a{{ n",
    "{% if %}{% endif %}", "{% if y %}", "{% endif %}", "{% for %}", "{% for x of l %}{% endfor %}", "{% nothing %}", "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ [1 }}", "{{ 1) }}", "{{ 'a }}", "{{ a b }}", "{{ n | }}", "{{ n. }}", "{{ n is }}", "{{ f(a=1, 2) }}", "{{ ! }}", "{{ n & m }}", "{# open", "{% raw %}x", "{% set 1 = 2 %}", "{% set none = 2 %}", "{% break %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% for x in l %}{% else %}{% else %}{% endfor %}", "{% if y %}{% else %}{% elif y %}{% endif %}", "{{ 01 }}", "{{ 1_000 }}", "{{ 1__0 }}", "{{ 'a' is string is string }}",
    "{% for i in l %}x{% break %}{% else %}E{% endfor %}", "{% for i in l %}x{% continue %}{% else %}E{% endfor %}", "{% for i in l %}{% if loop.last %}{% break %}{% endif %}x{% else %}E{% endfor %}", "{% for i in l %}{% for j in l %}{% break %}{% else %}{% break %}{% endfor %}x{% endfor %}", "{% for i in l if i > 9 %}{% break %}{% else %}E{% endfor %}",
    "{% set x | safe %}<{% endset %}{{ x + '<' }}", "{% macro m() %}<{% endmacro %}{{ m() + '<' }}{{ m() | safe + '<' }}", "{% set ns = namespace(a='<' | safe) %}{{ ns.a + '<' }}", "{% for c in '<a' | safe %}{{ c + '<' }}{% endfor %}", "{% filter safe %}<{% endfilter %}", "{% filter length %}x{% endfilter %}", "{% call dict(a=1) %}x{% endcall %}", "{% set x | length %}abc{% endset %}{{ x + 1 }}",
    "{% for m in messages %}{{ m['role'] }}: {{ m.content | trim }}\n{% endfor %}", "{% set first = messages[0] %}{{ first == messages[0] }}{{ messages.index(first) }}", "{{ messages | selectattr('role', 'equalto', 'user') | first | tojson }}", "{% set m = messages | selectattr('role', 'equalto', 'user') | list %}{{ m[-1].tags | sort | join(',') }}", "{{ (messages | last)['tags'][1:] }}", "{{ messages[::-1][0].role }}",
    "{% for m in messages[::-1] %}{% set i = (messages | length - 1) - loop.index0 %}{{ i }}{{ m.role }}{% endfor %}", "{{ '</think>' in messages[0].content }}{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }}", "{% set x = 'a' %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 'b' %}{{ f() }}", "{% for i in l %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}", "{% set g = l | map('string') %}{{ g | join }}{{ g | join }}", "{% set g = l | select %}{% if g %}x{% endif %}", "{{ l | select | length }}", "{{ (l | reverse)[0] }}",
]


def cases():
    pieces = EXPRESSIONS.strip().split("\n")
    out = []
    for line in pieces:
        for piece in _split(line):
            out.append("{{ " + piece.replace("(pipe)", "|") + " }}")
    return out + TEMPLATES


def _split(line):
    """The expressions between bare bars: those with blanks around them, and those inside strings, are no separators."""
    parts, quote, part, depth = [], "", "", 0
    for i, c in enumerate(line):
        if quote:
            quote = "" if c == quote and line[i - 1] != "\\" else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        if c == "|" and not quote and depth == 0 and line[i - 1] != " ":
            parts.append(part)
            part = ""
        else:
            part += c
    return parts + [part]


@functools.lru_cache(maxsize=None)
def compiled(source):
    return chat_template_utils._cached_compile_jinja_template(source)


def render(source, variables):
    """The text, or None where jinja2 raises."""
    try:
        return compiled(source).render(**variables)
    except Exception:  # every kind of failure of a template is one here
        return None


def main():
    with (HERE / "jinja_golden.jsonl").open("w", encoding="utf-8") as file:
        file.write(json.dumps({"variables": VARIABLES}) + "\n")
        for source in cases():
            file.write(json.dumps({"template": source, "text": render(source, VARIABLES)}) + "\n")


if __name__ == "__main__":
    main()
