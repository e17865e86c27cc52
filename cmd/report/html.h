/* HTML text with all external strings escaped. */
#ifndef AX_CMD_REPORT_HTML_H
#define AX_CMD_REPORT_HTML_H

#include "base/mem.h"

/* Appends markup; each % is replaced by the next argument, a const char * that is escaped (NULL: an
 * en dash). This is the only way to insert an external string, so none stays unescaped. */
enum ax_status ax_html_put(struct ax_buf *out, const char *markup, ...);

#endif
