/* The steps of decoders (read feed first), and ids → text. See decode.h. */
#include "data/text/tokenizer/decode.h"

#include <string.h>

#include "base/mem.h"
#include "base/text/unicode.h"
#include "data/text/tokenizer/byte_level.h"
#include "data/text/tokenizer/tokenizer_impl.h"

enum ax_status ax_decoder_add(struct ax_decoder *d, enum ax_decode_kind kind,
                              struct ax_decode_step **step) {
    if (d->n == AX_DECODE_MAX)
        return ax_error(AX_ERR_UNSUPPORTED, "decoder: more than %d steps", AX_DECODE_MAX);
    *step = &d->steps[d->n++];
    **step = (struct ax_decode_step){.kind = kind};
    return AX_OK;
}

void ax_decoder_free(struct ax_decoder *d) {
    for (size_t i = 0; i < d->n; i++) {
        ax_regex_free(d->steps[i].regex);
        ax_free(d->steps[i].text);
    }
    *d = (struct ax_decoder){.n = 0};
}

static bool makes_one(enum ax_decode_kind kind) {
    return kind == AX_DECODE_BYTES || kind == AX_DECODE_FUSE || kind == AX_DECODE_JOIN;
}

/* True if text can be emitted token by token. If not, feed all tokens in one call. Once all strings
 * are one text, stripping its start is the only step that does not need its end. */
static bool can_stream(const struct ax_decoder *d) {
    bool one = false;
    for (size_t i = 0; i < d->n; i++) {
        const struct ax_decode_step *s = &d->steps[i];
        if (one && s->kind != AX_DECODE_FUSE && !(s->kind == AX_DECODE_STRIP && s->stop == 0))
            return false;
        one = one || makes_one(s->kind);
    }
    return true;
}

/* ---- lists of strings ---- */

/* Ends a string: all text appended since the last one. */
static enum ax_status end_string(struct ax_strings *l) {
    AX_TRY(ax_grow(&l->ends, l->n, &l->cap, sizeof *l->ends));
    l->ends[l->n++] = l->text.len;
    return AX_OK;
}

static enum ax_status add_string(struct ax_strings *l, const char *s, size_t len) {
    AX_TRY(ax_buf_append(&l->text, s, len));
    return end_string(l);
}

static void clear(struct ax_strings *l) {
    l->text.len = 0;
    l->n = 0;
}

static void free_run(struct ax_decode_run *run) {
    for (size_t i = 0; i < 2; i++) {
        ax_buf_free(&run->lists[i].text);
        ax_free(run->lists[i].ends);
    }
    for (size_t i = 0; i < AX_DECODE_MAX; i++)
        ax_buf_free(&run->states[i].held);
    ax_regex_work_free(&run->regex);
    *run = (struct ax_decode_run){0};
}

/* ---- steps on one string s[len], each appending to out->text ---- */

static const char FFFD[] = "\xef\xbf\xbd";

static enum ax_status metaspace(const struct ax_decode_step *step, struct ax_decode_state *state,
                                const char *s, size_t len, struct ax_strings *out) {
    bool drop = state->seen++ == 0 && step->drop_first;
    for (size_t i = 0, n; i < len; i += n) {
        uint32_t cp = ax_utf8_decode((const unsigned char *)s + i, &n);
        if (cp != step->cp)
            AX_TRY(ax_buf_append(&out->text, s + i, n));
        else if (!drop)
            AX_TRY(ax_buf_append(&out->text, " ", 1));
    }
    return AX_OK;
}

static enum ax_status replace(const struct ax_decode_step *step, struct ax_regex_work *w,
                              const char *s, size_t len, struct ax_strings *out) {
    struct ax_regex_iter it = ax_regex_search(step->regex, w, s, len);
    size_t done = 0;
    bool found = len > 0;
    while (found) {
        size_t start, end;
        AX_TRY(ax_regex_next(&it, &found, &start, &end));
        if (!found)
            break;
        AX_TRY(ax_buf_append(&out->text, s + done, start - done));
        AX_TRY(ax_buf_append(&out->text, step->text, step->text_len));
        if (out->text.len > out->most)
            return ax_error(AX_ERR_DATA,
                            "tokenizer.json: the decoder makes more than %zu bytes of the tokens' "
                            "text: its Replace steps multiply it",
                            out->most);
        done = end;
    }
    return ax_buf_append(&out->text, s + done, len - done);
}

