/* Regular expressions as automata over bytes. Private to data/grammar/.
 *
 * An expression becomes parts, which are a nondeterministic automaton (pattern_read.c, pattern_set.c), and these a table
 * of states (pattern.c). All of it is bounded: expressions come from clients. */
#ifndef AX_DATA_GRAMMAR_PATTERN_H
#define AX_DATA_GRAMMAR_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* ---- pattern_set.c: parts ---- */

#define AX_PATTERN_PARTS  (1 << 16)
#define AX_PATTERN_RANGES 256 /* ranges of characters in a set */
#define AX_NO_PART        (-1)

enum ax_part_kind {
    AX_PART_BYTE, /* a byte from lo to hi, then `next` */
    AX_PART_FORK, /* `next` or `other` */
    AX_PART_JOIN, /* `next` */
    AX_PART_END
};
struct ax_part {
    enum ax_part_kind kind;
    uint8_t lo, hi;
    int32_t next, other; /* AX_NO_PART: not yet linked */
};
struct ax_parts {
    struct ax_part *list;
    size_t n, cap;
};
/* AX_ERR_DATA: there are too many. */
enum ax_status ax_parts_add(struct ax_parts *p, struct ax_part part, int32_t *at);

/* From the first part to the last, whose `next` is open. */
struct ax_piece {
    int32_t first, last;
};

/* ---- pattern_set.c: sets of characters ---- */

struct ax_char_set {
    int n;
    struct ax_char_range {
        uint32_t lo, hi;
    } ranges[AX_PATTERN_RANGES + 6]; /* a class has up to 5; between ranges there may be one more */
};
/* To a set of fewer than AX_PATTERN_RANGES, as below. */
void ax_char_set_add(struct ax_char_set *s, uint32_t lo, uint32_t hi);
/* Adds \d, \w or \s of ASCII, or with \D, \W or \S all others. False: there is no such class. */
bool ax_char_set_add_class(struct ax_char_set *s, char letter);
/* Becomes all other characters. */
void ax_char_set_invert(struct ax_char_set *s);
/* Parts that read one character of the set, as UTF-8. *piece is untouched if the set has none. */
enum ax_status ax_char_set_parts(struct ax_char_set *s, struct ax_parts *p, struct ax_piece *piece);

/* ---- pattern_read.c ---- */

/* The parts of an expression; *first is where they begin. Not `whole`: anything may stand before a row without ^, and behind
 * one without $. AX_ERR_DATA with the place. */
enum ax_status ax_pattern_read(struct ax_parts *p, const char *text, size_t n, bool whole,
                               int32_t *first);

/* ---- pattern.c ---- */

#define AX_PATTERN_ENTRIES ((size_t)1 << 20) /* entries of a table, */
#define AX_PATTERN_WORK    ((size_t)1 << 24) /* and parts looked at */

enum { AX_PATTERN_ENDS = 1, AX_PATTERN_GOES_ON = 2 };

struct ax_pattern {
    int n_states, n_classes;
    uint8_t class_of[256]; /* bytes that no state tells apart are of a class */
    uint16_t *next;        /* [states][classes]; 0: the byte may not come */
    uint8_t *is;           /* [states]: may a match end here, and can it go on? */
    uint16_t *least;  /* [states]: characters of the shortest end of a match, or AX_PATTERN_NEVER */
    uint16_t longest; /* the most of these */
    size_t work;      /* that it took */
};
#define AX_PATTERN_FIRST 1 /* state */
#define AX_PATTERN_NEVER UINT16_MAX

/* `whole`: as above. From every state that can be reached a match can be written in bytes that may be written alone
 * (vocabulary.h). AX_ERR_DATA if there is no such match, or none but the empty text. */
enum ax_status ax_pattern_compile(struct ax_pattern **out, const char *text, size_t n, bool whole,
                                  const bool alone[256]);
void ax_pattern_free(struct ax_pattern *p); /* NULL is fine */

static inline int ax_pattern_step(const struct ax_pattern *p, int state, unsigned char byte) {
    return p->next[(size_t)state * (size_t)p->n_classes + p->class_of[byte]];
}

#endif
