#include "ckpt/hf/concat.h"

int64_t ax_concat_first(const struct ax_concat *j, int64_t i) {
    if (!j->other)
        return i;
    const int64_t row = j->run + j->other_run, in_row = i % row;
    return i / row * j->run + (in_row < j->run ? in_row : j->run);
}

/* Converts elements [first, first + n), whose elements of the two begin at `mine` and `theirs`. */
static void convert(const struct ax_concat_source *s, const char *mine, const char *theirs,
                    enum ax_dtype wanted, int64_t first, int64_t n, char *out) {
    const struct ax_concat *j = &s->concat;
    const int64_t row = j->run + j->other_run;
    for (int64_t i = first, len; i < first + n; i += len) {
        const int64_t in_row = j->other ? i % row : 0;
        const bool other = j->other && in_row >= j->run;
        const char **from = other ? &theirs : &mine;
        len = first + n - i;
        if (j->other && len > (other ? row : j->run) - in_row)
            len = (other ? row : j->run) - in_row;
        ax_convert(wanted, out, s->dtype, *from, len);
        *from += (size_t)len * ax_dtype_size(s->dtype);
        out += (size_t)len * ax_dtype_size(wanted);
    }
}

enum ax_status ax_concat_convert(const struct ax_concat_source *s, enum ax_dtype wanted,
                                 int64_t first, int64_t n, void *out) {
    const size_t size = ax_dtype_size(s->dtype);
    const int64_t begin = ax_concat_first(&s->concat, first),
                  end = ax_concat_first(&s->concat, first + n);
    const int64_t others = n - (end - begin);
    const void *mine, *theirs = NULL;
    AX_TRY(ax_queue_begin_read(s->q,
                               (const char AX_DEVICE *)s->data + (size_t)(begin - s->base) * size,
                               (size_t)(end - begin) * size, &mine));
    enum ax_status st = AX_OK;
    if (others > 0)
        st = ax_queue_begin_read(
            s->other_q, (const char AX_DEVICE *)s->concat.other + (size_t)(first - begin) * size,
            (size_t)others * size, &theirs);
    if (st == AX_OK)
        convert(s, mine, theirs, wanted, first, n, out);
    if (theirs)
        ax_queue_end_read(s->other_q, theirs);
    ax_queue_end_read(s->q, mine);
    return st;
}
