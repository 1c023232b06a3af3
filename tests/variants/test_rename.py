"""Renaming changes local names, but not the meaning."""

import ast
import builtins
import keyword
import re
import subprocess
import symtable
import sys

import pytest

pytest.importorskip("tree_sitter")

from gristmill.core.seeded_random import SeededRandom
from gristmill.variants.grammars import GRAMMARS, parse
from gristmill.variants.rename import (
    NameGenerator,
    find_words,
    keywords,
    load_query,
    may_be_renamed,
    read_word_list,
    rename,
    reserved_words,
)


def renamed(text: str, language: str, seed: int = 1) -> str:
    variant = rename(parse(text.encode(), language), SeededRandom(seed))
    return text if variant is None else variant.decode()


def tree_and_errors(text: bytes, language: str) -> tuple[str, int]:
    parsed = parse(text, language)
    return str(parsed.tree.root_node), parsed.num_errors


# x1 is the name x, marked because it must be renamed. All names without a mark must be kept.
MARK = r"(?<=[a-z])1\b"
WORD = r"[^\W\d]\w*"
CASES = {
    "python": {
        "parameters stay": "def f(a, *args, k=2, **kw):\n    total1 = a + k\n    return total1, args, kw",
        "module level stays": "x = 1\nfor y in x: z = y\nclass A:\n    b = 2",
        "closures": "def f():\n    x1 = 1\n    def g(y):\n        z1 = x1 + y\n        return z1\n    return g",
        "shadowed by a parameter": "def f():\n    x1 = 1\n    def g(x): return x\n    return x1, g(2)",
        "comprehension": "def f(x):\n    return [x1 for x1 in x if x1]",
        "first iterable": "def f():\n    x1 = 1\n    return [x1 for x1 in x1]",
        "comprehension in a module": "a = [b1 for b1 in c]",
        "comprehension in a class": "class A:\n    x = 1\n    y = [z1 for z1 in range(x)]",
        "walrus in a comprehension": "def f(a):\n    return [y1 for b1 in a if (y1 := b1)], y1",
        "global": "def f():\n    global x\n    x = 1\n    y1 = x\n    return y1",
        "nonlocal": "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2\n    return x",
        "class body": "def f():\n    x1 = 1\n    class A:\n        x = 2\n        def g(self): return x1\n    return A",
        "class body reads an outer name": "def f():\n    x1 = 1\n    class A(x1):\n        y = x1\n    return A",
        "attributes and keywords": "def f():\n    x1 = a.x\n    x1.x = g(x=x1)\n    return x1",
        "f-string": 'def f():\n    x1 = 1\n    y = 2\n    w1 = 3\n    return f"{x1!r:>{w1}} x y {y=}"',
        "except, with, for": "def f():\n    try: pass\n    except E as e1: show(e1)\n    with a as (b1, c1): b1(c1)\n    for d1, [i1, *j1] in q: d1(i1, j1)",
        "imports": "def f():\n    import os.path, re as r\n    from a import b, c as d\n    os, r, b, d = 1, 2, 3, 4",
        "default values see outer names": "def f():\n    x1 = 1\n    def g(a=x1, b=x1):\n        y1 = a\n        return y1",
        "annotations may be kept as text": "def f():\n    x = 1\n    def g(a, b: x = 2) -> x:\n        y1 = a\n        return y1",
        "lambda": "def f():\n    x1 = 1\n    return lambda a, b=x1: a + b + x1",
        "match": "def f(p):\n    x = 1\n    match p:\n        case A(y=z) as q: return z, q\n        case [x, *rest]: return x, rest",
        "locals": "def f():\n    x = 1\n    return '%(x)s' % locals()\ndef g():\n    y1 = 1\n    return y1",
        "eval in an inner function": "def f():\n    x = 1\n    def g():\n        return eval('x')\n    return g",
        "special names": "def f():\n    _ = __a = CONST = Type = __b__ = self = 1\n    _p1 = 2\n    return _p1",
        "named like its function": "def f():\n    f1 = 1\n    return f1\nclass A:\n    def g(self):\n        for g1 in self: g1()",
        "nested functions and classes stay": "def f():\n    def g(): pass\n    class A: pass\n    return g, A",
        "augmented": "def f():\n    n1 = 0\n    n1 += 1\n    del n1",
        "annotated": "def f():\n    n1: int = 0\n    m1: list\n    return n1",
        "python 2": "def f():\n    x = [y for y in z]\n    print x, y",
        "syntax error": "def f():\n    x = 1\n    return x +\n\ndef g():\n    y1 = 1\n    return y1",
        "decorator": "def f():\n    x1 = 1\n    @x1\n    def g(): pass",
        "pandas": "def f(df):\n    low = 1\n    return df.query('a > @low')",
        "fullwidth": "def f():\n    abc = 1\n    return ａｂｃ",
        "type parameters": "def f():\n    x = 1\n    def g[x](a: x) -> x: return a\n    return x",
    },
    "rust": {
        "parameters and let": "fn f(a1: i32) -> i32 { let b1 = a1; let b1 = b1 + 1; b1 }",
        "let x = x": "fn f(x1: i32) { { let x1 = g(x1); h(x1); } }",
        "let x = x() of an item": "fn f() { let time = time(); time; }",
        "field shorthand": "fn f(a: i32, b1: i32) { S { a, b: b1 } }",
        "pattern shorthand": "fn f(s1: S) { let S { a, b: c1 } = s1; g(a, c1); }",
        "if let": "fn f(x1: O) { if let Some(x1) = x1 { g(x1) } else { h(x1) } }",
        "match": "fn f(o1: O) { match o1 { Some(v1) if v1 > 1 => v1, a::b => 1, (x1, ref y1) | [x1, y1] => g(x1, y1) } }",
        "for": "fn f(x1: V) { for x1 in x1.iter() { g(x1) } }",
        "closure": "fn f(a1: i32) { let g1 = |x1: i32, (y1, z1)| x1 + y1 + z1 + a1; g1(1); }",
        "items": "fn f() { let x = 1; fn g() -> i32 { x } const y: i32 = 1; use a::z; }",
        "known macro": 'fn f(a1: i32, b: i32, c1: i32) { println!("{} {b}", a1, w = c1.a); }',
        "unknown macro": "fn f(a: i32, b1: i32) { dbg!(a); g(b1); }",
        "struct in a macro": "fn f(a: i32, b: i32, c1: i32) { vec![S { a: b }, c1]; }",
        "width in a format": 'fn f(w: i32, v1: i32) { println!("{:w$}", v1); }',
        "paths and labels": "fn f(a1: i32) { 'a: loop { break 'a; } a::b(a1.a); g::<a>(a1) }",
        "let else": "fn f(x1: O) { let Some(x1) = x1 else { return g(x1) }; h(x1); }",
        "unused": "fn f(_a1: i32) { let _ = 1; }",
        "macro of the file": "macro_rules! m { () => { x } } fn f(y1: i32) { y1; }",
    },
    "javascript": {
        "parameters": "function f(a1, ...b1) { return a1 + b1 }",
        "var is hoisted": "function f() { g(x1); if (a) { var x1 = 1; let y1 = x1; y1; } return x1 }",
        "let is not hoisted": "function f(x1) { { let x1 = 2; x1; } return x1 }",
        "top level": "var a = 1; let b = a; function c() { return b }",
        "shorthand": "function f(a, b1) { return {a, c: b1} }",
        "destructuring": "function f({a, b: c1, d = 1}, [e1]) { let {g, h: i1} = a; return c1 + d + e1 + g + i1 }",
        "assignment pattern": "function f(a1, b1) { [a1, b1] = [b1, a1] }",
        "assignment of properties": "function f(a, b1) { ({a} = b1) }",
        "nested pattern": "function f(a1) { const {b: {c, d: [e]}} = a1; return c + e }",
        "arrow": "const f = x1 => (y1, z1) => x1 + y1 + z1",
        "catch with var": "function f() { try {} catch (e1) { var e1 = 1 } }",
        "for of": "function f(a1) { for (const [k1, v1] of a1) g(k1, v1); for (x in a1) g(x) }",
        "named functions": "function f() { function g() {} const h1 = function i() { return i }; return g(h1) }",
        "eval": "function f(a) { let x = 1; eval('x') }",
        "with": "function f(a) { let x = 1; with (a) { x } }",
        "default value does not see the body": "function f(a1 = x) { var x = 1; return x }",
        "class": "function f(a1) { class A { b = a1; c(d1) { return d1 + this.d } } return A }",
        "jsx": "function f(a1, b1) { return <div a={a1}><b1.c/><b/></div> }",
        "property": "function f(a1) { return a1.a + b['a'] + a1?.a }",
        "escaped name": "function f() { let abc = 1; return \\u0061bc }",
        "angular": "angular.m(function(service) { return service })",
        "dollar": "function f($a, b1) { return $a + b1 }",
        "label": "function f(a1) { a: for (;;) break a; return a1 }",
        "generator": "function* f(a1) { yield a1; await g }",
    },
    "typescript": {
        "parameter property": "class A { constructor(private a: number, readonly b: string, c1: number) { a; b; c1; } }",
        "types": "function f(a1: a, b1?: b): a1 is c { let x1: typeof a1 = a1; return x1 as (a1: a) => b }",
        "interface": "interface A { m(a: number): void; [b: string]: c }",
        "generic": "const f = <T>(a1: T, [b1]: T[]) => a1 ?? b1",
        "enum and namespace": "function f() { enum a { b } } namespace n { let c = 1 }",
        "overload": "function f(a: string): void; function f(b1: any) { return b1 }",
    },
    "tsx": {"element": "const f = (a1: A) => <b c={a1}><a1.d/></b>"},
    "go": {
        "parameters and results": "package p\nfunc (r1 *T) f(a1, b1 int, c1 ...int) (n1 int, err1 error) { n1 = a1 + b1; return r1.r, c1 }",
        "package shadowed": "package p\nfunc f() { time := time.Now(); g(time) }",
        "redeclared": "package p\nfunc f(e1 error) { x1, e1 := g(); y1, e1 := h(x1, e1); i(y1, e1) }",
        "if, for, switch": "package p\nfunc f(x1 int) { if x1 := g(x1); x1 > 1 { h(x1) } else if y1 := x1; y1 > 1 { h(y1) }; for x1 := range x1 { h(x1) }; for i1 := 0; i1 < x1; i1++ { h(i1) }; switch z1 := x1; z1 { case x1: h(z1) } }",
        "type switch": "package p\nfunc f(a1 any) { switch b1 := g(c).(type) { case int: h(b1) }; h(a1) }",
        "type switch of itself": "package p\nfunc f(a any) { switch a := a.(type) { case int: h(a) } }",
        "keys": "package p\nfunc f(a int, b1 int) { g(T{a: b1}) }",
        "type or index": "package p\nfunc f(k int, v1 int) { m[k](v1) }",
        "closure": "package p\nfunc f(a1 int) { g(func(b1 int) int { a1 = b1; return a1 }) }",
        "select": "package p\nfunc f(c1 chan int) { select { case v1 := <-c1: g(v1); case c1 <- 1: } }",
        "top level": "package p\nvar a = 1\nconst b = 2\nfunc f() { g(a, b) }",
        "consts": "package p\nfunc f() { const k1 = 1; var v1, w1 = k1, 2; g(v1, w1) }",
        "named result and result": "package p\nfunc f() (err1 error) { if _, err1 := g(); err1 != nil { return err1 }; return }",
    },
    "java": {
        "parameters stay": "class A { int m(int a) { int b1 = a; return b1; } }",
        "fields": "class A { int f; void m() { int x1 = f; this.x = x1; f = o.x(); } }",
        "field before local": "class A { int f; void m() { f = 1; int f = 2; g(f); } }",
        "lambda": "class A { void m() { int x1 = 1; F g1 = (y1, z1) -> x1 + y1 + z1; F h1 = w1 -> w1; g1.a(h1); } }",
        "anonymous class": "class A { void m() { int x = 1; int y1 = 2; h(new T() { int g() { return x; } }, y1); } }",
        "loops": "class A { void m() { for (int i1 = 0; i1 < 1; i1++) g(i1); for (var v1 : w) g(v1); for (var s1 : s) g(s1); } }",
        "resources": "class A { void m() { try (R r1 = o()) { r1.a(); } catch (E e1) { e1.b(); } } }",
        "instanceof": "class A { void m() { if (!(o instanceof B b)) return; g(b); } }",
        "labels": "class A { void m() { a: while (true) { int a1 = 1; g(a1); break a; } } }",
        "methods": "class A { void m() { int size1 = size(); B b1 = B::size; size(size1, b1); } int size() { return 1; } }",
        "switch": "class A { void m(E e) { int a1 = 1; switch (e) { case RED: g(a1); } } }",
        "annotation": "class A { void m() { @S(a = 1) int a = 1; int b1 = a; g(b1); } }",
    },
    "c": {
        "parameters": "static int f(int a1, char *b1, int c1[]) { return a1 + *b1 + c1[0]; }",
        "declarators": "int f(void) { int a1 = 1, *b1 = &a1, **c1 = &b1, d1[2]; return d1[**c1]; }",
        "sizeof itself": "void f(void) { T *p1 = malloc(sizeof(*p1)); free(p1); }",
        "macro of the file": "#define M if (err) goto out\nint f(void) { int err = 1, b1 = 2; M; return err + b1; }",
        "unused may be used by a macro": "int f(V visit, void *arg) { VISIT(1); }",
        "argument of a macro": "int f(int a, int b1) { LIST_EACH(a, list, a); return b1 + b1; }",
        "fields": "int f(struct s *p1, int x1) { struct s v1 = { .x = x1 }; p1->x = v1.x; }",
        "assert prints it": "int f(int a, int b1) { assert(a > 0); return b1 + b1; }",
        "labels": "int f(int a1) { if (a1) goto a; a: return a1; }",
        "extern": "int f(int a1) { extern int b; int c(int); return a1 + b + c(a1); }",
        "pragma": "int f(int a, int b1) {\n#pragma omp parallel private(a)\n b1 = a; return b1; }",
        "globals": "int a; static int b = 1; int f(void) { a = b; return a; }",
        "assembler": 'int f(int a, int b1) { __asm__("" : [x] "=r"(a)); return b1 + b1; }',
        "blocks": "int f(int x1) { { int x1 = 2; g(x1); } for (int i1 = 0; i1 < x1; i1++) g(i1); }",
        "before its declaration": "int x; int f(void) { g(x); int x = 1; return x; }",
        "conditional": "int f(void) {\n#ifdef A\n int x1 = 1;\n#else\n long x1 = 2;\n#endif\n return x1; }",
    },
    "c++": {
        "references": "int f(int &a1, const T &&b1, int c1 = 1) { return a1 + b1 + c1; }",
        "structured binding": "void f() { auto [a1, b1] = g(); h(a1, b1); for (auto &[k1, v1] : m) h(k1, v1); }",
        "range for": "void f(V x1) { for (auto &x1 : x1) g(x1); }",
        "lambda captures": "void f(int a1, int b1) { auto l1 = [a1, &b1](int c1) { return a1 + b1 + c1; }; l1(1); }",
        "init capture": "void f(int a1) { auto l1 = [b = a1] { return b; }; l1(); }",
        "if with initializer": "void f(M m1) { if (auto i1 = m1.find(1); i1 != m1.end()) g(i1); }",
        "member initializers": "struct A { A(int x1) : x(x1), y{x1} {} int x, y; };",
        "members": "struct A { int x; int m() { return x; } int n(int a1) { x = a1; return this->a; } };",
        "vexing parse": "void f(int a) { V v(a); g(v, a); }",
        "catch": "void f() { try { } catch (const E &e1) { g(e1); } }",
        "pack": "template <typename... T> void f(T... a1) { g(a1...); }",
        "templates": "template <int n> int f(int a1) { return n + a1 + g<n>(a1); }",
        "namespaces": "void f(int a1) { n::b(a1); std::a(a1); }",
        "local class": "void f() { static int a = 1; struct L { int m() { return a; } }; }",
    },
}  # fmt: skip
ALL_CASES = [(language, name) for language, cases in CASES.items() for name in cases]


