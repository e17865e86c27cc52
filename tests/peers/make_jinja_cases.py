"""Writes tests/data/jinja_cases.json: small templates and what jinja2 makes of them.

    python3 tests/peers/make_jinja_cases.py

Needs transformers and jinja2. One template a line below; a line that ends with a backslash goes on.
Where the text depends on an object's address, the case is left out.
"""
import json
import os
import re

import jinja_peer

VARIABLES = {
    "xs": [1, 2, 3],
    "tree": [{"n": "a", "c": [{"n": "b", "c": []}, {"n": "c", "c": [{"n": "d", "c": []}]}]}],
    "m": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}],
    "d": {"b": 2, "a": 1, "C": 3},
    "s": "abc",
    "y": "ctx",
    "u": {"a.b": 1},
}

LINES = r'''
{% for x in xs %}{{ loop(xs) }}{% endfor %}
{% for x in xs %}{{ loop.cycle('a','b') }}{{ loop.revindex }}{{ loop.revindex0 }}{% endfor %}
{% set ns = namespace() %}{% for x in xs %}{% set ns.l = loop %}{% endfor %}{{ ns.l.index }}{{ ns.l.last }}{{ ns.l.previtem }}{{ ns.l.nextitem is defined }}
{% macro a(x, y=x, z=y) %}{{ x }}{{ y }}{{ z }}{% endmacro %}{{ a(1) }}{{ a(1, z=3) }}{{ a(y=2) }}
{% macro a(x=y2, y2=5) %}{{ x }}|{{ y2 }}{% endmacro %}{{ a() }}
{% macro a(x) %}{{ x is defined }}{{ x }}{% endmacro %}{{ a() }}{{ a(none) }}{{ a(undefd) }}
{{ a(1) }}{% macro a(x) %}{{ x }}{% endmacro %}
{% macro f() %}{{ q }}{% endmacro %}{{ f() }}{% set q = 3 %}{{ f() }}
{% macro f() %}{{ y }}{% endmacro %}{{ f() }}{% if false %}{% set y = 3 %}{% endif %}{{ f() }}
{{ y }}{% set y = 1 %}{{ y }}
{% if xs %}{% set y = 1 %}{% endif %}{{ y }}
{% if not xs %}{% set y = 1 %}{% endif %}{{ y }}
{% for i in xs %}{% if i == 2 %}{% set y = i %}{% endif %}{{ y }}{% endfor %}{{ y }}
{% for i in xs %}{% for y in xs %}{{ y }}{% endfor %}{{ y }}{% endfor %}
{% for y in xs %}{{ y }}{% endfor %}{{ y }}
{% set x = 0 %}{% for i in xs %}{{ x }}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set x = 0 %}{% for i in xs %}{% if loop.first %}{% set x = 5 %}{% endif %}{{ x }}{% endfor %}
{% set b %}{% set q = 1 %}{{ q }}{% endset %}{{ b }}{{ q }}
{% filter upper %}{% set q = 'in' %}{{ q }}{% endfilter %}{{ q }}
{% filter replace('a', y) | upper %}abc{% endfilter %}
{% for x in xs %}{% filter upper %}a{% if x == 2 %}{% break %}{% endif %}b{% endfilter %}{% endfor %}
{% for x in xs %}{% set q %}a{% if x == 2 %}{% continue %}{% endif %}b{% endset %}{{ q }}{% endfor %}
{% for x in xs %}{% generation %}{% break %}{% endgeneration %}{% endfor %}
{% for x in xs %}{% macro q() %}{% break %}{% endmacro %}{% endfor %}
{% break %}
{% for x in xs %}{{ x }}{% break %}{% else %}E{% endfor %}
{% for x in xs %}{{ x }}{% continue %}{% else %}E{% endfor %}
{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}E{% endfor %}
{% for x in xs %}{% for z in [] %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}
{% set loop = 5 %}{{ loop }}{% for x in xs %}{{ loop.index }}{% endfor %}{{ loop }}
{% for x in xs %}{% set loop = 1 %}{% endfor %}
{% for loop in xs %}{% endfor %}
{% for x in xs if loop.index %}{{ x }}{% endfor %}
{% for x in xs %}{% for z in xs if loop.first %}{{ z }}{% endfor %}{% endfor %}
{% for x in xs if x > 1 %}{{ loop.length }}{{ loop.revindex }}{% endfor %}
{% for a, b in [(1,2),(3,4)] if a > 1 %}{{ loop.previtem }}{{ a }}{{ loop.first }}{% endfor %}
{% for x in xs|map('string') %}{{ loop.length }}{{ loop.last }}{{ loop.nextitem }}{% endfor %}
{% set g = xs|map('string') %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% endfor %}{{ g|list }}
{% set g = xs|select('odd') %}{{ g|first }}{{ g|list }}{{ 3 in g }}
{% set g = xs|map('upper') %}ok{{ g|list }}
{% set g = xs|map('nofilter') %}{{ g|list }}
{% if xs|select('equalto', 9) %}gen{% endif %}
{% set ns = namespace(seen=[]) %}{% for x in [1,2,1,3] if x not in ns.seen %}{% set ns.seen = ns.seen + [x] %}{{ x }}{% endfor %}
{% set ns = namespace(c=0) %}{% macro inc() %}{% set ns.c = ns.c + 1 %}{{ ns.c }}{% endmacro %}{% for x in xs %}{% set _ = inc() %}{% endfor %}{{ ns.c }}
{{ namespace(a=1).a }}{{ namespace(a=2, b=3).b }}
{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a,b,c'.split(',',1) }}{{ 'a b'.split(' ')[-1] }}{{ 'xxaxx'.strip('x') }}{{ 'aXb'.lower() }}{{ 'abc'.find('c') }}{{ 'a'.isdigit() }}{{ 'a-b'.replace('-','+') }}{{ 'one two'.title() }}
{% set ns = namespace(_a=1) %}
{% set ns = namespace() %}{% set ns._a = 1 %}
{% set ns = namespace(items=1) %}{{ ns.items }}{{ ns['items'] }}{{ ns.nope is defined }}{{ ns.get is defined }}
{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}
{% set ns = namespace() %}{% set ns.t %}txt{% endset %}{{ ns.t }}
{% set d.x = 1 %}
{% set a = b = 1 %}
{% set 1 = 2 %}
{% set a.b.c = 2 %}
{% set x, = (1,) %}{{ x }}
{% set (x, (y, z)) = (1, (2, 3)) %}{{ x }}{{ y }}{{ z }}
{% set x, y = 'ab' %}{{ x }}{{ y }}
{% set x, y = d %}{{ x }}{{ y }}
{% set x, y = [1] %}
{{ m|map(attribute='role')|list }}{{ m|map(attribute='content.0')|join('') }}{{ m|map('length')|list }}
{{ [{'a':{'b':2}},{'a':{'b':1}}]|sort(attribute='a.b') }}{{ [{'a':2},{'a':1}]|sort(attribute='a', reverse=true) }}
{{ d|dictsort }}{{ d|dictsort(true) }}{{ d|dictsort(false,'value',true) }}{{ d|dictsort(by='nope') }}
{{ d.items()|list }}{{ d.keys()|list }}{{ d.values()|list }}{{ d.items() }}{{ d.items()|length }}{{ 'a' in d.keys() }}{{ ('a',1) in d.items() }}
{{ 'x'.join(['a','b']) }}{{ 'a-b-c'.split('-',1) }}{{ 'a b  c '.split(none,1) }}{{ ' a b  c '.split() }}
{{ 'abcabc'.find('c') }}{{ 'abc'.find('z') }}{{ 'é😀é!'.find('!') }}{{ 'aXbX'.replace('X','',1) }}{{ 'abc'.replace('','-') }}{{ 'abc'.replace('','-',2) }}
{{ 'hello world'.title() }}{{ "they're bill's".title() }}{{ 'ǆabc'.title() }}{{ 'ΑΣΣΑΣ'.lower() }}{{ 'ß'.upper() }}{{ 'straße'.capitalize() }}{{ 'ÉCOLE ÀÇ ЖУК'.lower() }}{{ 'école ÿ жук'.upper() }}
{{ "they're (big) a-b [c] <d> {e}\tf"|title }}{{ 'ΑΣ ΑΣ-ΑΣ'|title }}{{ 'ß ǆb'|title }}
{{ '1'.isdigit() }}{{ '²'.isdigit() }}{{ 'a1'.isdigit() }}{{ ''.isdigit() }}
{{ '፩᧚⁰⁴₉①⑴⒈⓪⓵⓿❶➀➊𐩀𐹠𑁒🄀🄊'.isdigit() }}{{ '⑩'.isdigit() }}{{ '½'.isdigit() }}{{ '²'|int }}{{ '1②'|int(7) }}{{ '²'|float }}
{{ 'ὑὓὕᾰᾱιῐῑῠῡῥῼ'|lower }}{{ 'ὑὓὕᾰᾱι\u1fbeῐῑῠῡῥ'|upper }}{{ 'ᾀb ᾳb ᾼb ῳb'.title() }}{{ 'ᾳ'.capitalize() }}
{{ 'ªb ⅰb ⓐb ʰb 🄰b'.title() }}{{ 'aªB'.title() }}
{{ "ΑΣ' ΑΣ'Α 'Σ ΑΣ\u0301Α Α\u0301Σ ΑΣ. Α.Σ ΑΣ.Β ΑΣʰ ʰΣ ⓐΣ".lower() }}{{ "ΑΣ' ΑΣ'Α Α'Σ 'Σ '.Σ".title() }}{{ "ΑΣ' ΑΣ'Α Α'Σ 'Σ ΑΑ'Σ. 'ΑΣ"|title }}{{ "'ΑΣ'Σ".capitalize() }}
{{ '%s' % (1,2) }}
{{ '%d' % 'a' }}
{{ '%z' % 1 }}
{{ '%(a)s' % 1 }}
{{ '%s %s' % 'a' }}
{{ '{} {1}'.format(1,2) }}
{{ '{:d}'.format('a') }}
{{ '{'.format() }}
{{ '}'.format() }}
{{ '{x}'.format() }}
{{ '{}'.format() }}
{{ '{:q}'.format(1) }}
{{ '<b>'|safe }}{{ ('<b>'|safe) ~ '<i>' }}{{ ['<b>'|safe] }}{{ ('<'|safe)*2 }}{{ ('<'|safe)|length }}{{ ('<a>'|safe)|upper }}{{ (' < '|safe)|trim }}{{ ('<'|safe)|replace('<','&') }}{{ ('<'|safe) + ('>'|safe) }}
{{ [1,'a',none]|tojson|safe }}{{ '<a>'|tojson|safe }}{{ (1|safe) }}
{{ 1/3 }}{{ -7 % 3 }}{{ 7 % -3 }}{{ -7 // 2 }}{{ 9223372036854775806 + 1 }}{{ -9223372036854775807 - 1 }}{{ 9223372036854775807 == 9223372036854775808.0 }}{{ 9223372036854775807 < 1e19 }}{{ 1e15|int }}{{ (-9223372036854775807 - 1) % -1 }}{{ 9007199254740993 / 3 }}
{{ 0.1 + 0.2 }}{{ 1e300*1e10 }}{{ -1e300*1e10 }}{{ 1e22 }}{{ 1e16 }}{{ 123456789012345678.0 }}{{ 1e-4 }}{{ 1e-5 }}{{ 5e-324 }}{{ 1.7976931348623157e308 }}{{ 100.0 }}{{ 1.10 }}{{ 0.30000000000000004 }}{{ 2.5e-7 }}{{ -0.0 }}
{{ 1.0|tojson }}{{ 1e16|tojson }}{{ (1e300*1e10)|tojson }}{{ [1,2.5,none,true,'é','\u2028','\x7f','x']|tojson }}{{ {'1':1,2:3,none:4,true:5,1.5:6}|tojson }}{{ {'b':1,'a':{'d':1,'c':2}}|tojson(sort_keys=true, indent=1) }}
{{ {(1,2):3}|tojson }}
{{ [[],{},[[]],{'a':[]}]|tojson(indent=2) }}{{ [1]|tojson(indent='--') }}{{ [1]|tojson(indent=0) }}{{ [1]|tojson(indent=true) }}{{ [1]|tojson(indent=-1) }}{{ [1,{'a':2}]|tojson(separators=[',',':']) }}{{ 'é'|tojson(true) }}{{ xs|map('string')|tojson }}
{{ '3.9'|int }}{{ ' 12 '|int }}{{ '1_000'|int }}{{ '-7'|int }}{{ '+7'|int }}{{ '--7'|int }}{{ 'z'|int(-1) }}{{ '1e3'|int }}{{ ''|int(7) }}{{ true|int }}{{ [1]|int(8) }}{{ 'inf'|int(9) }}{{ 'nan'|float }}{{ '1_0.5'|float }}{{ ' 2 '|float }}{{ 'x'|float(3) }}{{ '1__0'|int }}{{ '_1'|int }}
{% for x in ['1_e5', '1e_5', '1_', '_', '1_.5', '1._5', 'e_1', '+_1', '1_+', '1_000.5', '1e1_0', '1__0', '_1', '1_a', 'a_1', '1_0_0', '-1_0', 'i_nf', '1_inf', '0_0'] %}{{ x|float(-1) }} {{ x|int(-1) }}|{% endfor %}
{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 42.55|round(1,'floor') }}{{ 42.41|round(1,'ceil') }}{{ 5|round }}{{ -2.5|round }}{{ 7|round(1,'ceil') }}
{{ [3,1,2]|sort(reverse=true) }}{{ ['b','A','a','B']|sort }}{{ ['b','A','a','B']|sort(case_sensitive=true) }}{{ [1,'a']|sort }}
{{ [none,none]|sort }}
{{ [2,1.5,true]|sort }}{{ [[2],[1,5],[1]]|sort }}
{{ 'abc'|first }}{{ 'abc'|last }}{{ ''|first }}{{ d|first }}{{ d|last }}{{ range(3)|last }}{{ xs|map('string')|last }}
{{ 'a\nb\n\nc\n'|indent }}|{{ 'a\r\nb'|indent(2) }}|{{ 'a\nb'|indent('>') }}|{{ ''|indent(2,true) }}|{{ '\n\na'|indent(3,blank=true) }}
{{ joiner() }}{% set j = joiner('|') %}{{ j() }}{{ j() }}{{ j() }}
{{ range(5)|list }}{{ range(5,0,-2)|list }}{{ range(1,10,3)[-1] }}{{ 3 in range(5) }}{{ range(3) == range(0,3) }}{{ range(2)|length }}
{{ range(100001) }}
{{ range(1.5) }}
{{ range() }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %j %U %w %a %A %b %B %p %I %y %% %-d %e %D %F %T %C %G %V %u %s'|replace('%s','')) }}
{{ strftime_now() }}
{{ raise_exception('x' ~ 1) }}
{{ raise_exception() }}
{{ d.update({'a':1}) }}
{{ d.pop is defined }}{{ d.pop }}{{ d['pop'] is defined }}{{ xs.append is defined }}{{ xs.append }}
{{ x.y }}
{{ x['y'] }}
{{ x() }}
{{ x + 1 }}
{{ -x }}
{{ x < 1 }}
{{ x == y2 }}{{ x != y2 }}{{ x == none }}{{ x in [x] }}{{ [x] }}{{ x ~ 'a' }}{{ x and 1 }}{{ x or 1 }}{{ not x }}
{{ d.zz.yy is defined }}
{{ (d.zz).yy | default('q') }}
{{ d['zz'] | default('q') }}{{ d.zz | default }}{{ xs[9] | default(5) }}
{{ s[0] }}{{ s[-1] }}{{ s[5] }}{{ s['a'] }}{{ s.0 }}{{ xs.0 }}{{ xs['0'] }}{{ u['a.b'] }}{{ xs[true] }}{{ xs[1.0] is defined }}{{ d[['a']] is defined }}
{{ 'é😀x'[1] }}{{ 'é😀x'[1:] }}{{ 'é😀x'[::-1] }}{{ 'é😀x'[-2:] }}{{ 'é😀x'|length }}{{ 'é😀x'|list }}{{ 'é😀x'|reverse }}{{ '😀'*2 }}{{ 'é' in 'café' }}{{ 'é😀x'[::2] }}{{ 'é😀x'[5:1] }}{{ 'é😀x'[-1:0:-1] }}
{{ 1 if none }}|{{ (1 if none) is defined }}{{ (1 if none) ~ 'x' }}
{{ 'a' if false else 'b' if false }}|
{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 == true }}{{ 'a' in 'abc' in ['abc'] }}{{ not 1 == 2 }}{{ 1 in [1] == true }}
{{ 2 * 3 ~ 4 + 1 }}
{{ 'a' ~ 1 + 2 }}
{{ '1' ~ 2 * 3 }}{{ -2 ** 2 }}{{ 2 ** 3 ** 2 }}{{ -'1'|int }}{{ 1 - -1 }}{{ - - 1 }}{{ +1 }}{{ not not 1 }}
{{ 10 // 3 * 3 + 10 % 3 }}{{ 7 // -2 }}{{ 7 % -2 }}{{ 5.5 // 2 }}{{ -5.5 % 2 }}{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1.0 % 0 }}
{{ [1,2] + [3] }}{{ (1,) + (2,) }}{{ [1] * 3 }}{{ 3 * 'ab' }}{{ 'a' * -1 }}{{ [1] + (2,) }}
{{ true + true }}{{ true ~ none }}{{ -true }}{{ true * 'x' }}{{ true == 1 }}
{{ [1,[2,(3,)],{'a':none}] == [1,[2,(3,)],{'a':none}] }}{{ {'a':1,'b':2} == {'b':2,'a':1} }}{{ (1,2) == [1,2] }}{{ [1,2] < [1,3] }}{{ (1,) < (1,0) }}{{ {} < {} }}
{{ "a\"b'c" }}{{ ["a\"b'c", 'a"b', "a'b", 'a\\b', '\u200b', '\xad', '😀', '\x1b', 'é', '\r\t'] }}
{{ {'a':1}['a'] }}{{ {'a':{'b':2}}.a.b }}{{ {1:'x'}[1] }}{{ {1:'x'}[1.0] }}{{ {true:'t'}[1] }}{{ {none:'n'}[none] }}{{ {(1,2):'t'}[(1,2)] }}
{{ {[1]:2} }}
{{ {'a':1,'a':2} }}{{ {1:'a',true:'b'} }}
{{ 1,2 }}{{ (1) }}{{ (1,) }}{{ () }}{{ [] }}{{ [1,] }}{{ {'a':1,} }}
{{ 1_000 }}{{ 1_0.5_0 }}{{ 1e3 }}{{ 1E-2 }}{{ 0 }}{{ 00 }}
{{ 012 }}
{{ 1__0 }}
{{ 'ab' * 3 }}|{{ 'ab' * 0 }}|{{ 'ab' * -1 }}|{{ '' * 5 }}|{{ 2 * 'ab' }}|{{ [1] * 2 }}|{{ [1] * 0 }}|{{ [] * 3 }}|{{ (1, 2) * 2 }}|{{ 'x' * true }}|{{ 'x' * false }}
{{ 'x' * 1.5 }}
{{ 'x' * 'y' }}
{{ +3 }}{{ +true }}{{ -true }}{{ +false }}{{ -3 }}{{ -1.5 }}{{ +1.5 }}{{ -(-2) }}
{{ +'x' }}
{{ -[] }}
{% set it = [1, 2, 3, 4]|map('int') %}{{ 2 in it }}{{ it|list }}
{% set it = [1, 2, 3, 4]|map('int') %}{{ 9 in it }}{{ it|list }}
{% set it = [1, 2, 3, 4]|map('int') %}{{ 4 in it }}{{ 1 in it }}{{ it|list }}
{{ 'yes' if 0.0 else 'no' }}{{ 'yes' if 0.5 else 'no' }}{{ 'yes' if range(0) else 'no' }}{{ 'yes' if range(1) else 'no' }}{{ 'yes' if range(2, 1) else 'no' }}{{ 'yes' if '' else 'no' }}{{ 'yes' if () else 'no' }}{{ 'yes' if {} else 'no' }}{{ 'yes' if none else 'no' }}{{ 'yes' if -0.0 else 'no' }}
{% macro f(a, b, c) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ f(*[1, 2, 3]) }}|{{ f(1, *(2, 3)) }}|{{ f(*'xyz') }}|{{ f(*[1], c=2) }}|{{ f(1, *[]) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, b=2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*5) }}
{{ {'__': 1}.__ }}{{ {'__a': 2}.__a }}{{ {'__ab': 3}.__ab }}{{ {'_abc': 4}._abc }}{{ {'__a': 5}['__a'] }}{{ {'__abc__': 6}['__abc__'] }}{{ {'append': 7}.append }}{{ {'x': 8}.extend is defined }}
{% for n in ['append', 'clear', 'extend', 'insert', 'pop', 'remove', 'reverse', 'sort', 'setdefault', 'update', 'popitem', 'keys', 'get', '__class__', '__len__'] %}{{ xs[n] is defined }} {{ d[n] is defined }} {{ s[n] is defined }} {{ (1, 2)[n] is defined }}|{% endfor %}
{{ xs.append(1) }}
{{ xs.clear() }}
{{ xs.extend(xs) }}
{{ xs.insert(0, 1) }}
{{ xs.pop() }}
{{ xs.remove(1) }}
{{ xs.reverse() }}
{{ xs.sort() }}
{{ d.clear() }}
{{ d.pop('a') }}
{{ d.setdefault('a', 1) }}
{{ d.update(d) }}
{{ d.popitem() }}
{{ xs.update(xs) }}
{{ d.append(1) }}
{{ 'a\
b' }}{{ '\x41\u0041\U00000041' }}{{ '\q\'\"' }}{{ 'a' "b" 'c' }}
{{ '\x4' }}
{{ '\u12' }}
{{ '\N{DASH}' }}
{{ 'abc }}
{{ a b }}
{{ }}
{{ a. }}
{{ a| }}
{{ a is }}
{{ (a }}
{{ a) }}
{{ [1,,2] }}
{{ a ? b }}
{% if %}{% endif %}
{% if a %}
{% endif %}
{% for x in %}{% endfor %}
{% for x y %}{% endfor %}
{% for x in xs %}
{% unknown %}
{% do x %}
{% include 'x' %}
{% extends 'x' %}
{% import 'x' as y %}
{% macro %}{% endmacro %}
{% macro f(a, a) %}{% endmacro %}
{% macro f(a=1, b) %}{% endmacro %}
{% macro f(1) %}{% endmacro %}
{{ f(a=1, a=2) }}
{{ f(a=1, 2) }}
{{ f(*a, 1) }}
{{ f(**a, b=1) }}
{% set x %}
{% endset %}
{{ x|nofilter }}
{% if false %}{{ x|nofilter }}{% endif %}ok
{{ x|nofilter if false else 'ok' }}
{{ 'ok' if true or x is notest }}
{% if x is notest %}{% endif %}
{{ x is notest }}
{% macro f() %}{{ x|nofilter }}{% endmacro %}ok
{# open
{#
x{#
{#-
{{ 'a' }} {#
{##}x
{{ {'a': 1} == {'a': 1} }} {{ {'a': 1} == {'a': 2} }} {{ {'a': 1} == {'b': 1} }} {{ {} == {} }} {{ {} == {'a': 1} }}
{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ {'a': 1, 'b': 2} == {'a': 1, 'b': 3} }} {{ {'a': 1, 'b': 2} == {'a': 2, 'b': 2} }} {{ {'a': 1} == {'a': 1, 'b': 2} }}
{{ [1, 2] == [1, 2] }} {{ [1, 2] == [2, 2] }} {{ [1, 2] == [1, 3] }} {{ [1] == [1, 2] }} {{ {'a': [1]} == {'a': [1]} }} {{ {'a': [1]} == {'a': [2]} }}
{{ {'a': 1} != {'a': 2} }} {{ {'a': 1} in [{'a': 2}] }} {{ {'a': 1} in [{'a': 2}, {'a': 1}] }}
{#- a -#} b {#+ c +#} {# d #}
a {{- 1 }} b {{ 2 -}} c {{- 3 -}} d
{{ '}}' }}{{ "{{" }}{{ '%}' }}{{ {'a':{'b':'}}'}}.a.b }}
  {{+ 1 }}  
	 {%+ if 1 %} x {%+ endif +%} y
x {% if 1 -%}    y    {%- endif %}    z
{%- if 1 -%}
   a
{%- endif %}
{% if 1 %}  {{ 1 }}  {% endif %}  
{{ 'a' }}{# c #}  {% if 1 %}{% endif %}
{% generation %}a{% generation %}b{% endgeneration %}c{% endgeneration %}
{% macro f() %}x{% generation %}y{% endgeneration %}z{% endmacro %}1{{ f() }}2{{ f() }}3
a{% set b %}c{% generation %}d{% endgeneration %}{% endset %}e{{ b }}
{% filter upper %}a{% generation %}b{% endgeneration %}{% endfilter %}c
{% for x in xs %}é{% generation %}😀{{ x }}{% endgeneration %}{% endfor %}
{% generation %}{% set q = 1 %}{{ q }}{{ y }}{% endgeneration %}{{ q }}
{% for x in xs %}{% generation %}{{ loop.index }}{{ x }}{% endgeneration %}{% endfor %}
{% generation %}a
{%- generation -%} a {%- endgeneration -%} b
{% endgeneration %}
{{ namespace is callable }}{{ s.upper is callable }}{{ 5 is callable }}{{ f is callable }}
{% for i in xs %}{{ loop.previtem }},{{ loop.nextitem }},{{ loop.previtem is defined }},{{ loop.revindex }},{{ loop.revindex0 }},{{ loop.cycle('a','b') }};{% endfor %}
{% macro f(a,b='B',c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1,c=2) }}{{ f() }}{{ f(1,2,3) }}
{{ 'a\nb'.splitlines() }}{{ '-'.join(['a','b']) }}{{ 'x'.startswith(('a','x')) }}
{{ 'a' is string }}{{ 'a' is iterable }}{{ 'a' is sequence }}{{ {} is mapping }}{{ {} is sequence }}{{ {} is iterable }}{{ [] is sequence }}{{ 1 is number }}{{ true is number }}{{ 1.5 is float }}{{ true is integer }}{{ 1 is integer }}{{ true is boolean }}{{ x is iterable }}{{ x is string }}{{ none is none }}{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 1 in [1] }}{{ 2 is ge 2 }}
{{ true + 1 }}{{ 1 if [] else 2 }}{{ 0.1+0.2 }}{{ 1e16 }}{{ 1e15 }}{{ 123456789.0 }}{{ 1e-5 }}
{{ loop is defined }}{% for x in xs %}{{ loop is iterable }}{{ loop is sequence }}{{ loop is mapping }}{% break %}{% endfor %}
{% for x in xs %}{% if loop.index is divisibleby 2 %}{{ x }}{% endif %}{% if x is odd and loop.index0 is even %}o{% endif %}{% endfor %}
{{ 5 is in [5] }}{{ 'a' is in 'abc' }}{{ 5 is not in [5] }}{{ 5 is eq 5 }}{{ 5 is == 5 }}
{{ 'abc' is string and 5 is not string }}{{ none is not none or 1 is defined }}
{{ s is equalto 'abc' | upper }}
{{ f is defined if true else 1 }}
{{ x is defined is true }}
{{ 1 is number is string }}
{{ f(1)(2) }}
{{ [s.upper][0]() }}{{ {'f': s.upper}.f() }}{{ (s.split)('b') }}
{% macro outer() %}{% macro inner() %}{{ z }}{% endmacro %}{% set z = 1 %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{% macro a(n) %}{{ b(n) }}{% endmacro %}{% macro b(n) %}{{ n }}{{ a(n-1) if n }}{% endmacro %}{{ a(3) }}
{% if true %}{% macro f() %}x{% endmacro %}{% endif %}{{ f() }}
{% for x in xs %}{% macro f() %}x{% endmacro %}{% endfor %}{{ f() }}
{% set f = 5 %}{% macro f() %}x{% endmacro %}{{ f() }}{% set f = 6 %}{{ f }}
{% set messages = messages or xs %}{{ messages }}
{% set y = y ~ 'z' %}{{ y }}{% for i in [1] %}{{ y }}{% set y = 'q' %}{{ y }}{% endfor %}{{ y }}
{% for k in d %}{{ k }}{{ d[k] }}{% endfor %}{% for k, v in d.items() %}{{ k }}{{ v }}{{ loop.last }}{% endfor %}
{% for c in 'é😀' %}{{ c }}{{ loop.length }}{% endfor %}{% for k in {} %}{% else %}none{% endfor %}{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% for x in (1,2) + (3,) %}{{ x }}{% endfor %}{% for x in xs[1:] + [9] %}{{ x }}{% endfor %}
{{ xs[none:2] }}{{ xs[::2] }}{{ xs[-1::-1] }}{{ xs[1:1] }}{{ xs[:-1][0] }}{{ xs[1:][0] }}{{ xs[5:] }}{{ (1,2,3)[1:] }}{{ xs['a':] }}
{{ m[0]['role'] ~ m[-1].content }}{{ m[-1]['role'][0] }}{{ (m|last)['role'] }}{{ m|length - 1 }}{{ (m|length - 1) }}{{ m[m|length - 1].role }}
{{ m | selectattr('role', '==', 'user') | map(attribute='content') | first }}{{ m|rejectattr('role','in',['user'])|list|length }}{{ m|selectattr('nope')|list }}{{ m|selectattr('nope','undefined')|list|length }}{{ m|map(attribute='nope', default='x')|join }}
{{ xs|count }}{{ d|count }}{{ 'é😀'|count }}{{ [1,2,3]|first }}{{ [1,2,3]|last }}{{ []|first }}|{{ [1,2,3]|reverse|list }}{{ 'abc'|reverse }}{{ 3.567|round(1) }}{{ -1|string|length }}
{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 2 is lessthan 1 }}{{ 1 is le 1 }}{{ 2 is gt 1 }}{{ 1 is greaterthan 1 }}{{ 1 is ge 1 }}{{ 'a' is lt 'b' }}
{{ 1 is != 1 }}
{{ 1 is lt 'a' }}
{{ xs|select('ne', 2)|list }}{{ xs|select('lt', 2)|list }}{{ xs|select('le', 2)|list }}{{ xs|select('<=', 2)|list }}{{ xs|select('gt', 2)|list }}{{ xs|select('>', 2)|list }}{{ xs|select('<', 2)|list }}{{ xs|select('>=', 2)|list }}{{ m|selectattr('role', '!=', 'user')|list|length }}
{{ 'abc'.rindex('z') }}
{{ range(3).count(1) }}{{ [1,2,1].count(1) }}{{ (1,2,1).index(2) }}{{ [1].index(5) }}
{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%B %d, %Y') }}|{{ strftime_now("%A, %-d %B %Y %H:%M") }}|{{ strftime_now('') }}|{{ strftime_now('%é%') }}
{{ strftime_now(format='%Y') }}{{ strftime_now(5) }}
'''.strip("\n").split("\n")

