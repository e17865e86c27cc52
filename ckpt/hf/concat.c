#include "ckpt/hf/concat.h"

int64_t ax_concat_first(const struct ax_concat *j, int64_t i) {
    if (!j->other)
        return i;
    const int64_t row = j->run + j->other_run, in_row = i % row;
    return i / row * j->run + (in_row < j->run ? in_row : j->run);
}

void ax_concat_convert(const struct ax_concat *j, enum ax_dtype is, const void *data, int64_t base,
                       enum ax_dtype wanted, int64_t first, int64_t n, void *out) {
    const int64_t row = j->run + j->other_run;
    const size_t size = ax_dtype_size(is);
    for (int64_t i = first, len; i < first + n; i += len) {
        const int64_t before = ax_concat_first(j, i), in_row = j->other ? i % row : 0;
        const bool other = j->other && in_row >= j->run;
        const char *from = other ? j->other : data;
        from += (size_t)(other ? i - before : before - base) * size;
        len = first + n - i;
        if (j->other && len > (other ? row : j->run) - in_row)
            len = (other ? row : j->run) - in_row;
        ax_convert(wanted, (char *)out + (size_t)(i - first) * ax_dtype_size(wanted), is, from,
                   len);
    }
}