@pytest.mark.parametrize(("language", "name"), ALL_CASES, ids=lambda value: value)
def test_only_marked_names_are_renamed(language, name):
    marked = re.findall(WORD, CASES[language][name])
    text = re.sub(MARK, "", CASES[language][name])
    variant = renamed(text, language)
    before, after = re.findall(WORD, text), re.findall(WORD, variant)
    assert [old != new for old, new in zip(before, after, strict=True)] == [word.endswith("1") for word in marked], (
        variant
    )
    pairs = {(old, new) for old, new in zip(before, after, strict=True) if old != new}
    assert len({new for _, new in pairs}) == len(pairs) == len({old for old, _ in pairs}), (
        "each old name must have its own new name"
    )
    assert not {new for _, new in pairs} & {*before, *reserved_words()}
    assert tree_and_errors(text.encode(), language) == tree_and_errors(variant.encode(), language)


TRAITS = [getattr(symtable.Symbol, name) for name in dir(symtable.Symbol) if name.startswith("is_")]


def assert_only_locals_differ(before: bytes, after: bytes) -> int:
    """Assert that only local names differ. Return the number of changed names."""
    olds, news = list(ast.walk(ast.parse(before))), list(ast.walk(ast.parse(after)))
    assert len(olds) == len(news)
    changed = {}
    for old, new in zip(olds, news, strict=True):
        assert type(old) is type(new)
        for field in old._fields:
            old_value, new_value = getattr(old, field, None), getattr(new, field, None)
            if isinstance(old_value, ast.AST | list):
                continue
            if old_value != new_value:
                assert (type(old), field) in {(ast.Name, "id"), (ast.ExceptHandler, "name")}
                assert changed.setdefault(old_value, new_value) == new_value
    assert len(set(changed.values())) == len(changed)
    if sys.version_info < (3, 12):  # Python 3.12 lists the names of a comprehension in the enclosing scope
        assert_same_symbols(*(symtable.symtable(text, "a.py", "exec") for text in (before, after)))
    return len(changed)


