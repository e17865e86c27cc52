/* Decoders: token strings back to text, through a chain of steps.
 *
 * Each step turns one list of strings into another. The same code decodes all tokens in one call or
 * one by one: a step keeps in its state what it cannot emit yet. */
#ifndef AX_DATA_TEXT_TOKENIZER_DECODE_H
#define AX_DATA_TEXT_TOKENIZER_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/text/regex.h"

enum ax_decode_kind {
    AX_DECODE_BYTES,         /* characters of the byte alphabet → bytes → one text */
    AX_DECODE_METASPACE,     /* replacement → ' ', or nothing in the first token */
    AX_DECODE_REPLACE,       /* matches of regex → text */
    AX_DECODE_BYTE_FALLBACK, /* runs of "<0xHH>" → their bytes; U+FFFD for each if not UTF-8 */
    AX_DECODE_FUSE,          /* all → one text */
    AX_DECODE_STRIP,         /* removes up to `start` and `stop` characters `cp` at the two ends */
    AX_DECODE_JOIN /* all → one text, separated by blanks: used if there is no decoder */
};

struct ax_decode_step {
    enum ax_decode_kind kind;
    uint32_t cp;        /* METASPACE, STRIP */
    bool drop_first;    /* METASPACE */
    size_t start, stop; /* STRIP */
    struct ax_regex *regex;
    char *text; /* REPLACE; owned */
    size_t text_len;
};

enum { AX_DECODE_MAX = 16 };

struct ax_decoder {
    struct ax_decode_step steps[AX_DECODE_MAX];
    size_t n;
};

enum ax_status ax_decoder_add(struct ax_decoder *d, enum ax_decode_kind kind,
                              struct ax_decode_step **step);
void ax_decoder_free(struct ax_decoder *d);

/* Concatenated strings. */
struct ax_strings {
    struct ax_buf text;
    size_t *ends;
    size_t n, cap;
    size_t most; /* bytes of text, while steps replace parts of it */
};

struct ax_decode_state {
    size_t seen;        /* METASPACE, JOIN: strings so far */
    struct ax_buf held; /* BYTES: start of a character; BYTE_FALLBACK: the current run */
    size_t stripped;    /* STRIP of one text: characters removed from its start */
    bool begun;         /* STRIP of one text: another character has been seen */
};

/* One decoding; zero-initialize. Put tokens into lists[0], then feed, repeatedly if the decoder
 * streams; set `last` with the last ones (or none). Appends to out. */
struct ax_decode_run {
    struct ax_strings lists[2];
    struct ax_decode_state states[AX_DECODE_MAX];
    struct ax_regex_work regex;
};

#endif
