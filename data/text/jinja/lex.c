/* Source → tokens, with Jinja's white-space rules (trim_blocks and lstrip_blocks on).
 *
 * Read lex_text first: it walks the literal text from tag to tag. lex_tag splits the inside of {{
 * }} and {% %} into tokens; comments are dropped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/text/jinja/ast.h"
#include "data/text/jinja/unicode.h"

/* ---- names, numbers and string literals, in Python's syntax ---- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_digit_of(char c, int base) {
    if (base <= 10)
        return c >= '0' && c < '0' + base;
    return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) < 'a' + base - 10);
}

/* Reads digits with single underscores between them; returns the position after the last one. */
static size_t digits_end(const char *s, size_t len, size_t p, int base) {
    while (p < len && (is_digit_of(s[p], base) ||
                       (s[p] == '_' && p + 1 < len && is_digit_of(s[p + 1], base)))) {
        p++;
    }
    return p;
}

/* The end of a float whose digits before the point end at `whole`; returns `whole` for an
 * integer. */
static size_t float_end(const char *s, size_t len, size_t whole) {
    size_t p = whole;
    if (p + 1 < len && s[p] == '.' && is_digit(s[p + 1]))
        p = digits_end(s, len, p + 1, 10);
    if (p < len && (s[p] == 'e' || s[p] == 'E')) {
        size_t e = p + 1;
        e += e < len && (s[e] == '+' || s[e] == '-');
        if (e < len && is_digit(s[e]))
            return digits_end(s, len, e, 10);
    }
    return p;
}

static enum ax_status read_float(struct ax_jtree *t, const char *s, size_t n, struct ax_jval *out) {
    char *text;
    AX_TRY(ax_jarena_alloc(t->arena, &text, n + 1, 1));
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i] != '_')
            text[k++] = s[i];
    text[k] = '\0';
    *out = ax_jreal(strtod(text, NULL));
    return AX_OK;
}

/* Each reads a literal at pos and sets *end after it; *end = pos if there is none. */
static enum ax_status jlex_number(struct ax_jtree *t, int line, const char *s, size_t len,
                                  size_t pos, struct ax_jtoken *out, size_t *end) {
    size_t whole = digits_end(s, len, pos, 10);
    bool after_dot = pos > 0 && s[pos - 1] == '.'; /* x.0.1 is x[0][1] */
    *end = after_dot ? whole : float_end(s, len, whole);
    if (*end > whole) {
        out->kind = AX_JT_NUMBER;
        return read_float(t, s + pos, *end - pos, &out->value);
    }
    out->kind = AX_JT_INTEGER;
    if (s[pos] == '0') {
        if (pos + 1 < len && strchr("xXoObB", s[pos + 1]) != NULL && s[pos + 1] != '\0')
            return ax_jtree_error(t, line, "an integer in base 2, 8 or 16 is not supported");
        *end = digits_end(s, len, pos, 1); /* 012 is read as 0 and 12, which is a syntax error */
    }
    int64_t value = 0;
    for (size_t i = pos; i < *end; i++) {
        if (s[i] != '_' && (__builtin_mul_overflow(value, 10, &value) ||
                            __builtin_add_overflow(value, s[i] - '0', &value))) {
            return ax_jtree_error(t, line, "an integer of more than 64 bits is not supported");
        }
    }
    out->value = ax_jint(value);
    return AX_OK;
}

static enum ax_status jlex_name(struct ax_jtree *t, const char *s, size_t len, size_t pos,
                                struct ax_jtoken *out, size_t *end) {
    size_t p = pos;
    for (size_t next = p; p < len; p = next) {
        const uint32_t c = ax_python_next(s, &next);
        if (c != '_' && !ax_unicode_is_word(c))
            break;
    }
    *end = p;
    if (p == pos)
        return AX_OK;
    out->kind = AX_JT_NAME;
    out->value.kind = AX_JSTR;
    return ax_jstr_borrow(t->arena, &out->value.str, s + pos, p - pos);
}

/* Position after the quote that closes the one at pos, or 0. */
static size_t jlex_string_end(const char *s, size_t len, size_t pos) {
    for (size_t p = pos + 1; p < len; p++) {
        if (s[p] == s[pos])
            return p + 1;
        p += s[p] == '\\';
    }
    return 0;
}

