/* Errors about a key of a request. */
#include <stdarg.h>
#include <stdio.h>

#include "cmd/serve/request.h"

enum ax_status ax_serve_refuse(struct ax_serve_request *r, const char *param, const char *fmt,
                               ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(r->param, sizeof r->param, "%s", param);
    return ax_error(AX_ERR_DATA, "%s: %s", param, text);
}

enum ax_status ax_serve_check_ids(struct ax_serve_request *r, const struct ax_serve_model *m,
                                  const char *param, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= m->vocab_size)
            return ax_serve_refuse(r, param,
                                   "the tokenizer makes token %d of a text, and the model has only "
                                   "ids up to %lld",
                                   ids[i], (long long)m->vocab_size - 1);
    return AX_OK;
}
