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