/* ---- escapes ---- */

/* \xHH, \uHHHH, \UHHHHHHHH; *p moves from the letter to the last digit. */
static enum ax_status hex_escape(struct ax_jtree *t, int line, const char *s, size_t len, size_t *p,
                                 uint32_t *c) {
    const size_t n = s[*p] == 'x' ? 2 : s[*p] == 'u' ? 4 : 8;
    const char letter = s[*p];
    *c = 0;
    for (size_t i = 0; i < n; i++) {
        ++*p;
        if (*p >= len || !is_digit_of(s[*p], 16))
            return ax_jtree_error(t, line, "\\%c needs %zu hexadecimal digits", letter, n);
        *c = *c << 4 | (uint32_t)(is_digit(s[*p]) ? s[*p] - '0' : (s[*p] | 0x20) - 'a' + 10);
    }
    if (*c > 0x10ffff || (*c >= 0xd800 && *c <= 0xdfff))
        return ax_jtree_error(t, line, "\\%c%0*X is not a character", letter, (int)n, (unsigned)*c);
    return AX_OK;
}

/* The escape at s[*p], after its backslash; *p moves to its last byte. Writes *n bytes to buf. */
static enum ax_status escape(struct ax_jtree *t, int line, const char *s, size_t len, size_t *p,
                             char buf[4], size_t *n) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = s[*p];
    const char *k = c != '\0' ? strchr(from, c) : NULL;
    uint32_t code = 0;
    *n = 0;
    if (c == '\n')
        return AX_OK; /* a line continuation */
    if (k != NULL) {
        buf[(*n)++] = to[k - from];
        return AX_OK;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
        AX_TRY(hex_escape(t, line, s, len, p, &code));
        *n = ax_utf8_encode(code, buf);
        return AX_OK;
    }
    if (c == 'N' || is_digit(c) || (unsigned char)c >= 0x80) {
        return ax_jtree_error(t, line,
                              "a backslash before N, a digit or a non-ASCII letter is not "
                              "supported: use \\u and the code point");
    }
    buf[(*n)++] = '\\';
    buf[(*n)++] = c;
    return AX_OK;
}

/* The text of a string literal between its quotes (escapes as in Python). */
static enum ax_status jlex_string(struct ax_jtree *t, int line, const char *s, size_t len,
                                  struct ax_jstr **out) {
    char *text;
    AX_TRY(ax_jarena_alloc(t->arena, &text, len + 4, 1)); /* escapes never grow */
    size_t n = 0;
    for (size_t p = 0; p < len; p++) {
        if (s[p] != '\\') {
            text[n++] = s[p];
            continue;
        }
        size_t k;
        p++;
        AX_TRY(escape(t, line, s, len, &p, text + n, &k));
        n += k;
    }
    return ax_jstr_borrow(t->arena, out, text, n);
}

struct lexer {
    struct ax_jtree *tree;
    const char *s;
    size_t len, pos;
    int line;
    int open;        /* open brackets in this tag, inside which the tag cannot end */
    bool line_start; /* true after a newline and at the start */
    struct ax_jtoken *tokens;
    size_t n, cap;
};

static enum ax_status push(struct lexer *lx, struct ax_jtoken t) {
    if (lx->n == lx->cap) {
        size_t cap = lx->cap > 0 ? 2 * lx->cap : 256;
        struct ax_jtoken *tokens;
        AX_TRY(ax_jarena_alloc(lx->tree->arena, &tokens, cap, sizeof *tokens));
        if (lx->n > 0)
            memcpy(tokens, lx->tokens, lx->n * sizeof *tokens);
        lx->tokens = tokens;
        lx->cap = cap;
    }
    lx->tokens[lx->n++] = t;
    return AX_OK;
}

/* Advances to `end`, counting lines. */
static void advance(struct lexer *lx, size_t end) {
    for (size_t i = lx->pos; i < end; i++)
        lx->line += lx->s[i] == '\n';
    if (end > lx->pos)
        lx->line_start = lx->s[end - 1] == '\n';
    lx->pos = end;
}

static size_t skip_space(const struct lexer *lx, size_t p) {
    while (p < lx->len) {
        size_t next = p;
        if (!ax_python_is_space(ax_python_next(lx->s, &next)))
            break;
        p = next;
    }
    return p;
}

