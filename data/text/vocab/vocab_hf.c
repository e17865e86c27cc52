/* Loading an HF tokenizer: tokenizer.json, alone or in a folder: its two large members, read from the text,
 * then the others. Read ax_tokenizer_load first. */
#include "data/text/vocab/vocab_hf.h"

#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/text/unicode.h"
#include "ckpt/gguf/gguf.h"
#include "data/text/vocab/hf_class.h"
#include "data/text/vocab/mistral_files.h"
#include "data/text/vocab/vocab_sentencepiece.h"
#include "data/text/vocab/vocab_tekken.h"
#include "data/text/vocab/vocab_tiktoken.h"

enum { MAX_FILE = 256 * 1024 * 1024, MAX_DEPTH = 512 };

/* ---- model.vocab and model.merges, read without a JSON tree ----
 *
 * A tree of 250,000 small lists takes ten times the file's size and most of the startup time. So
 * these two are read directly from the text and then blanked out ("{}", "[]", the rest spaces).
 * base/json parses what is left, with the file's lines and columns. */

struct stretch {
    size_t start, end; /* range of a value in the text; 0, 0 = missing */
};

/* The text of a tokenizer.json, and where they are in it. */
struct large {
    const char *name; /* file name for messages */
    char *text;       /* borrowed, UTF-8 */
    size_t len;
    struct stretch vocab, merges; /* object, list; other types are left to base/json */
};

struct scanner {
    const char *s;
    size_t len, at;
};

/* ---- tokens of JSON; all return false on bad syntax ---- */

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

/* ---- finding ---- */

