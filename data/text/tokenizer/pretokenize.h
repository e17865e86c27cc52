/* Pre-tokenizers: split normalized text into the pieces that the model sees one by one.
 *
 * A chain of simple steps, each of which splits every piece or rewrites it. HF's compound ones
 * become several steps (ByteLevel = PREFIX, REGEX, BYTES). Pieces pass depth first through the
 * chain, so no list of pieces is stored. */
#ifndef AX_DATA_TEXT_TOKENIZER_PRETOKENIZE_H
#define AX_DATA_TEXT_TOKENIZER_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/text/tokenizer/aligned.h"
#include "base/text/regex.h"

/* Hand-written split rules of GPT-2, Llama 3, Qwen2, GPT-4o and Tekken, several times as fast as
 * their regular expressions. tests/data/test_scan.c compares each with its regular expression. In these rules, a match begins
 * at every position, so a scanner only returns where the match that begins here ends. */

/* End of the match that begins at s[at], at < len; s is valid UTF-8. */
typedef size_t (*ax_scan_fn)(const unsigned char *s, size_t at, size_t len);

struct ax_scan_rule {
    const char *name, *pattern;
    ax_scan_fn scan;
};
extern const struct ax_scan_rule ax_scan_rules[];
extern const size_t ax_scan_rule_count;

/* The scanner for this regular expression, or NULL. */
ax_scan_fn ax_scan_find(const char *pattern, size_t len);

/* What a splitting step does with matches and the text between them. */
enum ax_split_behavior {
    AX_SPLIT_ISOLATED,        /* each match and each gap is a piece */
    AX_SPLIT_REMOVED,         /* gaps only */
    AX_SPLIT_MERGED_PREVIOUS, /* a match joins the preceding gap */
    AX_SPLIT_MERGED_NEXT,     /* a match joins the following gap */
    AX_SPLIT_CONTIGUOUS       /* neighboring matches join */
};

enum ax_pretok_kind {
    AX_PRETOK_REGEX,     /* split at matches of regex, or of scan, which implements the same rule */
    AX_PRETOK_CHARS,     /* split at characters for which pred holds, or that are `cp` */
    AX_PRETOK_PREFIX,    /* prepends a blank to a piece that does not begin with one */
    AX_PRETOK_METASPACE, /* ' ' → replacement, and one before the piece as `prepend` says */
    AX_PRETOK_BYTES      /* each byte becomes its character of the byte alphabet */
};

enum ax_prepend { AX_PREPEND_NEVER, AX_PREPEND_FIRST, AX_PREPEND_ALWAYS };

struct ax_pretok_step {
    enum ax_pretok_kind kind;
    enum ax_split_behavior behavior;
    bool invert; /* REGEX: gaps are the matches */
    struct ax_regex *regex;
    ax_scan_fn scan;
    bool (*pred)(uint32_t cp);
    uint32_t cp;
    char replacement[5]; /* METASPACE: one character */
    enum ax_prepend prepend;
};

enum { AX_PRETOK_MAX = 16 };

struct ax_pretok {
    struct ax_pretok_step steps[AX_PRETOK_MAX];
    size_t n;
};

/* Each adds a step; AX_ERR_UNSUPPORTED beyond AX_PRETOK_MAX. */
enum ax_status ax_pretok_add_regex(struct ax_pretok *p, const char *pattern, size_t len,
                                   bool literal, enum ax_split_behavior behavior, bool invert);
enum ax_status ax_pretok_add_chars(struct ax_pretok *p, bool (*pred)(uint32_t), uint32_t cp,
                                   enum ax_split_behavior behavior);
enum ax_status ax_pretok_add_metaspace(struct ax_pretok *p, const char *replacement,
                                       enum ax_prepend prepend, bool split);
enum ax_status ax_pretok_add_bytes(struct ax_pretok *p, bool prefix, bool split);
void ax_pretok_free(struct ax_pretok *p);
/* True if a piece's position in the text matters. Then pieces need alignments. */
bool ax_pretok_needs_origin(const struct ax_pretok *p);

/* Per-thread scratch; zero-initialize. */
struct ax_pretok_work {
    struct ax_aligned texts[AX_PRETOK_MAX];
    struct ax_regex_work regex;
};
void ax_pretok_work_free(struct ax_pretok_work *w);

/* Receives the pieces, never empty. */
typedef enum ax_status (*ax_piece_fn)(void *context, const struct ax_piece *piece);

enum ax_status ax_pretok_run(const struct ax_pretok *p, struct ax_pretok_work *w,
                             const struct ax_piece *text, bool track, ax_piece_fn emit,
                             void *context);

#endif
