/* One text as tokens of two tokenizers: its spans, the shortest pieces that end where tokens of both end. As the aligned
 * chunks of Minixhofer et al. 2025 (arXiv 2503.20083) and TRL's GOLD. Both tokenizations say the same of a span's bytes,
 * so the log-probs of its tokens, summed, compare. Plain C. */
#ifndef AX_OPTIM_ROLLOUT_SPANS_H
#define AX_OPTIM_ROLLOUT_SPANS_H

#include <stdint.h>

struct ax_text_span {
    int64_t own, own_end, other, other_end; /* tokens [own, own_end) and [other, other_end) */
};

/* The spans of n and m tokens, which end at these bytes, in ascending order; several may end at the same. Tokens after
 * the last place where both end are in none. Returns their number, at most the smaller of n and m. */
int64_t ax_text_spans(int64_t n, const int64_t *own, int64_t m, const int64_t *other,
                      struct ax_text_span *out);

#endif
