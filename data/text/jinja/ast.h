/* The syntax tree of a template, and the data passed between its two passes: lex.c (source →
 * tokens), parse.c and parse_expr.c (tokens → tree). The finished tree is read-only and shared by
 * threads. */
#ifndef AX_DATA_TEXT_JINJA_AST_H
#define AX_DATA_TEXT_JINJA_AST_H

#include "data/text/jinja/value.h"

struct ax_jbuiltin;

/* ---- tokens ---- */

enum ax_jtoken_kind {
    AX_JT_EOF,
    AX_JT_DATA,
    AX_JT_PRINT_BEGIN, /* {{ */
    AX_JT_PRINT_END,
    AX_JT_BLOCK_BEGIN, /* {% */
    AX_JT_BLOCK_END,
    AX_JT_NAME,
    AX_JT_STRING,
    AX_JT_NUMBER,
    AX_JT_INTEGER,
    AX_JT_OP /* op is the operator */
};

enum ax_jop {
    AX_JOP_NONE,
    AX_JOP_ADD,
    AX_JOP_SUB,
    AX_JOP_MUL,
    AX_JOP_DIV,
    AX_JOP_FLOORDIV,
    AX_JOP_MOD,
    AX_JOP_POW,
    AX_JOP_TILDE,
    AX_JOP_EQ,
    AX_JOP_NE,
    AX_JOP_LT,
    AX_JOP_LE,
    AX_JOP_GT,
    AX_JOP_GE,
    AX_JOP_IN,
    AX_JOP_NOT_IN,
    AX_JOP_ASSIGN,
    AX_JOP_DOT,
    AX_JOP_COMMA,
    AX_JOP_COLON,
    AX_JOP_SEMICOLON,
    AX_JOP_PIPE,
    AX_JOP_LPAREN,
    AX_JOP_RPAREN,
    AX_JOP_LBRACKET,
    AX_JOP_RBRACKET,
    AX_JOP_LBRACE,
    AX_JOP_RBRACE
};

struct ax_jtoken {
    enum ax_jtoken_kind kind;
    enum ax_jop op;
    int line;
    struct ax_jval value; /* data, names and strings as AX_JSTR; numbers */
};

/* ---- tree ---- */

enum ax_jnode_kind {
    /* expressions */
    AX_JN_CONST,
    AX_JN_NAME,
    AX_JN_NSREF, /* name.attr as a target */
    AX_JN_TUPLE,
    AX_JN_LIST,
    AX_JN_DICT, /* items: key, value, key, value … */
    AX_JN_COND,
    AX_JN_OR,
    AX_JN_AND,
    AX_JN_NOT,
    AX_JN_NEG,
    AX_JN_POS,
    AX_JN_BINARY, /* + - ~ * / // % ** */
    AX_JN_COMPARE,
    AX_JN_GETATTR,
    AX_JN_GETITEM,
    AX_JN_SLICE,
    AX_JN_CALL,
    AX_JN_FILTER,
    AX_JN_TEST,
    /* statements */
    AX_JN_DATA,
    AX_JN_PRINT,
    AX_JN_FOR,
    AX_JN_IF,
    AX_JN_ASSIGN,
    AX_JN_SET_BLOCK,
    AX_JN_MACRO,
    AX_JN_FILTER_BLOCK,
    AX_JN_GENERATION,
    AX_JN_BREAK,
    AX_JN_CONTINUE
};

struct ax_jnodes {
    struct ax_jnode **items;
    size_t n, cap;
};

/* Arguments of a call, filter or test. */
struct ax_jargs {
    struct ax_jnodes positional;
    struct ax_jnodes keyword; /* key (a CONST), value, key, value … */
    struct ax_jnode *star;    /* *args, or NULL */
};

struct ax_jnode {
    enum ax_jnode_kind kind;
    int line;
    union {
        struct ax_jval value;   /* CONST */
        struct ax_jstr *text;   /* DATA */
        struct ax_jnodes items; /* TUPLE, LIST, DICT */
        struct {
            uint32_t number;      /* index into ax_jtree.names */
            struct ax_jstr *attr; /* NSREF */
        } name;
        struct {
            enum ax_jop op;
            struct ax_jnode *left, *right; /* right: AND, OR, BINARY, COMPARE */
        } binary;                          /* also NOT, NEG, POS */
        struct {
            struct ax_jnode *test, *yes, *no; /* no may be NULL */
        } cond;
        struct {
            struct ax_jnode *of;
            struct ax_jstr *attr;                 /* GETATTR */
            struct ax_jnode *key;                 /* GETITEM */
            struct ax_jnode *start, *stop, *step; /* SLICE; may be NULL */
        } get;
        struct {
            struct ax_jnode *of; /* callee or piped value; NULL for a block's text */
            struct ax_jargs args;
            struct ax_jstr *name;         /* FILTER, TEST */
            const struct ax_jbuiltin *fn; /* FILTER, TEST; NULL: unknown, fails when reached */
        } call;
        struct ax_jnode *print; /* PRINT */
        struct {
            struct ax_jnode *target, *iter, *test; /* test may be NULL */
            struct ax_jnodes body, otherwise;
        } loop;
        struct {
            struct ax_jnode *test; /* NULL: else */
            struct ax_jnodes body;
            struct ax_jnode *next; /* elif or else */
        } branch;
        struct {
            struct ax_jnode *target;
            struct ax_jnode *value;  /* ASSIGN */
            struct ax_jnode *filter; /* SET_BLOCK, FILTER_BLOCK: chain, innermost `of` NULL */
            struct ax_jnodes body;
        } assign;
        struct {
            struct ax_jnode *name;             /* NULL for GENERATION */
            struct ax_jnodes params, defaults; /* defaults belong to the last params */
            struct ax_jnodes body;
        } macro; /* also GENERATION */
    };
};

/* ---- a compiled template ---- */

struct ax_jtree {
    struct ax_jarena *arena;
    const char *name; /* for messages */
    struct ax_jnodes body;
    struct ax_jdict *names; /* name of each variable → its number, in order of appearance */
    uint32_t loop;          /* number of the variable `loop` */
    struct ax_jdict *words; /* attribute names and string literals, each once */
    bool has_generation;
};

/* Maximum nesting of tags, brackets and operands. */
#define AX_JHEIGHT_MAX 600

const char *ax_jop_text(enum ax_jop op); /* "==" */

/* Sets "NAME:LINE: text"; the macro evaluates to AX_ERR_DATA, as ax_error() does. */
void ax_jtree_set_error(const struct ax_jtree *t, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define ax_jtree_error(t, line, ...) (ax_jtree_set_error((t), (line), __VA_ARGS__), AX_ERR_DATA)

/* The tokens of a template, AX_JT_EOF last. The source is UTF-8 without carriage returns. */
enum ax_status ax_jlex(struct ax_jtree *t, const char *source, size_t len,
                       struct ax_jtoken **tokens, size_t *n);
enum ax_status ax_jparse(struct ax_jtree *t, const struct ax_jtoken *tokens);
#endif
