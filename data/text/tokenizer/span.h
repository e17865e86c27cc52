/* A range of text, [start, end), in bytes or code points, depending on use. */
#ifndef AX_DATA_TEXT_TOKENIZER_SPAN_H
#define AX_DATA_TEXT_TOKENIZER_SPAN_H

#include <stddef.h>

struct ax_span {
    size_t start, end;
};

#endif
