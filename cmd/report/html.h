/* HTML text with all external strings escaped. */
#ifndef AX_CMD_REPORT_HTML_H
#define AX_CMD_REPORT_HTML_H

#include "base/mem.h"

/* Appends text for content and quoted attributes: & < > " ' become references; invalid UTF-8 and
 * control characters other than tab and newline become U+FFFD. */
enum ax_status ax_html_text(struct ax_buf *out, const char *text);

/* Appends markup; each % is replaced by the next argument, a const char * that is escaped (NULL: an
 * en dash). This is the only way to insert an external string, so none stays unescaped. */
enum ax_status ax_html_put(struct ax_buf *out, const char *markup, ...);

#endif