/* The byte that "<0xHH>" represents, or -1. */
static int fallback_byte(const char *s, size_t len) {
    int value = 0;
    if (len != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    for (size_t i = 3; i < 5; i++) {
        char c = s[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0 && !(i == 3 && c == '+')) /* Rust reads "+5" as a number */
            return -1;
        value = 16 * value + (digit < 0 ? 0 : digit);
    }
    return value;
}

/* Ends a run of byte tokens: adds their text, or one U+FFFD for each byte. */
static enum ax_status end_run(struct ax_decode_state *state, struct ax_strings *out) {
    struct ax_buf *run = &state->held;
    if (run->len == 0)
        return AX_OK;
    if (ax_utf8_check(run->data, run->len) == run->len)
        AX_TRY(add_string(out, run->data, run->len));
    else
        for (size_t i = 0; i < run->len; i++)
            AX_TRY(add_string(out, FFFD, 3));
    run->len = 0;
    return AX_OK;
}

static enum ax_status byte_fallback(struct ax_decode_state *state, const char *s, size_t len,
                                    struct ax_strings *out) {
    int byte = fallback_byte(s, len);
    if (byte >= 0) {
        char c = (char)byte;
        return ax_buf_append(&state->held, &c, 1);
    }
    AX_TRY(end_run(state, out));
    return add_string(out, s, len);
}

/* A token that is not spelled in the byte alphabet represents its own bytes. */
static enum ax_status bytes(struct ax_decode_state *state, const char *s, size_t len) {
    size_t begin = state->held.len, n;
    AX_TRY(ax_buf_append(&state->held, s, len));
    if (ax_bytes_from_chars(s, len, state->held.data + begin, &n))
        state->held.len = begin + n;
    else
        memcpy(state->held.data + begin, s, len);
    return AX_OK;
}

/* Emits the complete characters of the held bytes; at the end, everything. */
static enum ax_status end_bytes(struct ax_decode_state *state, bool last, struct ax_strings *out) {
    struct ax_buf *held = &state->held;
    if (held->len == 0)
        return end_string(out);
    size_t whole = held->len, back = held->len < 3 ? held->len : 3, len;
    for (size_t i = held->len - back; !last && i < held->len; i++) {
        /* the first byte of a character counts only where a character may begin */
        const unsigned char *p = (const unsigned char *)held->data + i;
        if (*p >= 0xc0 && ax_utf8_next(p, held->len - i, &len) == AX_UTF8_CUT) {
            whole = i;
            break;
        }
    }
    AX_TRY(ax_utf8_repair(&out->text, held->data, whole));
    memmove(held->data, held->data + whole, held->len - whole);
    held->len -= whole;
    return end_string(out);
}

/* `one`: s is the next part of one text; otherwise it is a separate string. */
static enum ax_status strip(const struct ax_decode_step *step, struct ax_decode_state *state,
                            bool one, const char *s, size_t len, struct ax_strings *out) {
    const unsigned char *p = (const unsigned char *)s;
    size_t n, start = 0, end = len, taken = one ? state->stripped : 0;
    bool begun = one && state->begun;
    while (!begun && taken < step->start && start < len &&
           ax_utf8_decode(p + start, &n) == step->cp) {
        start += n;
        taken++;
    }
    state->stripped = taken;
    state->begun = begun || start < len;
    for (size_t i = 0; i < step->stop && end > start; i++) {
        if (ax_utf8_decode_before(p + end, &n) != step->cp)
            break;
        end -= n;
    }
    return ax_buf_append(&out->text, s + start, end - start);
}

/* ---- the chain ---- */

static enum ax_status run_string(const struct ax_decode_step *step, struct ax_decode_state *state,
                                 struct ax_regex_work *w, bool one, const char *s, size_t len,
                                 struct ax_strings *out) {
    switch (step->kind) {
    case AX_DECODE_BYTES:
        return bytes(state, s, len);
    case AX_DECODE_BYTE_FALLBACK:
        return byte_fallback(state, s, len, out);
    case AX_DECODE_FUSE:
        return ax_buf_append(&out->text, s, len);
    case AX_DECODE_JOIN:
        if (state->seen++ > 0)
            AX_TRY(ax_buf_append(&out->text, " ", 1));
        return ax_buf_append(&out->text, s, len);
    case AX_DECODE_METASPACE:
        AX_TRY(metaspace(step, state, s, len, out));
        break;
    case AX_DECODE_REPLACE:
        AX_TRY(replace(step, w, s, len, out));
        break;
    case AX_DECODE_STRIP:
        AX_TRY(strip(step, state, one, s, len, out));
        break;
    }
    return end_string(out);
}

static enum ax_status feed(const struct ax_decoder *d, struct ax_decode_run *run, bool last,
                           struct ax_buf *out) {
    bool one = false;
    size_t from = 0;
    run->lists[0].most = run->lists[1].most =
        run->lists[0].text.len * AX_NORM_GROWTH + AX_NORM_SLACK;
    for (size_t k = 0; k < d->n; k++) {
        const struct ax_decode_step *step = &d->steps[k];
        struct ax_decode_state *state = &run->states[k];
        struct ax_strings *in = &run->lists[from], *next = &run->lists[1 - from];
        const char *text = in->text.data != NULL ? in->text.data : "";
        clear(next);
        for (size_t i = 0, begin = 0; i < in->n; begin = in->ends[i++])
            AX_TRY(
                run_string(step, state, &run->regex, one, text + begin, in->ends[i] - begin, next));
        if (step->kind == AX_DECODE_BYTES)
            AX_TRY(end_bytes(state, last, next));
        else if (makes_one(step->kind))
            AX_TRY(end_string(next));
        else if (step->kind == AX_DECODE_BYTE_FALLBACK && last)
            AX_TRY(end_run(state, next));
        one = one || makes_one(step->kind);
        from = 1 - from;
    }
    struct ax_strings *result = &run->lists[from];
    AX_TRY(ax_buf_append(out, result->text.data, result->text.len));
    clear(&run->lists[0]);
    clear(&run->lists[1]);
    return AX_OK;
}

/* ---- ids → text, all in one call or one by one: see tokenizer.h ---- */

/* A token's string for decoding; NULL for ids without one and for skipped specials. */
static const char *decoded_string(const struct ax_tokenizer *t, int32_t id, bool skip_special,
                                  size_t *len) {
    const struct ax_added_token *a = ax_added_by_id(&t->added, id);
    if (a == NULL)
        return ax_vocab_string(&t->vocab, id, len);
    const char *s = a->form != NULL ? a->form : a->content;
    *len = a->form != NULL ? a->form_len : a->content_len;
    /* HF compares strings, so a token is not skipped if its normalized form differs. */
    if (skip_special && a->form != NULL)
        a = ax_added_by_content(&t->added, s, *len);
    return skip_special && a != NULL && a->special ? NULL : s;
}

static enum ax_status put_token(const struct ax_tokenizer *t, int32_t id, bool skip_special,
                                struct ax_decode_run *run) {
    size_t len;
    const char *s = decoded_string(t, id, skip_special, &len);
    return s != NULL ? add_string(&run->lists[0], s, len) : AX_OK;
}

enum ax_status ax_tokenizer_decode(const struct ax_tokenizer *t, const int32_t *ids, size_t n,
                                   bool skip_special, struct ax_buf *out) {
    struct ax_decode_run run = {0};
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < n; i++)
        AX_TRY_GOTO(put_token(t, ids[i], skip_special, &run), st, done);
    st = feed(&t->decoder, &run, true, out);
done:
    free_run(&run);
    return st;
}

