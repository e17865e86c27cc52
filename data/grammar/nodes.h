/* Nodes of a grammar. Private to data/grammar/. */
#ifndef AX_DATA_GRAMMAR_NODES_H
#define AX_DATA_GRAMMAR_NODES_H

#include <string.h>

#include "base/mem.h"
#include "data/grammar/grammar.h"

enum ax_node_kind {
    AX_NODE_OBJECT,
    AX_NODE_ARRAY,
    AX_NODE_STRING,
    AX_NODE_NUMBER,
    AX_NODE_TEXTS,
    AX_NODE_PATTERN,
    AX_NODE_UNION
};

#define AX_NO_NODE  (-1)
#define AX_NO_LIMIT (-1)
#define AX_ENDLESS  (1 << 20) /* height of what has no finite value */

struct ax_grammar_text {
    char *s;
    size_t n;
};

struct ax_grammar_property {
    struct ax_grammar_text key; /* as JSON, with its quotes */
    int node;
    bool required;
};

struct ax_node {
    enum ax_node_kind kind;
    int height; /* frames of its smallest value */
    /* object */
    int n_properties;
    struct ax_grammar_property *properties;
    int other; /* node of additional properties, or AX_NO_NODE */
    /* object: keys without quotes; texts: values; each sorted by bytes */
    int n_texts;
    struct ax_grammar_text *texts;
    /* array: its first items have the nodes `ways`; the others, or AX_NO_NODE */
    int item;
    int64_t min, max; /* items, or characters of a string */
    /* number: whole numbers; limits as multiples of 1, or of 10^−AX_DECIMALS */
    bool integer, limited;
    int64_t least, most;
    struct ax_pattern *pattern; /* pattern.h; owned; of a string, NULL: any text */
    /* union, array */
    int n_ways;
    int *ways;
};
#define AX_DECIMALS 6

struct ax_grammar {
    struct ax_node *nodes;
    int n, cap, root;
    size_t text; /* bytes of keys and texts */
};

/* ---- texts.c ---- */

/* Sets a text that the grammar owns. AX_ERR_DATA: its texts are too long. */
enum ax_status ax_grammar_add_text(struct ax_grammar *g, struct ax_grammar_text *to, const char *s,
                                   size_t n);
/* Puts texts in order, each once. */
void ax_grammar_sort_texts(struct ax_node *v);

/* ---- heights.c ---- */

/* Sets those of all nodes. */
void ax_grammar_find_heights(struct ax_grammar *g);
/* *loop: a union would have to be begun to begin it. */
enum ax_status ax_grammar_find_loop(const struct ax_grammar *g, bool *loop);

/* ---- numbers.c ---- */

/* After the byte; false: it may not come. */
bool ax_number_step(const struct ax_node *node, struct ax_grammar_frame *f, unsigned char byte);
/* False: it is as long as it may be. */
bool ax_number_goes_on(const struct ax_node *node, const struct ax_grammar_frame *f);
bool ax_number_may_end(const struct ax_node *node, const struct ax_grammar_frame *f);

/* ---- characters.c: JSON's characters in strings ---- */

/* The state after a byte of a character, 0 between two; −1: it may not come. The quote that ends a string is the
 * caller's. */
int ax_character_step(int state, unsigned char byte, bool escapes);

#endif
