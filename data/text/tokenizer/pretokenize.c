/* Building and running the chain of pre-tokenizer steps. Read ax_pretok_run and run_step first. */
#include "data/text/tokenizer/pretokenize.h"

#include <string.h>

#include "base/text/unicode.h"
#include "data/text/tokenizer/byte_level.h"
#include "data/text/tokenizer/split_patterns.h"

/* ---- rules by hand: their parts ---- */

/* Class of the character at s[at] and its length. */
static enum ax_char_class class_at(const unsigned char *s, size_t at, size_t *n) {
    if (s[at] < 0x80) {
        *n = 1;
        return (enum ax_char_class)ax_ascii_class[s[at]];
    }
    return ax_unicode_class(ax_utf8_decode(s + at, n));
}

/* End of the run of characters of one class that begins at `at`. */
static size_t class_run(const unsigned char *s, size_t at, size_t len, enum ax_char_class want) {
    size_t n;
    while (at < len && class_at(s, at, &n) == want)
        at += n;
    return at;
}

/* 's 't 're 've 'm 'll 'd at s[at] = '\'': its end, or `at`. With any_case, ſ is an s. */
static size_t contraction(const unsigned char *s, size_t at, size_t len, bool any_case) {
    size_t left = len - at;
    unsigned char a = left > 1 ? s[at + 1] : 0, b = left > 2 ? s[at + 2] : 0;
    if (any_case) {
        if (a == 0xc5 && b == 0xbf)
            return at + 3;
        a |= a >= 'A' && a <= 'Z' ? 0x20 : 0;
        b |= b >= 'A' && b <= 'Z' ? 0x20 : 0;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return at + 3;
    return at;
}

/* \s+(?!\S)|\s+ over the white space from `at` to `end`: before another character, leaves the last
 * blank, unless it is the only one. */
static size_t blanks(const unsigned char *s, size_t at, size_t end, size_t len) {
    size_t n;
    if (end == len)
        return end;
    (void)ax_utf8_decode_before(s + end, &n);
    return end - n > at ? end - n : end;
}

/* \p{N}{1,max} at a number. */
static size_t digits(const unsigned char *s, size_t at, size_t len, int max) {
    size_t n;
    while (at < len && max-- > 0 && class_at(s, at, &n) == AX_CHAR_NUMBER)
        at += n;
    return at;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ at white space. */
static size_t line_ends_or_blanks(const unsigned char *s, size_t at, size_t len) {
    size_t end = class_run(s, at, len, AX_CHAR_SPACE);
    for (size_t i = end; i > at; i--)
        if (s[i - 1] == '\n' || s[i - 1] == '\r')
            return i;
    return blanks(s, at, end, len);
}

/* ---- GPT-4o (also Llama 4) and Tekken ----
 *
 * They are case-sensitive: a word is capitals
 * followed by small letters, so "HTMLElement" is HTMLElement but "parseHTML" is parse, HTML.
 * Letters without case and marks count as both. */

enum { UPPER = 1, LOWER = 2 };

static unsigned case_at(const unsigned char *s, size_t at, size_t *n) {
    if (s[at] < 0x80) {
        *n = 1;
        return ax_ascii_class[s[at]] != AX_CHAR_LETTER ? 0 : s[at] >= 'a' ? LOWER : UPPER;
    }
    return ax_unicode_case(ax_utf8_decode(s + at, n));
}

/* The end of [upper]*[lower]+ at `at`, 0 for no match. If no lower-case letter follows, the
 * regular expression backtracks to the last of the upper ones that counts as both. */
static size_t small_word(const unsigned char *s, size_t at, size_t len) {
    size_t n, both_end = 0;
    unsigned c = 0;
    for (; at < len && ((c = case_at(s, at, &n)) & UPPER) != 0; at += n)
        if (c & LOWER)
            both_end = at + n;
    if (at == len || !(c & LOWER))
        return both_end;
    while (at < len && (case_at(s, at, &n) & LOWER) != 0)
        at += n;
    return at;
}

/* [upper]+[lower]* at `at`, after small_word has not matched, so the lower part is empty. */
static size_t capital_word(const unsigned char *s, size_t at, size_t len) {
    size_t n, start = at;
    while (at < len && (case_at(s, at, &n) & UPPER) != 0)
        at += n;
    return at > start ? at : 0;
}

/* The two word rules, each with and without one character before the word. */
static size_t word(const unsigned char *s, size_t at, size_t len, enum ax_char_class c, size_t n) {
    bool before = c != AX_CHAR_LETTER && c != AX_CHAR_NUMBER && s[at] != '\r' && s[at] != '\n';
    size_t end = before ? small_word(s, at + n, len) : 0;
    if (end == 0)
        end = small_word(s, at, len);
    if (end == 0 && before)
        end = capital_word(s, at + n, len);
    if (end == 0)
        end = capital_word(s, at, len);
    return end;
}

static size_t scan_cased(const unsigned char *s, size_t at, size_t len, int max_digits,
                         bool contractions) {
    size_t n, m = 0;
    enum ax_char_class c = class_at(s, at, &n);
    if (c == AX_CHAR_NUMBER)
        return digits(s, at, len, max_digits);
    size_t end = word(s, at, len, c, n);
    if (end > 0)
        return contractions && end < len && s[end] == '\'' ? contraction(s, end, len, true) : end;
    enum ax_char_class next = at + n < len ? class_at(s, at + n, &m) : AX_CHAR_SPACE;
    if (c == AX_CHAR_OTHER || (s[at] == ' ' && next == AX_CHAR_OTHER)) {
        at = class_run(s, at + n, len, AX_CHAR_OTHER);
        while (at < len && (s[at] == '\r' || s[at] == '\n' || s[at] == '/'))
            at++;
        return at;
    }
    return line_ends_or_blanks(s, at, len);
}

static size_t scan_gpt4o(const unsigned char *s, size_t at, size_t len) {
    return scan_cased(s, at, len, 3, true);
}

static size_t scan_tekken(const unsigned char *s, size_t at, size_t len) {
    return scan_cased(s, at, len, 1, false);
}

/* ---- the other rules ---- */

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t scan_gpt2(const unsigned char *s, size_t at, size_t len) {
    size_t n, next = at;
    if (s[at] == '\'') {
        size_t end = contraction(s, at, len, false);
        if (end > at)
            return end;
    }
    if (s[at] == ' ' && at + 1 < len)
        next = at + 1;
    enum ax_char_class c = class_at(s, next, &n);
    if (c != AX_CHAR_SPACE)
        return class_run(s, next + n, len, c);
    return blanks(s, at, class_run(s, at, len, AX_CHAR_SPACE), len);
}

/* (?i:'s|…|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max_digits}| ?[^\s\p{L}\p{N}]+[\r\n]*
 * |\s*[\r\n]+|\s+(?!\S)|\s+ */
static inline size_t scan_llama(const unsigned char *s, size_t at, size_t len, int max_digits) {
    size_t n, m = 0;
    if (s[at] == '\'') {
        size_t end = contraction(s, at, len, true);
        if (end > at)
            return end;
    }
    enum ax_char_class c = class_at(s, at, &n);
    if (c == AX_CHAR_LETTER)
        return class_run(s, at + n, len, c);
    if (c == AX_CHAR_NUMBER)
        return digits(s, at, len, max_digits);
    enum ax_char_class next = at + n < len ? class_at(s, at + n, &m) : AX_CHAR_SPACE;
    if (next == AX_CHAR_LETTER && s[at] != '\r' && s[at] != '\n')
        return class_run(s, at + n + m, len, next);
    if (c == AX_CHAR_OTHER || (s[at] == ' ' && next == AX_CHAR_OTHER)) {
        at = class_run(s, at + n, len, AX_CHAR_OTHER);
        while (at < len && (s[at] == '\r' || s[at] == '\n'))
            at++;
        return at;
    }
    return line_ends_or_blanks(s, at, len);
}

static size_t scan_llama3(const unsigned char *s, size_t at, size_t len) {
    return scan_llama(s, at, len, 3);
}

static size_t scan_qwen2(const unsigned char *s, size_t at, size_t len) {
    return scan_llama(s, at, len, 1);
}

/* Letters and marks. */
static bool in_word(const unsigned char *s, size_t at, size_t *n) {
    return case_at(s, at, n) != 0;
}
static size_t word_run(const unsigned char *s, size_t at, size_t len) {
    size_t n;
    while (at < len && in_word(s, at, &n))
        at += n;
    return at;
}
static size_t other_run(const unsigned char *s, size_t at, size_t len) {
    size_t n;
    while (at < len && class_at(s, at, &n) == AX_CHAR_OTHER && !in_word(s, at, &n))
        at += n;
    return at;
}

/* As scan_llama with one digit, with marks taken for letters; before a word they are part of it anyway. */
static size_t scan_qwen35(const unsigned char *s, size_t at, size_t len) {
    size_t n, m;
    if (s[at] == '\'') {
        const size_t end = contraction(s, at, len, true);
        if (end > at)
            return end;
    }
    if (in_word(s, at, &n))
        return word_run(s, at + n, len);
    const enum ax_char_class c = class_at(s, at, &n);
    if (c == AX_CHAR_NUMBER)
        return at + n;
    if (at + n < len && in_word(s, at + n, &m) && s[at] != '\r' && s[at] != '\n')
        return word_run(s, at + n + m, len);
    const size_t from = s[at] == ' ' ? at + 1 : at, end = other_run(s, from, len);
    if (end > from) {
        for (at = end; at < len && (s[at] == '\r' || s[at] == '\n');)
            at++;
        return at;
    }
    return line_ends_or_blanks(s, at, len);
}

const struct ax_scan_rule ax_scan_rules[] = {
    {"gpt2", AX_PATTERN_GPT2, scan_gpt2},       {"llama3", AX_PATTERN_LLAMA3, scan_llama3},
    {"qwen2", AX_PATTERN_QWEN2, scan_qwen2},    {"gpt4o", AX_PATTERN_GPT4O, scan_gpt4o},
    {"tekken", AX_PATTERN_TEKKEN, scan_tekken}, {"qwen35", AX_PATTERN_QWEN35, scan_qwen35},
};
const size_t ax_scan_rule_count = sizeof ax_scan_rules / sizeof ax_scan_rules[0];

ax_scan_fn ax_scan_find(const char *pattern, size_t len) {
    for (size_t i = 0; i < ax_scan_rule_count; i++)
        if (len == strlen(ax_scan_rules[i].pattern) &&
            memcmp(pattern, ax_scan_rules[i].pattern, len) == 0)
            return ax_scan_rules[i].scan;
    return NULL;
}

/* ---- building the chain of steps ---- */

static enum ax_status new_step(struct ax_pretok *p, enum ax_pretok_kind kind,
                               struct ax_pretok_step **step) {
    if (p->n == AX_PRETOK_MAX)
        return ax_error(AX_ERR_UNSUPPORTED, "pre_tokenizer: more than %d steps", AX_PRETOK_MAX);
    *step = &p->steps[p->n++];
    **step = (struct ax_pretok_step){.kind = kind};
    return AX_OK;
}

enum ax_status ax_pretok_add_regex(struct ax_pretok *p, const char *pattern, size_t len,
                                   bool literal, enum ax_split_behavior behavior, bool invert) {
    struct ax_pretok_step *step;
    AX_TRY(new_step(p, AX_PRETOK_REGEX, &step));
    AX_TRY(ax_regex_compile(&step->regex, pattern, len, literal));
    step->behavior = behavior;
    step->invert = invert;
    /* If matches leave no gaps, keeping only the matches is the same. */
    bool pieces_are_matches =
        (behavior == AX_SPLIT_ISOLATED && !invert) || (behavior == AX_SPLIT_REMOVED && invert);
    if (!literal && pieces_are_matches)
        step->scan = ax_scan_find(pattern, len);
    return AX_OK;
}

enum ax_status ax_pretok_add_chars(struct ax_pretok *p, bool (*pred)(uint32_t), uint32_t cp,
                                   enum ax_split_behavior behavior) {
    struct ax_pretok_step *step;
    AX_TRY(new_step(p, AX_PRETOK_CHARS, &step));
    step->pred = pred;
    step->cp = cp;
    step->behavior = behavior;
    return AX_OK;
}

enum ax_status ax_pretok_add_metaspace(struct ax_pretok *p, const char *replacement,
                                       enum ax_prepend prepend, bool split) {
    struct ax_pretok_step *step;
    size_t len = strlen(replacement), n = 0;
    uint32_t cp = len > 0 ? ax_utf8_decode((const unsigned char *)replacement, &n) : 0;
    if (len == 0 || n != len)
        return ax_error(AX_ERR_DATA, "Metaspace: the replacement \"%s\" is not one character",
                        replacement);
    AX_TRY(new_step(p, AX_PRETOK_METASPACE, &step));
    memcpy(step->replacement, replacement, len + 1);
    step->prepend = prepend;
    return split ? ax_pretok_add_chars(p, NULL, cp, AX_SPLIT_MERGED_NEXT) : AX_OK;
}

enum ax_status ax_pretok_add_bytes(struct ax_pretok *p, bool prefix, bool split) {
    struct ax_pretok_step *step;
    if (prefix)
        AX_TRY(new_step(p, AX_PRETOK_PREFIX, &step));
    if (split) {
        static const char gpt2[] = AX_PATTERN_GPT2;
        AX_TRY(ax_pretok_add_regex(p, gpt2, sizeof gpt2 - 1, false, AX_SPLIT_ISOLATED, false));
    }
    return new_step(p, AX_PRETOK_BYTES, &step);
}

void ax_pretok_free(struct ax_pretok *p) {
    for (size_t i = 0; i < p->n; i++)
        ax_regex_free(p->steps[i].regex);
    *p = (struct ax_pretok){.n = 0};
}

bool ax_pretok_needs_origin(const struct ax_pretok *p) {
    for (size_t i = 0; i < p->n; i++)
        if (p->steps[i].kind == AX_PRETOK_METASPACE && p->steps[i].prepend == AX_PREPEND_FIRST)
            return true;
    return false;
}

/* ---- running it ---- */

struct chain {
    const struct ax_pretok *p;
    struct ax_pretok_work *w;
    bool track;
    ax_piece_fn emit;
    void *context;
};

static enum ax_status run_step(struct chain *c, size_t k, const struct ax_piece *piece);

static enum ax_status pass_on(struct chain *c, size_t k, const struct ax_piece *piece, size_t start,
                              size_t end) {
    if (start == end)
        return AX_OK;
    struct ax_piece part = ax_piece_part(piece, start, end);
    return k == c->p->n ? c->emit(c->context, &part) : run_step(c, k, &part);
}

/* --- splitting: a sequence of matches and gaps becomes pieces --- */

struct splitter {
    struct chain *chain;
    size_t k; /* the step that gets the pieces */
    const struct ax_piece *piece;
    enum ax_split_behavior behavior;
    bool pending;      /* start–end wait for what follows */
    bool was_match;    /* the item before */
    size_t start, end; /* of the pending piece */
};

static enum ax_status flush(struct splitter *s) {
    bool pending = s->pending;
    s->pending = false;
    return pending ? pass_on(s->chain, s->k, s->piece, s->start, s->end) : AX_OK;
}

/* The next item, which directly follows the previous one. */
static enum ax_status item(struct splitter *s, size_t start, size_t end, bool match) {
    bool join = false;
    switch (s->behavior) {
    case AX_SPLIT_ISOLATED:
        return pass_on(s->chain, s->k, s->piece, start, end);
    case AX_SPLIT_REMOVED:
        return match ? AX_OK : pass_on(s->chain, s->k, s->piece, start, end);
    case AX_SPLIT_CONTIGUOUS:
        join = match == s->was_match;
        break;
    case AX_SPLIT_MERGED_PREVIOUS:
        join = match && !s->was_match;
        break;
    case AX_SPLIT_MERGED_NEXT:
        join = !match && s->was_match;
        break;
    }
    if (!(join && s->pending)) {
        AX_TRY(flush(s));
        s->start = start;
    }
    s->end = end;
    s->pending = true;
    s->was_match = match;
    return AX_OK;
}

static enum ax_status split_regex(struct splitter *s, const struct ax_pretok_step *step) {
    struct ax_regex_iter it =
        ax_regex_search(step->regex, &s->chain->w->regex, s->piece->s, s->piece->len);
    size_t done = 0;
    for (;;) {
        bool found;
        size_t start, end;
        AX_TRY(ax_regex_next(&it, &found, &start, &end));
        if (!found)
            break;
        if (start > done)
            AX_TRY(item(s, done, start, step->invert));
        AX_TRY(item(s, start, end, !step->invert));
        done = end;
    }
    if (done < s->piece->len)
        AX_TRY(item(s, done, s->piece->len, step->invert));
    return flush(s);
}

/* A scanner's matches leave no gaps: every match is a piece. */
static enum ax_status split_scan(struct splitter *s, const struct ax_pretok_step *step) {
    const unsigned char *text = (const unsigned char *)s->piece->s;
    for (size_t at = 0, end; at < s->piece->len; at = end) {
        end = step->scan(text, at, s->piece->len);
        AX_TRY(pass_on(s->chain, s->k, s->piece, at, end));
    }
    return AX_OK;
}

static enum ax_status split_chars(struct splitter *s, const struct ax_pretok_step *step) {
    const unsigned char *text = (const unsigned char *)s->piece->s;
    size_t done = 0, n;
    for (size_t at = 0; at < s->piece->len; at += n) {
        uint32_t cp = ax_utf8_decode(text + at, &n);
        if (step->pred != NULL ? !step->pred(cp) : cp != step->cp)
            continue;
        if (at > done)
            AX_TRY(item(s, done, at, false));
        AX_TRY(item(s, at, at + n, true));
        done = at + n;
    }
    if (done < s->piece->len)
        AX_TRY(item(s, done, s->piece->len, false));
    return flush(s);
}

/* --- rewriting: a piece becomes a text of its own --- */

/* Origin of what is put before a piece: that of its first character. */
static struct ax_span first_span(const struct ax_piece *p) {
    return ax_piece_span(p, 0, 1);
}

static enum ax_status write_prefix(struct ax_aligned *out, const struct ax_piece *p) {
    if (p->s[0] != ' ')
        AX_TRY(ax_aligned_put(out, " ", 1, first_span(p)));
    return ax_aligned_copy(out, p, 0, p->len);
}

static enum ax_status write_metaspace(struct ax_aligned *out, const struct ax_piece *p,
                                      const struct ax_pretok_step *step) {
    size_t n = strlen(step->replacement);
    bool has_one = p->s[0] == ' ' || (p->len >= n && memcmp(p->s, step->replacement, n) == 0);
    bool at_start = first_span(p).start == 0;
    if (!has_one &&
        (step->prepend == AX_PREPEND_ALWAYS || (step->prepend == AX_PREPEND_FIRST && at_start)))
        AX_TRY(ax_aligned_put(out, step->replacement, n, first_span(p)));
    size_t done = 0;
    for (const char *blank; (blank = memchr(p->s + done, ' ', p->len - done)) != NULL;) {
        size_t at = (size_t)(blank - p->s);
        AX_TRY(ax_aligned_copy(out, p, done, at));
        AX_TRY(ax_aligned_put(out, step->replacement, n, ax_piece_span(p, at, at + 1)));
        done = at + 1;
    }
    return ax_aligned_copy(out, p, done, p->len);
}

static enum ax_status write_bytes(struct ax_aligned *out, const struct ax_piece *p) {
    for (size_t i = 0; i < p->len; i++) {
        char c[2];
        size_t n = ax_byte_to_char((unsigned char)p->s[i], c);
        struct ax_span from = {0, 0};
        if (out->track)
            from = ax_piece_span(p, i, i + 1);
        AX_TRY(ax_aligned_put(out, c, n, from));
    }
    return AX_OK;
}

/* --- the chain --- */

static enum ax_status run_step(struct chain *c, size_t k, const struct ax_piece *piece) {
    const struct ax_pretok_step *step = &c->p->steps[k];
    struct splitter split = {.chain = c, .k = k + 1, .piece = piece, .behavior = step->behavior};
    struct ax_aligned *out = &c->w->texts[k];
    switch (step->kind) {
    case AX_PRETOK_REGEX:
        return step->scan != NULL ? split_scan(&split, step) : split_regex(&split, step);
    case AX_PRETOK_CHARS:
        return split_chars(&split, step);
    case AX_PRETOK_PREFIX:
        ax_aligned_start(out, c->track);
        AX_TRY(write_prefix(out, piece));
        break;
    case AX_PRETOK_METASPACE:
        ax_aligned_start(out, c->track);
        AX_TRY(write_metaspace(out, piece, step));
        break;
    case AX_PRETOK_BYTES:
        ax_aligned_start(out, c->track);
        AX_TRY(write_bytes(out, piece));
        break;
    }
    struct ax_piece changed = ax_aligned_piece(out);
    return pass_on(c, k + 1, &changed, 0, changed.len);
}

enum ax_status ax_pretok_run(const struct ax_pretok *p, struct ax_pretok_work *w,
                             const struct ax_piece *text, bool track, ax_piece_fn emit,
                             void *context) {
    struct chain c = {p, w, track, emit, context};
    return pass_on(&c, 0, text, 0, text->len);
}

void ax_pretok_work_free(struct ax_pretok_work *w) {
    for (size_t i = 0; i < AX_PRETOK_MAX; i++)
        ax_aligned_free(&w->texts[i]);
    ax_regex_work_free(&w->regex);
}