static bool has_step(const struct ax_decoder *d, enum ax_decode_kind kind) {
    for (size_t i = 0; i < d->n; i++)
        if (d->steps[i].kind == kind)
            return true;
    return false;
}

/* What a second one of it adds to the text. */
static enum ax_status put_second(const struct ax_tokenizer *t, int32_t id, struct ax_buf *out) {
    const int32_t two[] = {id, id};
    struct ax_buf one = {0}, both = {0};
    enum ax_status st = ax_tokenizer_decode(t, two, 1, false, &one);
    if (st == AX_OK)
        st = ax_tokenizer_decode(t, two, 2, false, &both);
    if (st == AX_OK && both.len > one.len)
        st = ax_buf_append(out, both.data + one.len, both.len - one.len);
    ax_buf_free(&one);
    ax_buf_free(&both);
    return st;
}

enum ax_status ax_tokenizer_token_bytes(const struct ax_tokenizer *t, int32_t id,
                                        struct ax_buf *out) {
    const size_t begin = out->len;
    size_t len, n;
    const char *s = decoded_string(t, id, false, &len);
    const int byte =
        s && has_step(&t->decoder, AX_DECODE_BYTE_FALLBACK) ? fallback_byte(s, len) : -1;
    const char one = (char)byte;
    if (!s || len == 0)
        return AX_OK;
    if (byte >= 0)
        return ax_buf_append(out, &one, 1);
    if (!has_step(&t->decoder, AX_DECODE_BYTES))
        return put_second(t, id, out);
    AX_TRY(ax_buf_append(out, s, len));
    if (ax_bytes_from_chars(s, len, out->data + begin, &n))
        out->len = begin + n;
    else
        memcpy(out->data + begin, s, len);
    return AX_OK;
}

struct ax_decode_stream {
    const struct ax_tokenizer *t;
    bool skip_special, streams;
    struct ax_decode_run run;
};

enum ax_status ax_decode_stream_new(struct ax_decode_stream **out, const struct ax_tokenizer *t,
                                    bool skip_special) {
    struct ax_decode_stream *s;
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    s->t = t;
    s->skip_special = skip_special;
    s->streams = can_stream(&t->decoder);
    *out = s;
    return AX_OK;
}

enum ax_status ax_decode_stream_step(struct ax_decode_stream *s, int32_t id, struct ax_buf *out) {
    AX_TRY(put_token(s->t, id, s->skip_special, &s->run));
    return s->streams ? feed(&s->t->decoder, &s->run, false, out) : AX_OK;
}

enum ax_status ax_decode_stream_finish(struct ax_decode_stream *s, struct ax_buf *out) {
    return feed(&s->t->decoder, &s->run, true, out);
}

void ax_decode_stream_free(struct ax_decode_stream *s) {
    if (s != NULL)
        free_run(&s->run);
    ax_free(s);
}