static bool at(const struct lexer *lx, size_t p, const char *text) {
    size_t n = strlen(text);
    return p <= lx->len && n <= lx->len - p && memcmp(lx->s + p, text, n) == 0;
}

/* ---- literal text ---- */

/* Emits the text [pos, end) before a tag, stripped as the tag's sign requests. */
static enum ax_status text_before(struct lexer *lx, size_t end, char sign, bool is_print) {
    size_t stop = end;
    if (sign == '-') {
        while (stop > lx->pos) {
            size_t p = stop;
            if (!ax_python_is_space(ax_python_prev(lx->s, &p)))
                break;
            stop = p;
        }
    } else if (sign != '+' && !is_print) {
        size_t line = end;
        while (line > lx->pos && lx->s[line - 1] != '\n')
            line--;
        if ((line > lx->pos || lx->line_start) && skip_space(lx, line) >= end)
            stop = line;
    }
    if (stop > lx->pos) {
        struct ax_jtoken t = {.kind = AX_JT_DATA, .line = lx->line, .value.kind = AX_JSTR};
        AX_TRY(ax_jstr_borrow(lx->tree->arena, &t.value.str, lx->s + lx->pos, stop - lx->pos));
        AX_TRY(push(lx, t));
    }
    advance(lx, end);
    return AX_OK;
}

/* The end of a block or comment tag at p, or 0 if it does not end here. `close` is "%}" or "#}". */
static size_t tag_end(const struct lexer *lx, size_t p, const char *close) {
    if (at(lx, p, close)) {
        p += 2;
        return p + at(lx, p, "\n");
    }
    if (p < lx->len && (lx->s[p] == '-' || lx->s[p] == '+') && at(lx, p + 1, close))
        return lx->s[p] == '-' ? skip_space(lx, p + 3) : p + 3;
    return 0;
}

static enum ax_status comment(struct lexer *lx) {
    for (size_t p = lx->pos; p < lx->len; p++) {
        size_t end = tag_end(lx, p, "#}");
        if (end != 0) {
            advance(lx, end);
            return AX_OK;
        }
    }
    if (lx->pos < lx->len)
        return ax_jtree_error(lx->tree, lx->line, "a comment {# is never closed");
    return AX_OK;
}

/* ---- inside tags ---- */

static const struct {
    char text[3];
    enum ax_jop op;
} operators[] = {
    {"//", AX_JOP_FLOORDIV}, {"**", AX_JOP_POW},      {"==", AX_JOP_EQ},    {"!=", AX_JOP_NE},
    {">=", AX_JOP_GE},       {"<=", AX_JOP_LE},       {"+", AX_JOP_ADD},    {"-", AX_JOP_SUB},
    {"/", AX_JOP_DIV},       {"*", AX_JOP_MUL},       {"%", AX_JOP_MOD},    {"~", AX_JOP_TILDE},
    {"[", AX_JOP_LBRACKET},  {"]", AX_JOP_RBRACKET},  {"(", AX_JOP_LPAREN}, {")", AX_JOP_RPAREN},
    {"{", AX_JOP_LBRACE},    {"}", AX_JOP_RBRACE},    {">", AX_JOP_GT},     {"<", AX_JOP_LT},
    {"=", AX_JOP_ASSIGN},    {".", AX_JOP_DOT},       {":", AX_JOP_COLON},  {"|", AX_JOP_PIPE},
    {",", AX_JOP_COMMA},     {";", AX_JOP_SEMICOLON},
};

const char *ax_jop_text(enum ax_jop op) {
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (operators[i].op == op)
            return operators[i].text;
    return op == AX_JOP_IN ? "in" : op == AX_JOP_NOT_IN ? "not in" : "";
}

static enum ax_status operator_token(struct lexer *lx) {
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (at(lx, lx->pos, operators[i].text)) {
            const char c = operators[i].text[0];
            lx->open += c == '(' || c == '[' || c == '{';
            lx->open -= (c == ')' || c == ']' || c == '}') && lx->open > 0;
            struct ax_jtoken t = {.kind = AX_JT_OP, .op = operators[i].op, .line = lx->line};
            AX_TRY(push(lx, t));
            advance(lx, lx->pos + strlen(operators[i].text));
            return AX_OK;
        }
    }
    size_t p = lx->pos;
    uint32_t c = ax_python_next(lx->s, &p);
    return ax_jtree_error(lx->tree, lx->line, "unexpected character %.*s (U+%04X)",
                          (int)(p - lx->pos), lx->s + lx->pos, (unsigned)c);
}

