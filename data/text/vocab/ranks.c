#include "data/text/vocab/ranks.h"

#include <string.h>

#include "data/text/tokenizer/byte_level.h"

static int sextet(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

size_t ax_rank_decode(const char *s, size_t len, unsigned char *out) {
    size_t n = 0;
    if (len == 0 || len % 4 != 0 || len / 4 * 3 > AX_RANK_BYTES + 2)
        return 0;
    for (size_t i = 0; i < len; i += 4) {
        const bool last = i + 4 == len;
        const size_t pad = last ? (size_t)(s[len - 1] == '=') + (s[len - 2] == '=') : 0;
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            const int v = k >= 4 - pad ? 0 : sextet(s[i + k]);
            if (v < 0)
                return 0;
            bits = bits << 6 | (uint32_t)v;
        }
        for (size_t k = 0; k < 3 - pad; k++)
            out[n++] = (unsigned char)(bits >> (16 - 8 * k));
    }
    return n <= AX_RANK_BYTES ? n : 0;
}

enum ax_status ax_rank_add(struct ax_tokenizer *t, const unsigned char *bytes, size_t n, int64_t id,
                           size_t expected) {
    char chars[2 * AX_RANK_BYTES];
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        len += ax_byte_to_char(bytes[i], chars + len);
    return ax_vocab_add(&t->vocab, chars, len, id, expected);
}

/* Every way to form a token from two others, by the rank of what is formed. */
static enum ax_status add_merges(struct ax_tokenizer *t, int64_t first) {
    for (int32_t id = (int32_t)first; (size_t)id < t->vocab.n_ids; id++) {
        size_t len;
        const char *s = ax_vocab_string(&t->vocab, id, &len);
        for (size_t i = 1; s && i < len; i++) {
            if (((unsigned char)s[i] & 0xC0U) == 0x80U)
                continue;
            const int32_t left = ax_vocab_find(&t->vocab, s, i);
            const int32_t right = ax_vocab_find(&t->vocab, s + i, len - i);
            if (left != AX_NO_TOKEN && right != AX_NO_TOKEN)
                AX_TRY(ax_bpe_add_merge(&t->bpe, left, right, id, (uint32_t)id, 0));
        }
    }
    return AX_OK;
}

enum ax_status ax_ranks_finish(struct ax_tokenizer *t, const char *pattern, int64_t first) {
    struct ax_decode_step *step;
    AX_TRY(
        ax_pretok_add_regex(&t->pretok, pattern, strlen(pattern), false, AX_SPLIT_ISOLATED, false));
    AX_TRY(ax_pretok_add_bytes(&t->pretok, false, false));
    t->bpe.ignore_merges = true;
    AX_TRY(add_merges(t, first));
    AX_TRY(ax_decoder_add(&t->decoder, AX_DECODE_BYTES, &step));
    return ax_tokenizer_finish(t);
}