def assert_same_symbols(before: symtable.SymbolTable, after: symtable.SymbolTable) -> None:
    assert (before.get_type(), before.get_name()) == (after.get_type(), after.get_name())
    olds, news = before.get_symbols(), after.get_symbols()
    for old, new in zip(olds, news, strict=True):
        assert [trait(old) for trait in TRAITS] == [trait(new) for trait in TRAITS]
        if old.get_name() != new.get_name():
            assert not old.is_global()
            assert not old.is_parameter()
            assert not old.is_imported()
            assert before.get_type() == "function" or old.is_free()
    for old, new in zip(before.get_children(), after.get_children(), strict=True):
        assert_same_symbols(old, new)


def test_only_local_names_change_in_real_code(own_files, corpus):
    num_renamed = num_trees = 0
    for path in (*own_files[::4], *sorted(corpus.rglob("*.py"))[::4]):
        text = path.read_bytes()
        variant = rename(parse(text, "python"), SeededRandom(path.name))
        if variant is not None:
            num_renamed += assert_only_locals_differ(text, variant)
            compile(variant, path, "exec")
            num_trees += 1
            if num_trees % 4 == 0:
                assert tree_and_errors(text, "python") == tree_and_errors(variant, "python")
    assert num_renamed > 2_500


HOSTILE = {
    "empty": b"",
    "junk": bytes(range(256)) * 100,
    "deep brackets": b"def f():\n x = " + b"(" * 50_000,
    "deep functions": b"x = " + b"lambda a: " * 1_000 + b"a",
    "deep blocks": b"void f(int a) " + b"{ int a; a;" * 1_000,
    "deep arrows": b"a => " * 1_000,
    "a long line": b"def f(a): x = " + b"a + x + " * 125_000 + b"1",
    "a long list": b"function f(a) { var x = [" + b"a, x, " * 20_000 + b"]; x }",
    "many names": b"def f():\n" + b"".join(b" name_%d = 1\n" % number for number in range(2_000)),
    "errors": b"def f(): x = 1 + )\n" * 300,
    "one word": b"a" * 1_000_000,
    "broken utf-8": b"def f():\n x\xff = 1\n y = 2\n return y, '\xff'",
    "a pattern": b"let " + b"[" * 20_000 + b"a",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("language", GRAMMARS)
@pytest.mark.timeout(30)
def test_renaming_of_hostile_texts_terminates(language, name):
    variant = rename(parse(HOSTILE[name], language), SeededRandom(1))
    assert variant is None or len(variant) > 0


@pytest.mark.parametrize("language", GRAMMARS)
def test_renaming_is_deterministic_for_a_seed(language):
    text = "\n".join(re.sub(MARK, "", case) for case in CASES.get(language, {"": "a"}).values())
    variants = [rename(parse(text.encode(), language), SeededRandom(seed)) for seed in (1, 1, 2)]
    assert variants[0] == variants[1]
    assert variants[0] is None or variants[0] != variants[2]


def test_word_lists_are_lowercase_and_python_names_are_reserved():
    pools = [read_word_list(name) for name in ("modifiers", "nouns", "short")]
    assert all(word.isascii() and word.islower() and word.isalpha() for pool in pools for word in pool)
    assert {name for name in dir(builtins) if name.islower() and name[0] != "_"} <= reserved_words()
    assert {*keyword.kwlist, *keyword.softkwlist} <= keywords()
    assert not {*pools[2]} & reserved_words()
    assert len({*pools[1]} - reserved_words()) > 200


@pytest.mark.parametrize(
    ("old", "language", "pattern"),
    [
        (b"i", "python", rb"[a-z]{1,2}"),
        (b"count", "python", rb"[a-z]{3,}"),
        (b"user_count", "javascript", rb"[a-z]+_[a-z]+"),
        (b"userCount", "python", rb"[a-z]+[A-Z][a-z]+"),
        (b"_unused", "rust", rb"_[a-z]{3,}"),
        (b"number_of_all_users", "go", rb"[a-z]+_[a-z]+_[a-z]+"),
    ],
)
def test_new_name_has_the_style_of_the_old_one(old, language, pattern):
    for seed in range(50):
        assert re.fullmatch(pattern, NameGenerator(set(), SeededRandom(seed)).similar_to(old, language))


def test_names_never_run_out_and_never_repeat():
    text = b"margin the_row"
    generator = NameGenerator(find_words(text), SeededRandom(1))
    names = [generator.similar_to(b"x", "python") for _ in range(5_000)]
    assert len({*names, b"margin", b"the_row"}) == 5_002
    assert all(may_be_renamed(name) and name.decode() not in keywords() for name in names)


@pytest.mark.parametrize("language", GRAMMARS)
def test_every_grammar_has_a_query(language):
    assert "@use" in load_query(language)


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return [x  # the item\n            for x in x]\nprint(f([1, 2]))\n",
        "def f(name):\n    return tuple(name.upper()  # each\n        for name in name.split())\nprint(f('a b'))\n",
        "def f(k):\n    return {k: 1  # one\n        # and one more\n        for k in k}\nprint(f('ab'))\n",
        "def f():\n    value = 3\n    return locals ()['value']\nprint(f())\n",
        "def f():\n    value = 3\n    run = eval\n    return run('value')\nprint(f())\n",
        "def f():\n    value = 3\n    return [one for one in map(eval, ['value'])] if not value else value\nprint(f())\n",
        "import sys\ndef look():\n    return sys._getframe(1).f_locals['city']\ndef f():\n    city = 'x'\n    return look()\nprint(f())\n",
        "from __future__ import annotations\ndef f():\n    kind = int\n    def g(a: kind): pass\n    return g.__annotations__\nprint(f())\n",
    ],
)
def test_output_of_a_renamed_program_is_the_same(text):
    def run_and_capture(source):
        completed = subprocess.run(
            [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True
        )
        return completed.stdout

    variants = {rename(parse(text.encode(), "python"), SeededRandom(seed)) for seed in range(3)} - {None}
    for variant in variants:
        assert run_and_capture(variant.decode()) == run_and_capture(text)