MORE = [
    "{% if 1 %}\n a\n{% endif %}\n{% for x in xs %}\n  {{ x }}\n{% endfor %}\nend\n",
    "\ufeffa",
    "{{ 1 }}\n",
    "{{ 1 }}\n\n",
    "a\r\nb\rc\n\r",
    "{%- set x = 1 %}\n\n  {%- if x %}\n  y{% endif %}\n",
    "{{ 'a\r\nb' }}",
    "  {# x #}  \n y",
    "a  {#- x #}\n y",
    "\n\n{% if 1 %}\n\n{% endif %}\n\n",
    "\t{% if 1 %}x{% endif %}\v{% if 1 %}y{% endif %}\u3000{% if 1 %}z{% endif %}",
    "\u3000{% if 1 %}z{% endif %}",
    "x{{ 1 -}}\u2003 y",
    "{%\nset\nx\n=\n1\n%}{{\nx\n}}",
    "{{ x if\n y else\n z }}",
]


def templates():
    pending = ""
    for line in LINES:
        pending += line
        if line.endswith("\\"):
            pending += "\n"
            continue
        yield pending
        pending = ""
    yield from MORE


def main():
    cases = []
    for template in templates():
        result = jinja_peer.render(template, VARIABLES)
        if re.search(r"object at 0x|built-in method|<function|<class", result.get("text", "")):
            continue
        case = {"template": template}
        if "error" in result:
            case["error"] = True
        else:
            case["text"] = result["text"]
            if result["spans"]:
                case["spans"] = result["spans"]
        cases.append(case)
    path = os.path.join(os.path.dirname(__file__), "..", "data", "jinja_cases.json")
    with open(path, "w", encoding="ascii") as file:
        lines = ",\n ".join(json.dumps(case) for case in cases)
        file.write('{"vars": ' + json.dumps(VARIABLES) + ',\n"cases": [\n ' + lines + "\n]}\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