static enum ax_status one_token(struct lexer *lx) {
    const char *s = lx->s;
    unsigned char c = (unsigned char)s[lx->pos];
    struct ax_jtoken t = {.line = lx->line};
    size_t end = lx->pos;
    if (c >= '0' && c <= '9') {
        AX_TRY(jlex_number(lx->tree, lx->line, s, lx->len, lx->pos, &t, &end));
    } else if (c == '\'' || c == '"') {
        end = jlex_string_end(s, lx->len, lx->pos);
        if (end == 0)
            return ax_jtree_error(lx->tree, lx->line, "a string literal is never closed");
        t.kind = AX_JT_STRING;
        t.value.kind = AX_JSTR;
        AX_TRY(jlex_string(lx->tree, lx->line, s + lx->pos + 1, end - lx->pos - 2, &t.value.str));
    } else {
        AX_TRY(jlex_name(lx->tree, s, lx->len, lx->pos, &t, &end));
    }
    if (end == lx->pos)
        return operator_token(lx);
    if (t.value.kind == AX_JSTR) { /* computed now, because threads share the result */
        ax_jstr_chars(t.value.str);
        ax_jstr_hash(t.value.str);
    }
    AX_TRY(push(lx, t));
    advance(lx, end);
    return AX_OK;
}

/* Reads from after "{{" or "{%" to the end of the tag, or of the source. */
static enum ax_status lex_tag(struct lexer *lx, bool is_print) {
    lx->open = 0;
    while (lx->pos < lx->len) {
        if (lx->open == 0) {
            size_t end = 0;
            if (!is_print)
                end = tag_end(lx, lx->pos, "%}");
            else if (at(lx, lx->pos, "}}"))
                end = lx->pos + 2;
            else if (at(lx, lx->pos, "-}}"))
                end = skip_space(lx, lx->pos + 3);
            if (end != 0) {
                struct ax_jtoken t = {.kind = is_print ? AX_JT_PRINT_END : AX_JT_BLOCK_END,
                                      .line = lx->line};
                AX_TRY(push(lx, t));
                advance(lx, end);
                return AX_OK;
            }
        }
        size_t behind = skip_space(lx, lx->pos);
        if (behind > lx->pos)
            advance(lx, behind);
        else
            AX_TRY(one_token(lx));
    }
    return AX_OK;
}

/* Reads the literal text at pos and the tag that follows it, if any. */
static enum ax_status lex_text(struct lexer *lx) {
    size_t p = lx->pos;
    while (p < lx->len && !(lx->s[p] == '{' && p + 1 < lx->len &&
                            (lx->s[p + 1] == '{' || lx->s[p + 1] == '%' || lx->s[p + 1] == '#'))) {
        p++;
    }
    if (p == lx->len)
        return text_before(lx, p, '+', false);
    char kind = lx->s[p + 1];
    size_t behind = p + 2;
    char sign = behind < lx->len ? lx->s[behind] : 0;
    if (sign == '-' || sign == '+')
        behind++;
    AX_TRY(text_before(lx, p, sign, kind == '{'));
    struct ax_jtoken t = {.kind = kind == '{' ? AX_JT_PRINT_BEGIN : AX_JT_BLOCK_BEGIN,
                          .line = lx->line};
    advance(lx, behind);
    if (kind == '#')
        return comment(lx);
    AX_TRY(push(lx, t));
    return lex_tag(lx, kind == '{');
}

enum ax_status ax_jlex(struct ax_jtree *t, const char *source, size_t len,
                       struct ax_jtoken **tokens, size_t *n) {
    struct lexer lx = {.tree = t, .s = source, .len = len, .line = 1, .line_start = true};
    while (lx.pos < lx.len)
        AX_TRY(lex_text(&lx));
    AX_TRY(push(&lx, (struct ax_jtoken){.kind = AX_JT_EOF, .line = lx.line}));
    *tokens = lx.tokens;
    *n = lx.n;
    return AX_OK;
}
