/* Reading model.vocab and model.merges. Read ax_vocab_json_find first. See vocab_json.h. */
#include "data/text/vocab/vocab_json.h"

#include <string.h>

#include "base/text/unicode.h"

enum { MAX_DEPTH = 512 };

struct scanner {
    const char *s;
    size_t len, at;
};

/* --- tokens of JSON; all return false on bad syntax --- */

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void skip_space(struct scanner *c) {
    while (c->at < c->len && is_space(c->s[c->at]))
        c->at++;
}

static bool take(struct scanner *c, char want) {
    skip_space(c);
    if (c->at >= c->len || c->s[c->at] != want)
        return false;
    c->at++;
    return true;
}

/* Skips the string at c. */
static bool skip_string(struct scanner *c) {
    if (!take(c, '"'))
        return false;
    for (; c->at < c->len && c->s[c->at] != '"'; c->at++) {
        if ((unsigned char)c->s[c->at] < 0x20)
            return false;
        if (c->s[c->at] == '\\')
            c->at++;
    }
    return take(c, '"');
}

/* Skips a value. Checks only strings and brackets, which determine its end; base/json checks the
 * rest. */
static bool skip_value(struct scanner *c) {
    size_t depth = 0;
    do {
        skip_space(c);
        if (c->at >= c->len)
            return false;
        char ch = c->s[c->at];
        if (ch == '"') {
            if (!skip_string(c))
                return false;
            continue;
        }
        if (ch == '{' || ch == '[') {
            if (++depth > MAX_DEPTH)
                return false;
        } else if (ch == '}' || ch == ']') {
            if (depth-- == 0)
                return false;
        } else if (depth == 0) { /* a number or a word */
            while (c->at < c->len && strchr(",}] \t\r\n", c->s[c->at]) == NULL)
                c->at++;
            return true;
        }
        c->at++;
    } while (depth > 0);
    return true;
}

static int hex4(struct scanner *c) {
    int value = 0;
    if (c->len - c->at < 4)
        return -1;
    for (size_t i = 0; i < 4; i++) {
        char ch = c->s[c->at++];
        int digit = ch >= '0' && ch <= '9'   ? ch - '0'
                    : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
                    : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                             : -1;
        if (digit < 0)
            return -1;
        value = 16 * value + digit;
    }
    return value;
}

/* Reads what follows \u. A surrogate pair is one code point, a single surrogate an error. */
static bool unicode_escape(struct scanner *c, uint32_t *cp) {
    int high = hex4(c), low;
    if (high < 0 || (high >= 0xdc00 && high <= 0xdfff))
        return false;
    *cp = (uint32_t)high;
    if (high < 0xd800 || high > 0xdbff)
        return true;
    if (c->len - c->at < 2 || c->s[c->at] != '\\' || c->s[c->at + 1] != 'u')
        return false;
    c->at += 2;
    low = hex4(c);
    if (low < 0xdc00 || low > 0xdfff)
        return false;
    *cp = 0x10000 + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
    return true;
}

/* Appends a string's value to out. */
static enum ax_status read_string(struct scanner *c, struct ax_buf *out, bool *ok) {
    *ok = take(c, '"');
    while (*ok) {
        size_t start = c->at;
        while (c->at < c->len && c->s[c->at] != '"' && c->s[c->at] != '\\' &&
               (unsigned char)c->s[c->at] >= 0x20)
            c->at++;
        AX_TRY(ax_buf_append(out, c->s + start, c->at - start));
        *ok = c->at + 1 < c->len && (c->s[c->at] == '"' || c->s[c->at] == '\\');
        if (!*ok || c->s[c->at++] == '"')
            return AX_OK;
        char ch = c->s[c->at++], text[4];
        static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
        const char *known = ch != '\0' ? strchr(names, ch) : NULL;
        if (known != NULL) {
            AX_TRY(ax_buf_append(out, &values[known - names], 1));
            continue;
        }
        uint32_t cp = 0;
        *ok = ch == 'u' && unicode_escape(c, &cp);
        if (*ok)
            AX_TRY(ax_buf_append(out, text, ax_utf8_encode(cp, text)));
    }
    return AX_OK;
}

/* --- finding --- */

/* Steps through the members of the object at c; key is its raw text. */
static bool next_member(struct scanner *c, bool *first, struct ax_json_stretch *key) {
    skip_space(c);
    if (c->at < c->len && c->s[c->at] == '}')
        return false;
    if (!*first && !take(c, ','))
        return false;
    *first = false;
    skip_space(c);
    key->start = c->at + 1;
    if (!skip_string(c))
        return false;
    key->end = c->at - 1;
    return take(c, ':');
}

static bool key_is(const struct scanner *c, struct ax_json_stretch key, const char *want) {
    size_t n = strlen(want);
    return key.end - key.start == n && memcmp(c->s + key.start, want, n) == 0;
}

static bool find_in_model(struct scanner *c, struct ax_vocab_json *j) {
    bool first = true;
    struct ax_json_stretch key;
    if (!take(c, '{'))
        return false;
    while (next_member(c, &first, &key)) {
        skip_space(c);
        size_t start = c->at;
        if (!skip_value(c))
            return false;
        struct ax_json_stretch value = {start, c->at};
        if (key_is(c, key, "vocab") && c->s[start] == '{')
            j->vocab = value;
        if (key_is(c, key, "merges") && c->s[start] == '[')
            j->merges = value;
    }
    return take(c, '}');
}