/* Steps through the members of the object at c; key is its raw text. */
static bool next_member(struct scanner *c, bool *first, struct stretch *key) {
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

static bool key_is(const struct scanner *c, struct stretch key, const char *want) {
    size_t n = strlen(want);
    return key.end - key.start == n && memcmp(c->s + key.start, want, n) == 0;
}

static bool find_in_model(struct scanner *c, struct large *j) {
    bool first = true;
    struct stretch key;
    if (!take(c, '{'))
        return false;
    while (next_member(c, &first, &key)) {
        skip_space(c);
        size_t start = c->at;
        if (!skip_value(c))
            return false;
        struct stretch value = {start, c->at};
        if (key_is(c, key, "vocab") && c->s[start] == '{')
            j->vocab = value;
        if (key_is(c, key, "merges") && c->s[start] == '[')
            j->merges = value;
    }
    return take(c, '}');
}

/* Finds them; false if the text is not JSON (base/json then says where). */
static bool find_large(struct large *j) {
    struct scanner c = {j->text, j->len, 0};
    struct stretch key;
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

static void blank(char *text, struct stretch s) {
    for (size_t i = s.start + 1; i + 1 < s.end; i++)
        if (text[i] != '\n')
            text[i] = ' ';
}

static void blank_large(struct large *j) {
    blank(j->text, j->vocab);
    blank(j->text, j->merges);
}

/* ---- reading ---- */

static enum ax_status bad_value(const struct large *j, const struct scanner *c, const char *key,
                                size_t index, const char *want) {
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

/* {"token": id, …} → vocab */
static enum ax_status read_vocab(const struct large *j, struct ax_vocab *vocab) {
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

/* ["a b", …] or [["a", "b"], …] → merges; every token in them must be in vocab. */
static enum ax_status read_merges(const struct large *j, const struct ax_vocab *vocab,
                                  struct ax_bpe *bpe) {
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

/* ---- the file ---- */

/* dir: the folder whose tokenizer this is, NULL: the text alone counts. */
static enum ax_status parse_text(struct ax_tokenizer *t, const char *dir, const char *name,
                                 char *text, size_t len) {
    struct large j = {.name = name, .text = text, .len = len};
    struct ax_json_doc doc, parts = {0};
    size_t good = ax_utf8_check(text, len);
    if (good != len)
        return ax_error(AX_ERR_DATA, "%s: not UTF-8 at byte %zu", name, good);
    if (!find_large(&j)) {
        AX_TRY(ax_json_parse(&doc, name, text, len)); /* the error says where the syntax is wrong */
        ax_json_free(&doc);
        return ax_error(AX_ERR_DATA, "%s: expected an object", name);
    }
    enum ax_status st = AX_OK;
    if (j.vocab.end > 0)
        st = read_vocab(&j, &t->vocab);
    if (st == AX_OK && j.vocab.end > 0 && j.merges.end > 0)
        st = read_merges(&j, &t->vocab, &t->bpe);
    AX_TRY(st);
    blank_large(&j);
    AX_TRY(ax_json_parse(&doc, name, text, len));
    if (dir)
        st = ax_hf_class_parts(&parts, dir, text);
    if (st == AX_OK)
        st = ax_hf_read_parts(t, &doc, &parts, j.vocab.end > 0, j.merges.end > 0);
    ax_json_free(&parts);
    ax_json_free(&doc);
    return st;
}

/* Makes every error begin with the file's name, including those of parts that do not know it. */
static enum ax_status parse(struct ax_tokenizer *t, const char *dir, const char *name, char *text,
                            size_t len) {
    enum ax_status st = parse_text(t, dir, name, text, len);
    if (st != AX_OK && strncmp(ax_error_text(), name, strlen(name)) != 0)
        return ax_error_prefix(st, "%s", name);
    return st;
}

enum ax_status ax_tokenizer_parse(struct ax_tokenizer **out, const char *name, const char *text,
                                  size_t len) {
    struct ax_tokenizer *t = NULL;
    char *copy = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&copy, len + 1, 1), st, done);
    memcpy(copy, text, len);
    AX_TRY_GOTO(ax_tokenizer_new(&t), st, done);
    AX_TRY_GOTO(ax_tekken_is(name)     ? ax_tekken_parse(t, name, copy, len)
                : ax_tiktoken_is(name) ? ax_tiktoken_parse(t, name, copy, len)
                                       : parse(t, NULL, name, copy, len),
                st, done);
    *out = t;
    t = NULL;
done:
    ax_tokenizer_free(t);
    ax_free(copy);
    return st;
}

static enum ax_status load_file(struct ax_tokenizer *t, const char *dir, const char *path) {
    char *text;
    size_t len;
    AX_TRY(ax_read_file(path, MAX_FILE, &text, &len));
    enum ax_status st = parse(t, dir, path, text, len);
    ax_free(text);
    return st;
}

static bool has_json(const char *dir) {
    return ax_path_has(dir, "tokenizer.json");
}

/* What a folder without tokenizer.json has instead; *path = NULL: nothing that is known. */
static enum ax_status other_file(const char *dir, char **path) {
    AX_TRY(ax_mistral_tokenizer_in(dir, false, path));
    return *path || !ax_path_has(dir, AX_TIKTOKEN) ? AX_OK : ax_path_join(path, dir, AX_TIKTOKEN);
}

static enum ax_status load_folder(struct ax_tokenizer *t, const char *dir) {
    char *path;
    if (!has_json(dir))
        return ax_error(AX_ERR_DATA,
                        "%s: tokenizer.json is missing in this folder. Save the tokenizer with "
                        "transformers' save_pretrained to create it",
                        dir);
    AX_TRY(ax_path_join(&path, dir, "tokenizer.json"));
    enum ax_status st = load_file(t, dir, path);
    if (st == AX_OK)
        st = ax_hf_read_config(dir, t);
    ax_free(path);
    return st;
}

bool ax_tokenizer_is_in(const char *folder) {
    char *own = NULL;
    if (has_json(folder))
        return true;
    const bool found = other_file(folder, &own) == AX_OK && own;
    ax_free(own);
    return found;
}

static enum ax_status load_gguf(struct ax_tokenizer **out, const char *path) {
    struct ax_gguf g;
    AX_TRY(ax_gguf_open(&g, path));
    enum ax_status st = ax_tokenizer_load_gguf(out, &g);
    ax_gguf_close(&g);
    return st;
}

static enum ax_status load_path(struct ax_tokenizer **out, const char *path) {
    struct ax_tokenizer *t;
    if (ax_gguf_is(path))
        return load_gguf(out, path);
    if (ax_sentencepiece_is(path) && !ax_tiktoken_is(path) && !ax_path_is_dir(path))
        return ax_sentencepiece_load(out, path);
    AX_TRY(ax_tokenizer_new(&t));
    enum ax_status st = ax_path_is_dir(path)   ? load_folder(t, path)
                        : ax_tekken_is(path)   ? ax_tekken_load(t, path)
                        : ax_tiktoken_is(path) ? ax_tiktoken_load(t, path)
                                               : load_file(t, NULL, path);
    if (st != AX_OK) {
        ax_tokenizer_free(t);
        return st;
    }
    *out = t;
    return AX_OK;
}

enum ax_status ax_tokenizer_load(struct ax_tokenizer **out, const char *path) {
    char *own = NULL;
    if (ax_path_is_dir(path) && !has_json(path))
        AX_TRY(other_file(path, &own));
    const enum ax_status st = load_path(out, own ? own : path);
    ax_free(own);
    return st;
}
