/* HTML text with everything foreign escaped. */
#ifndef AX_CMD_REPORT_HTML_H
#define AX_CMD_REPORT_HTML_H

#include "base/mem.h"

/* Appends text for content and quoted attributes: & < > " ' become references; what is no UTF-8,
 * and control characters other than tab and newline, become U+FFFD. */
enum ax_status ax_html_text(struct ax_buf *out, const char *text);

/* Appends markup; each % in it stands for the next argument, a const char * that is escaped (NULL:
 * an en dash). There is no other way to put a foreign text into markup, so none is forgotten. */
enum ax_status ax_html_put(struct ax_buf *out, const char *markup, ...);

#endif