bool ax_vocab_json_find(struct ax_vocab_json *j) {
    struct scanner c = {j->text, j->len, 0};
    struct ax_json_stretch key;
    bool first = true;
    if (j->len >= 3 && memcmp(j->text, "\xef\xbb\xbf", 3) == 0)
        c.at = 3;
    if (!take(&c, '{'))
        return false;
    while (next_member(&c, &first, &key)) {
        skip_space(&c);
        bool model = key_is(&c, key, "model") && c.at < c.len && c.s[c.at] == '{';
        if (model ? !find_in_model(&c, j) : !skip_value(&c))
            return false;
    }
    return take(&c, '}');
}

static void blank(char *text, struct ax_json_stretch s) {
    for (size_t i = s.start + 1; i + 1 < s.end; i++)
        if (text[i] != '\n')
            text[i] = ' ';
}

void ax_vocab_json_blank(struct ax_vocab_json *j) {
    blank(j->text, j->vocab);
    blank(j->text, j->merges);
}

/* --- reading --- */

static enum ax_status bad_value(const struct ax_vocab_json *j, const struct scanner *c,
                                const char *key, size_t index, const char *want) {
    size_t line = 1;
    for (size_t i = 0; i < c->at && i < j->len; i++)
        line += j->text[i] == '\n';
    return ax_error(AX_ERR_DATA, "%s:%zu: model.%s[%zu]: expected %s", j->name, line, key, index,
                    want);
}

/* Reads a non-negative integer that ends the member. */
static bool read_id(struct scanner *c, int64_t *id) {
    skip_space(c);
    size_t start = c->at;
    for (*id = 0; c->at < c->len && c->s[c->at] >= '0' && c->s[c->at] <= '9'; c->at++)
        *id = *id > INT64_MAX / 16 ? *id : *id * 10 + (c->s[c->at] - '0');
    size_t digits = c->at - start;
    skip_space(c);
    return digits > 0 && (digits == 1 || c->s[start] != '0') && c->at < c->len &&
           (c->s[c->at] == ',' || c->s[c->at] == '}');
}

enum ax_status ax_vocab_json_read_vocab(const struct ax_vocab_json *j, struct ax_vocab *vocab) {
    struct scanner c = {j->text, j->vocab.end, j->vocab.start + 1};
    struct ax_buf token = {0};
    enum ax_status st = AX_OK;
    bool ok, more = !take(&c, '}');
    /* A token takes at least 6 bytes, so the text's length bounds the ids. */
    size_t expected = (j->vocab.end - j->vocab.start) / 16;
    for (size_t i = 0; more; i++) {
        int64_t id;
        token.len = 0;
        AX_TRY_GOTO(read_string(&c, &token, &ok), st, done);
        if (!ok || !take(&c, ':') || !read_id(&c, &id)) {
            st = bad_value(j, &c, "vocab", i, "\"token\": id");
            goto done;
        }
        st = ax_vocab_add(vocab, token.data, token.len, id, expected);
        if (st != AX_OK) {
            st = ax_error_prefix(st, "%s: model.vocab", j->name);
            goto done;
        }
        more = !take(&c, '}') && take(&c, ',');
    }
done:
    ax_buf_free(&token);
    return st;
}

/* Reads "a b" at c; *skip = true for the comment line that some files begin with. */
static enum ax_status read_line(struct scanner *c, struct ax_buf *text, size_t *left, bool *ok,
                                bool *skip) {
    AX_TRY(read_string(c, text, ok));
    if (!*ok)
        return AX_OK;
    *skip = text->len >= 8 && memcmp(text->data, "#version", 8) == 0;
    char *blank_at = memchr(text->data, ' ', text->len);
    *ok = *skip || blank_at != NULL;
    if (*skip || !*ok)
        return AX_OK;
    *left = (size_t)(blank_at - text->data);
    memmove(blank_at, blank_at + 1, text->len - *left - 1);
    text->len--;
    *ok = memchr(text->data, ' ', text->len) == NULL;
    return AX_OK;
}

/* Reads ["a", "b"] at c. */
static enum ax_status read_pair(struct scanner *c, struct ax_buf *text, size_t *left, bool *ok) {
    *ok = take(c, '[');
    if (*ok)
        AX_TRY(read_string(c, text, ok));
    *left = text->len;
    *ok = *ok && take(c, ',');
    if (*ok)
        AX_TRY(read_string(c, text, ok));
    *ok = *ok && take(c, ']');
    return AX_OK;
}

enum ax_status ax_vocab_json_read_merges(const struct ax_vocab_json *j,
                                         const struct ax_vocab *vocab, struct ax_bpe *bpe) {
    struct scanner c = {j->text, j->merges.end, j->merges.start + 1};
    struct ax_buf text = {0};
    enum ax_status st = AX_OK;
    skip_space(&c);
    bool ok, lines = c.s[c.at] == '"', more = !take(&c, ']');
    size_t rank = 0, left = 0, expected = (j->merges.end - j->merges.start) / 16;
    for (size_t i = 0; more; i++) {
        bool skip = false;
        text.len = 0;
        st = lines ? read_line(&c, &text, &left, &ok, &skip) : read_pair(&c, &text, &left, &ok);
        if (st == AX_OK && !ok)
            st = bad_value(j, &c, "merges", i, lines ? "\"left right\"" : "[\"left\", \"right\"]");
        if (st == AX_OK && !skip) {
            st = ax_bpe_add_merge_text(bpe, vocab, text.data, text.len, left, rank++, expected);
            if (st != AX_OK)
                st = ax_error_prefix(st, "%s: model.merges", j->name);
        }
        if (st != AX_OK)
            break;
        more = !take(&c, ']') && take(&c, ',');
    }
    ax_buf_free(&text);
    return st;
}
