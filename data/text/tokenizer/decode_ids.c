/* Ids → text, all in one call or one by one. See tokenizer.h; the steps are in decode.c. */
#include "data/text/tokenizer/tokenizer_impl.h"

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
    return s != NULL ? ax_strings_add(&run->lists[0], s, len) : AX_OK;
}

enum ax_status ax_tokenizer_decode(const struct ax_tokenizer *t, const int32_t *ids, size_t n,
                                   bool skip_special, struct ax_buf *out) {
    struct ax_decode_run run = {0};
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < n; i++)
        AX_TRY_GOTO(put_token(t, ids[i], skip_special, &run), st, done);
    st = ax_decoder_feed(&t->decoder, &run, true, out);
done:
    ax_decode_run_free(&run);
    return st;
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
    s->streams = ax_decoder_streams(&t->decoder);
    *out = s;
    return AX_OK;
}

enum ax_status ax_decode_stream_step(struct ax_decode_stream *s, int32_t id, struct ax_buf *out) {
    AX_TRY(put_token(s->t, id, s->skip_special, &s->run));
    return s->streams ? ax_decoder_feed(&s->t->decoder, &s->run, false, out) : AX_OK;
}

enum ax_status ax_decode_stream_finish(struct ax_decode_stream *s, struct ax_buf *out) {
    return ax_decoder_feed(&s->t->decoder, &s->run, true, out);
}

void ax_decode_stream_free(struct ax_decode_stream *s) {
    if (s != NULL)
        ax_decode_run_free(&s->run);
    ax_free(s);
}
