/* Running the chain of pre-tokenizer steps. Read ax_pretok_run and run_step first; the steps are
 * built in pretok_build.c. */
#include "data/text/tokenizer/pretokenize.h"

#include <string.h>

#include "data/text/tokenizer/byte_level.h"
#include "base/text/unicode.h"

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
