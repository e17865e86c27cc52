/* Text with origins. See aligned.h. */
#include "data/text/tokenizer/aligned.h"

#include <string.h>

struct ax_piece ax_piece_part(const struct ax_piece *p, size_t start, size_t end) {
    return (struct ax_piece){p->s + start, end - start, p->at + start,
                             p->align != NULL ? p->align + start : NULL};
}

static bool continues(char c) {
    return ((unsigned char)c & 0xc0) == 0x80;
}

struct ax_span ax_piece_span(const struct ax_piece *p, size_t start, size_t end) {
    if (p->align != NULL)
        return (struct ax_span){p->align[start].start, p->align[end - 1].end};
    while (start > 0 && continues(p->s[start]))
        start--;
    while (end < p->len && continues(p->s[end]))
        end++;
    return (struct ax_span){p->at + start, p->at + end};
}

void ax_aligned_start(struct ax_aligned *a, bool track) {
    a->len = 0;
    a->most = 0;
    a->track = track;
}

static enum ax_status reserve(struct ax_aligned *a, size_t n) {
    size_t need = a->len + n;
    if (a->most > 0 && need > a->most)
        return ax_error(AX_ERR_DATA, "more than %zu bytes", a->most);
    if (need > a->cap) {
        size_t cap = need < 4096 ? 4096 : need + need / 2;
        AX_TRY(ax_regrow(&a->s, a->len, cap, 1));
        a->cap = cap;
    }
    if (a->track && need > a->cap_align) {
        size_t kept = a->len < a->cap_align ? a->len : a->cap_align;
        AX_TRY(ax_regrow(&a->align, kept, a->cap, sizeof *a->align));
        a->cap_align = a->cap;
    }
    return AX_OK;
}

enum ax_status ax_aligned_put(struct ax_aligned *a, const char *s, size_t n, struct ax_span from) {
    if (n == 0)
        return AX_OK;
    AX_TRY(reserve(a, n));
    memcpy(a->s + a->len, s, n);
    for (size_t i = 0; a->track && i < n; i++)
        a->align[a->len + i] = from;
    a->len += n;
    return AX_OK;
}

enum ax_status ax_aligned_copy(struct ax_aligned *a, const struct ax_piece *p, size_t start,
                               size_t end) {
    if (start == end)
        return AX_OK;
    AX_TRY(reserve(a, end - start));
    memcpy(a->s + a->len, p->s + start, end - start);
    for (size_t i = start; a->track && i < end; i++)
        a->align[a->len + i - start] = ax_piece_span(p, i, i + 1);
    a->len += end - start;
    return AX_OK;
}

struct ax_piece ax_aligned_piece(const struct ax_aligned *a) {
    return (struct ax_piece){a->s, a->len, 0, a->track ? a->align : NULL};
}

void ax_aligned_free(struct ax_aligned *a) {
    ax_free(a->s);
    ax_free(a->align);
    *a = (struct ax_aligned){0};
}
