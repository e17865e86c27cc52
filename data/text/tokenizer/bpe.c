/* A BPE model: its pairs, the places where pieces can be split, its tables; merging. Read ax_bpe_encode at
 * the end first; bpe.h has the rule. */
#include "data/text/tokenizer/bpe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/unicode.h"
#include "data/text/tokenizer/encode.h"
#include "data/text/tokenizer/word_cache.h"

/* ---- pairs ---- */

static uint64_t pair_key(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot of this pair, or the free slot for it. */
static struct ax_bpe_pair *pair_slot(const struct ax_bpe *b, uint64_t ids) {
    size_t mask = b->n_slots - 1;
    uint64_t h = ids * 0x9e3779b97f4a7c15U;
    size_t i = (size_t)(h ^ h >> 32) & mask;
    while (b->pairs[i].ids != ids && b->pairs[i].ids != UINT64_MAX)
        i = (i + 1) & mask;
    return &b->pairs[i];
}

/* Sets the capacity so that the expected merges fill at most half of it. */
static enum ax_status grow_pairs(struct ax_bpe *b, size_t n) {
    if (2 * n <= b->n_slots)
        return AX_OK;
    size_t slots = b->n_slots > 0 ? b->n_slots : 64;
    while (slots < 2 * n)
        slots *= 2;
    struct ax_bpe_pair *old = b->pairs;
    size_t n_old = b->n_slots;
    AX_TRY(ax_alloc(&b->pairs, slots, sizeof *b->pairs));
    b->n_slots = slots;
    for (size_t i = 0; i < slots; i++)
        b->pairs[i].ids = UINT64_MAX;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].ids != UINT64_MAX)
            *pair_slot(b, old[i].ids) = old[i];
    ax_free(old);
    return AX_OK;
}

/* ---- where a long piece can be split before merging without changing the result ----
 *
 * SentencePiece-like models see entire paragraphs as one piece. But if no merge ever joins a token
 * that ends in x with one that begins with y, no token crosses a boundary between x and y: both
 * sides are merged independently, and the short parts can be cached as words. */

/* Character classes: one per ASCII character, one for ▁, one per lead byte of the others. */
static unsigned cut_class(const unsigned char *s) {
    return s[0] == 0xe2 && s[1] == 0x96 && s[2] == 0x81 ? 0x80 : s[0];
}

static bool is_cut_allowed(const struct ax_bpe_cuts *c, unsigned x, unsigned y) {
    return (c->allowed[x][y >> 6] >> (y & 63) & 1) != 0;
}

static const char UNDERLINE[] = "\xe2\x96\x81"; /* ▁, which stands for a space */

/* Length of s (valid UTF-8, len > 0) up to the first split. */
static size_t cut_length(const struct ax_bpe_cuts *c, const char *s, size_t len) {
    const unsigned char *p = (const unsigned char *)s;
    unsigned before = cut_class(p);
    size_t n;
    (void)ax_utf8_decode(p, &n);
    for (size_t i = n; i < len; i += n) {
        unsigned next = cut_class(p + i);
        if (is_cut_allowed(c, before, next))
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
    return cut_class(end - n);
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
        forbid(c, last_class(l, n), cut_class((const unsigned char *)r));
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
            forbid(c, cut_class(p + before), cut_class(p + i));
            (void)ax_utf8_decode(p + i, &n);
        }
    }
    return true;
}

