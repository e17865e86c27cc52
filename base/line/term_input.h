/* Input modes of the terminal on stdin; one setting per process. */
#ifndef AX_BASE_LINE_TERM_INPUT_H
#define AX_BASE_LINE_TERM_INPUT_H

#include "base/status.h"

enum ax_term_input {
    AX_TERM_AS_FOUND,
    AX_TERM_QUIET, /* no echo; input waits for the next reader; Ctrl-C is SIGINT */
    AX_TERM_KEYS,  /* the same, but keys arrive as bytes, including Ctrl-C; pasted text is marked */
};
/* Until AX_TERM_AS_FOUND is set again, a signal that ends or suspends the process first restores
 * the terminal. */
enum ax_status ax_term_set_input(enum ax_term_input input);

#endif
