/* A stretch of text, [start, end): of bytes or of code points, as its user says. */
#ifndef AX_DATA_TOKENIZER_SPAN_H
#define AX_DATA_TOKENIZER_SPAN_H

#include <stddef.h>

struct ax_span {
    size_t start, end;
};

#endif
