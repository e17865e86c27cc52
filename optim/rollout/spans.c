#include "optim/rollout/spans.h"

/* The last of the tokens from i on that end where i does. */
static int64_t last_of(int64_t n, const int64_t *ends, int64_t i) {
    while (i + 1 < n && ends[i + 1] == ends[i])
        i++;
    return i;
}

int64_t ax_text_spans(int64_t n, const int64_t *own, int64_t m, const int64_t *other,
                      struct ax_text_span *out) {
    struct ax_text_span next = {0};
    int64_t spans = 0;
    for (int64_t i = 0, j = 0; i < n && j < m;) {
        if (own[i] < other[j]) {
            i++;
        } else if (own[i] > other[j]) {
            j++;
        } else {
            next.own_end = i = last_of(n, own, i) + 1;
            next.other_end = j = last_of(m, other, j) + 1;
            out[spans++] = next;
            next.own = i;
            next.other = j;
        }
    }
    return spans;
}