/* Fills b->cuts from the vocabulary and the merges or scores. */
static enum ax_status find_cuts(struct ax_bpe *b) {
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

/* ---- tables ---- */

enum ax_status ax_bpe_add_merge(struct ax_bpe *b, int32_t left, int32_t right, int32_t merged,
                                uint32_t rank, size_t expected) {
    AX_TRY(grow_pairs(b, expected > b->n_pairs ? expected : b->n_pairs + 1));
    uint64_t ids = pair_key(left, right);
    struct ax_bpe_pair *p = pair_slot(b, ids);
    if (p->ids == UINT64_MAX)
        b->n_pairs++;
    *p = (struct ax_bpe_pair){ids, rank, merged};
    return AX_OK;
}

enum ax_status ax_bpe_add_merge_text(struct ax_bpe *bpe, const struct ax_vocab *vocab,
                                     const char *text, size_t len, size_t left, size_t rank,
                                     size_t expected) {
    int32_t a = ax_vocab_find(vocab, text, left);
    int32_t b = ax_vocab_find(vocab, text + left, len - left);
    int32_t both = ax_vocab_find(vocab, text, len);
    if (left == 0 || left == len)
        return ax_error(AX_ERR_DATA, "merge %zu: one side of \"%.*s\" is empty", rank,
                        (int)(len < 80 ? len : 80), text);
    if (a == AX_NO_TOKEN || b == AX_NO_TOKEN || both == AX_NO_TOKEN) {
        size_t from = a != AX_NO_TOKEN && b == AX_NO_TOKEN ? left : 0;
        size_t n = a == AX_NO_TOKEN ? left : len - from;
        return ax_error(AX_ERR_DATA, "merge %zu: \"%.*s\" is not in the vocabulary", rank,
                        (int)(n < 80 ? n : 80), text + from);
    }
    return ax_bpe_add_merge(bpe, a, b, both, (uint32_t)rank, expected);
}

/* Order-preserving bits, inverted so that the highest score gets the smallest number. */
static uint32_t score_rank(float score) {
    score += 0.0F; /* −0 and 0 are the same score */
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | 0x80000000U;
    return ~bits;
}

enum ax_status ax_bpe_set_scores(struct ax_bpe *b, const float *scores, size_t n) {
    AX_TRY(ax_alloc(&b->score_ranks, n, sizeof *b->score_ranks));
    for (size_t i = 0; i < n; i++) {
        if (isnan(scores[i]))
            return ax_error(AX_ERR_DATA, "the score of token %zu is not a number", i);
        b->score_ranks[i] = score_rank(scores[i]);
    }
    return AX_OK;
}

enum ax_status ax_bpe_prepare(struct ax_bpe *b) {
    for (int c = 0; c < 256; c++) {
        char one = (char)c, code[8];
        int n = snprintf(code, sizeof code, "<0x%02X>", (unsigned)c);
        b->first[c] = b->raw_bytes || c < 128 ? ax_vocab_find(b->vocab, &one, 1) : AX_NO_TOKEN;
        b->fallback[c] = ax_vocab_find(b->vocab, code, (size_t)n);
    }
    AX_TRY(grow_pairs(b, 1)); /* so that lookups need no special case for an empty table */
    return find_cuts(b);
}

void ax_bpe_free(struct ax_bpe *b) {
    ax_free(b->score_ranks);
    ax_free(b->cuts);
    ax_free(b->pairs);
    *b = (struct ax_bpe){0};
}

/* ---- symbols of a piece, and their ranks ---- */

struct ax_symbol {
    int32_t id;          /* AX_NO_TOKEN only with scores: a character that is not a token yet */
    uint32_t start, len; /* bytes of the piece; len = 0 once merged into the left neighbor */
    int32_t prev, next;  /* neighbors; −1 at the ends. Set by merge_long */
};

struct ax_merge {
    uint64_t key; /* rank << 32 | position of the left symbol: the order of merging */
    int32_t merged;
};

enum { SHORT_WORD = 32 };

static const uint32_t NO_RANK = UINT32_MAX;

/* Rank of merging two neighbors, NO_RANK if they do not merge. */
static uint32_t rank_of(const struct ax_bpe *b, const char *s, const struct ax_symbol *left,
                        const struct ax_symbol *right, int32_t *merged) {
    if (b->score_ranks != NULL) {
        *merged = ax_vocab_find(b->vocab, s + left->start, left->len + right->len);
        return *merged == AX_NO_TOKEN ? NO_RANK : b->score_ranks[*merged];
    }
    uint64_t ids = pair_key(left->id, right->id);
    const struct ax_bpe_pair *p = pair_slot(b, ids);
    if (p->ids != ids)
        return NO_RANK;
    *merged = p->merged;
    return p->rank;
}

/* ---- symbols ---- */

static enum ax_status reserve_symbols(struct ax_bpe_work *w, size_t n) {
    if (n <= w->cap_symbols)
        return AX_OK;
    struct ax_symbol *larger;
    const size_t cap = n < 256 ? 256 : n + n / 2;
    AX_TRY(ax_alloc(&larger, cap, sizeof *larger));
    ax_free(w->symbols);
    w->symbols = larger;
    w->cap_symbols = cap;
    return AX_OK;
}

static void add_symbol(struct ax_bpe_work *w, int32_t id, size_t start, size_t len) {
    w->symbols[w->n_symbols++] = (struct ax_symbol){id, (uint32_t)start, (uint32_t)len, 0, 0};
}

/* The tokens of a character's bytes, if byte_fallback is on and all of them exist. */
static bool add_bytes(const struct ax_bpe *b, struct ax_bpe_work *w, const unsigned char *s,
                      size_t start, size_t len) {
    if (!b->byte_fallback)
        return false;
    for (size_t i = 0; i < len; i++)
        if (b->fallback[s[start + i]] == AX_NO_TOKEN)
            return false;
    for (size_t i = 0; i < len; i++)
        add_symbol(w, b->fallback[s[start + i]], start + i, 1);
    return true;
}

struct stretch {
    size_t start, len;
};

static void flush_unknown(const struct ax_bpe *b, struct ax_bpe_work *w, struct stretch *unknown) {
    if (unknown->len > 0)
        add_symbol(w, b->unk, unknown->start, unknown->len);
    unknown->len = 0;
}

/* Adds a character s[at…at+n) that is not a token. */
static enum ax_status add_unknown(const struct ax_bpe *b, struct ax_bpe_work *w,
                                  const unsigned char *s, size_t at, size_t n,
                                  struct stretch *unknown) {
    if (add_bytes(b, w, s, at, n))
        return AX_OK;
    if (b->unk_missing)
        return ax_error(AX_ERR_DATA,
                        "no token for \"%.*s\", and the tokenizer's unk_token is not in its "
                        "vocabulary",
                        (int)n, (const char *)s + at);
    if (b->unk == AX_NO_TOKEN)
        return AX_OK;
    if (unknown->len > 0 && b->fuse_unk) {
        unknown->len = at + n - unknown->start;
        return AX_OK;
    }
    flush_unknown(b, w, unknown);
    *unknown = (struct stretch){at, n};
    return AX_OK;
}

/* Splits the piece into symbols that are tokens. As in HF, an unknown character is added when
 * the next known one or the end is reached, so byte tokens in between precede it. */
static enum ax_status split_known(const struct ax_bpe *b, struct ax_bpe_work *w,
                                  const unsigned char *s, size_t len) {
    struct stretch unknown = {0, 0};
    for (size_t i = 0, n; i < len; i += n) {
        int32_t id = b->first[s[i]];
        n = 1;
        if (!b->raw_bytes && s[i] >= 0x80) {
            (void)ax_utf8_decode(s + i, &n);
            id = ax_vocab_find(b->vocab, (const char *)s + i, n);
        }
        if (id == AX_NO_TOKEN) {
            AX_TRY(add_unknown(b, w, s, i, n, &unknown));
            continue;
        }
        flush_unknown(b, w, &unknown);
        add_symbol(w, id, i, n);
    }
    flush_unknown(b, w, &unknown);
    return AX_OK;
}

/* Splits into characters: with scores, a character need not be a token to merge into one. */
static void split_any(const struct ax_bpe *b, struct ax_bpe_work *w, const unsigned char *s,
                      size_t len) {
    for (size_t i = 0, n; i < len; i += n) {
        (void)ax_utf8_decode(s + i, &n);
        add_symbol(w, ax_vocab_find(b->vocab, (const char *)s + i, n), i, n);
    }
}

/* ---- merging ---- */

/* For few symbols: finds the best rank by looking at all of them, and closes the gap after a
 * merge. */
static void merge_short(const struct ax_bpe *b, struct ax_bpe_work *w, const char *s) {
    struct ax_symbol *sym = w->symbols;
    size_t n = w->n_symbols;
    uint32_t rank[SHORT_WORD];
    int32_t merged[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of(b, s, &sym[i], &sym[i + 1], &merged[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == NO_RANK)
            break;
        sym[best].id = merged[best];
        sym[best].len += sym[best + 1].len;
        n--;
        memmove(&sym[best + 1], &sym[best + 2], (n - best - 1) * sizeof *sym);
        if (best + 1 < n) {
            memmove(&rank[best + 1], &rank[best + 2], (n - best - 2) * sizeof *rank);
            memmove(&merged[best + 1], &merged[best + 2], (n - best - 2) * sizeof *merged);
            rank[best] = rank_of(b, s, &sym[best], &sym[best + 1], &merged[best]);
        }
        if (best > 0)
            rank[best - 1] = rank_of(b, s, &sym[best - 1], &sym[best], &merged[best - 1]);
    }
    w->n_symbols = n;
}

static void sift_down(struct ax_merge *heap, size_t n, size_t i) {
    struct ax_merge m = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1].key < heap[child].key)
            child++;
        if (m.key <= heap[child].key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = m;
}

static void push_merge(struct ax_bpe_work *w, struct ax_merge m) {
    size_t i = w->n_heap++;
    for (; i > 0 && m.key < w->heap[(i - 1) / 2].key; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = m;
}

static void push_pair(const struct ax_bpe *b, struct ax_bpe_work *w, const char *s, int32_t left) {
    const struct ax_symbol *l = &w->symbols[left];
    int32_t merged = AX_NO_TOKEN;
    uint32_t rank = rank_of(b, s, l, &w->symbols[l->next], &merged);
    if (rank != NO_RANK)
        push_merge(w, (struct ax_merge){(uint64_t)rank << 32 | (uint32_t)left, merged});
}

/* The heap has at most n − 1 entries at first. Each of the at most n − 1 merges removes one and
 * adds at most two. */
static enum ax_status reserve_heap(struct ax_bpe_work *w, size_t n) {
    if (2 * n <= w->cap_heap)
        return AX_OK;
    ax_free(w->heap);
    w->heap = NULL;
    w->cap_heap = 0;
    AX_TRY(ax_alloc(&w->heap, 2 * n, sizeof *w->heap));
    w->cap_heap = 2 * n;
    return AX_OK;
}

/* For many symbols: a heap of candidate merges over a linked list. An entry is stale if its left
 * symbol is gone or no longer forms the same token with its right neighbor. */
static enum ax_status merge_long(const struct ax_bpe *b, struct ax_bpe_work *w, const char *s) {
    struct ax_symbol *sym = w->symbols;
    size_t n = w->n_symbols;
    AX_TRY(reserve_heap(w, n));
    for (size_t i = 0; i < n; i++) {
        sym[i].prev = (int32_t)i - 1;
        sym[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    w->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        push_pair(b, w, s, (int32_t)i);
    while (w->n_heap > 0) {
        struct ax_merge top = w->heap[0];
        w->heap[0] = w->heap[--w->n_heap];
        sift_down(w->heap, w->n_heap, 0);

        int32_t at = (int32_t)(uint32_t)top.key, merged;
        struct ax_symbol *left = &sym[at];
        if (left->len == 0 || left->next < 0)
            continue;
        struct ax_symbol *right = &sym[left->next];
        if (rank_of(b, s, left, right, &merged) == NO_RANK || merged != top.merged)
            continue;
        left->id = merged;
        left->len += right->len;
        right->len = 0;
        left->next = right->next;
        if (left->next >= 0) {
            sym[left->next].prev = at;
            push_pair(b, w, s, at);
        }
        if (left->prev >= 0)
            push_pair(b, w, s, left->prev);
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (sym[i].len != 0)
            sym[kept++] = sym[i];
    w->n_symbols = kept;
    return AX_OK;
}

/* ---- pieces ---- */

static enum ax_status emit(const struct ax_bpe *b, const struct ax_bpe_work *w,
                           const unsigned char *s, bool spans, struct ax_encoding *out) {
    for (size_t i = 0; i < w->n_symbols; i++) {
        const struct ax_symbol *y = &w->symbols[i];
        if (y->id != AX_NO_TOKEN) {
            AX_TRY(ax_encoding_push(out, y->id, spans, y->start, y->start + y->len));
            continue;
        }
        for (uint32_t j = y->start; j < y->start + y->len; j++) {
            int32_t id = b->fallback[s[j]] != AX_NO_TOKEN ? b->fallback[s[j]] : b->unk;
            if (id != AX_NO_TOKEN)
                AX_TRY(ax_encoding_push(out, id, spans, j, j + 1));
        }
    }
    return AX_OK;
}

static enum ax_status encode_word(const struct ax_bpe *b, struct ax_bpe_work *w, const char *s,
                                  size_t len, bool spans, struct ax_encoding *out) {
    if (len > INT32_MAX)
        return ax_error(AX_ERR_DATA, "a word of %zu bytes; at most 2 GiB are supported", len);
    AX_TRY(reserve_symbols(w, len));
    w->n_symbols = 0;
    if (b->score_ranks != NULL)
        split_any(b, w, (const unsigned char *)s, len);
    else
        AX_TRY(split_known(b, w, (const unsigned char *)s, len));
    if (w->n_symbols <= SHORT_WORD)
        merge_short(b, w, s);
    else
        AX_TRY(merge_long(b, w, s));
    return emit(b, w, (const unsigned char *)s, spans, out);
}

/* Caches the tokens of a word if they cover it without gaps. */
static void remember(const struct ax_bpe_work *w, struct ax_word_entry *slot, struct ax_word key,
                     const struct ax_encoding *out, size_t from, size_t len) {
    size_t n = out->n - from, covered = 0;
    if (n == 0 || n > AX_WORD_TOKENS || n != w->n_symbols)
        return;
    struct ax_word_entry e = {.key = key, .n = (uint8_t)n};
    for (size_t i = 0; i < n; i++) {
        if (w->symbols[i].start != covered)
            return;
        covered += w->symbols[i].len;
        e.lens[i] = (uint8_t)w->symbols[i].len;
        e.ids[i] = out->ids[from + i];
    }
    if (covered == len)
        *slot = e;
}

/* `whole`: a piece that is a token is not split. */
static enum ax_status encode_cached(const struct ax_bpe *b, struct ax_bpe_work *w, const char *s,
                                    size_t len, bool whole, bool spans, struct ax_encoding *out) {
    struct ax_word key = {{0, 0, 0}};
    struct ax_word_entry *slot = NULL;
    if (len <= AX_WORD_MAX) {
        key = ax_word_key(s, len);
        slot = ax_word_slot(w->cache, key);
        if (ax_word_equal(slot->key, key)) {
            for (size_t i = 0, at = 0; i < slot->n; at += slot->lens[i++])
                AX_TRY(ax_encoding_push(out, slot->ids[i], spans, at, at + slot->lens[i]));
            return AX_OK;
        }
    }
    size_t from = out->n;
    int32_t id = whole ? ax_vocab_find(b->vocab, s, len) : AX_NO_TOKEN;
    if (id != AX_NO_TOKEN) {
        AX_TRY(reserve_symbols(w, 1));
        w->n_symbols = 0;
        add_symbol(w, id, 0, len);
        AX_TRY(ax_encoding_push(out, id, spans, 0, len));
    } else {
        AX_TRY(encode_word(b, w, s, len, spans, out));
    }
    if (slot != NULL)
        remember(w, slot, key, out, from, len);
    return AX_OK;
}

enum ax_status ax_bpe_encode(const struct ax_bpe *b, struct ax_bpe_work *w, const char *s,
                             size_t len, bool spans, struct ax_encoding *out) {
    if (w->cache == NULL)
        AX_TRY(ax_alloc(&w->cache, 1, sizeof *w->cache));
    if (b->cuts == NULL)
        return encode_cached(b, w, s, len, b->ignore_merges, spans, out);
    if (b->ignore_merges) {
        int32_t id = ax_vocab_find(b->vocab, s, len);
        if (id != AX_NO_TOKEN)
            return ax_encoding_push(out, id, spans, 0, len);
    }
    for (size_t at = 0, n; at < len; at += n) {
        size_t from = out->n;
        n = cut_length(b->cuts, s + at, len - at);
        AX_TRY(encode_cached(b, w, s + at, n, false, spans, out));
        for (size_t i = from; spans && i < out->n; i++) {
            out->spans[i].start += at;
            out->spans[i].end += at;
        }
    }
    return AX_OK;
}

void ax_bpe_work_free(struct ax_bpe_work *w) {
    ax_free(w->symbols);
    ax_free(w->heap);
    ax_free(w->cache);
    *w = (struct ax_bpe_work){0};
}
