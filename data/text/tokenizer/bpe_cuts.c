/* Finds and uses the places where pieces may be split. See bpe_cuts.h. */
#include "data/text/tokenizer/bpe_cuts.h"

#include "base/text/unicode.h"

static const char UNDERLINE[] = "\xe2\x96\x81"; /* ▁, which stands for a space */

size_t ax_cut_length(const struct ax_bpe_cuts *c, const char *s, size_t len) {
    const unsigned char *p = (const unsigned char *)s;
    unsigned before = ax_cut_class(p);
    size_t n;
    (void)ax_utf8_decode(p, &n);
    for (size_t i = n; i < len; i += n) {
        unsigned next = ax_cut_class(p + i);
        if (ax_cut_allowed(c, before, next))
            return i;
        before = next;
        (void)ax_utf8_decode(p + i, &n);
    }
    return len;
}

/* Unknown characters may be fused or reordered, but only up to the next known one. So one side
 * of a cut must be known; of the classes, only ASCII characters and ▁ can be. If unknown
 * characters are dropped, their neighbors meet, so both sides must be known. */
static void allow_known(const struct ax_bpe *b, struct ax_bpe_cuts *c) {
    bool known[256] = {false};
    bool vanish = b->score_ranks == NULL && b->unk == AX_NO_TOKEN;
    for (unsigned x = 0; x < 128; x++)
        known[x] = b->first[x] != AX_NO_TOKEN;
    known[0x80] = ax_vocab_find(b->vocab, UNDERLINE, 3) != AX_NO_TOKEN;
    for (unsigned x = 0; x < 256; x++)
        for (unsigned y = 0; y < 256; y++)
            if (vanish ? known[x] && known[y] : known[x] || known[y])
                c->allowed[x][y >> 6] |= (uint64_t)1 << (y & 63);
}

static void forbid(struct ax_bpe_cuts *c, unsigned x, unsigned y) {
    c->allowed[x][y >> 6] &= ~((uint64_t)1 << (y & 63));
}

/* Class of the last character of s[0…len), len > 0. */
static unsigned last_class(const char *s, size_t len) {
    size_t n;
    const unsigned char *end = (const unsigned char *)s + len;
    (void)ax_utf8_decode_before(end, &n);
    return ax_cut_class(end - n);
}

/* True if this token represents something other than its own characters. */
static bool stands_for_unknown(const struct ax_bpe *b, int32_t id, const char *s, size_t len) {
    return id == b->unk || (b->byte_fallback && len == 6 && memcmp(s, "<0x", 3) == 0);
}

/* Forbids cuts inside merges. False if a merge involves tokens that represent something other
 * than their characters. */
static bool forbid_merges(const struct ax_bpe *b, struct ax_bpe_cuts *c) {
    for (size_t i = 0; i < b->n_slots; i++) {
        if (b->pairs[i].ids == UINT64_MAX)
            continue;
        int32_t left = (int32_t)(b->pairs[i].ids >> 32);
        int32_t right = (int32_t)(uint32_t)b->pairs[i].ids;
        size_t n, m;
        const char *l = ax_vocab_string(b->vocab, left, &n);
        const char *r = ax_vocab_string(b->vocab, right, &m);
        if (stands_for_unknown(b, left, l, n) || stands_for_unknown(b, right, r, m))
            return false;
        forbid(c, last_class(l, n), ax_cut_class((const unsigned char *)r));
    }
    return true;
}

/* Forbids cuts inside tokens: with scores, any string that is a token may result from any two
 * parts. False if a token is not UTF-8, which GGUF files allow. */
static bool forbid_tokens(const struct ax_bpe *b, struct ax_bpe_cuts *c) {
    for (size_t id = 0; id < b->vocab->n_ids; id++) {
        size_t len, n;
        const char *s = ax_vocab_string(b->vocab, (int32_t)id, &len);
        if (s == NULL || len == 0)
            continue;
        if (ax_utf8_check(s, len) != len)
            return false;
        const unsigned char *p = (const unsigned char *)s;
        (void)ax_utf8_decode(p, &n);
        for (size_t i = n, before = 0; i < len; before = i, i += n) {
            forbid(c, ax_cut_class(p + before), ax_cut_class(p + i));
            (void)ax_utf8_decode(p + i, &n);
        }
    }
    return true;
}

enum ax_status ax_bpe_find_cuts(struct ax_bpe *b) {
    if (b->raw_bytes) /* pieces have already been split into words */
        return AX_OK;
    AX_TRY(ax_alloc(&b->cuts, 1, sizeof *b->cuts));
    allow_known(b, b->cuts);
    if (!(b->score_ranks != NULL ? forbid_tokens(b, b->cuts) : forbid_merges(b, b->cuts))) {
        ax_free(b->cuts);
        b->cuts = NULL;
    }
    return AX_OK;
}
