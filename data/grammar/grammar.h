/* JSON schemas, choices and regular expressions as automata over bytes: which bytes may follow, after each byte of a
 * value.
 *
 * A grammar is a table of nodes (nodes.h), which compile.c makes of a schema. A state is a set of stacks, one for
 * each way to read what has come so far (machine.c): an object, an array or a scalar is a frame of a stack. Every
 * stack can always be continued to a value: nodes know how deep their smallest value nests, and are begun only
 * where that fits. vocabulary.h has the bytes of tokens, mask.h the tokens that may come next.
 *
 *   types                 object, array, string, integer, number, boolean, null; several; none: any value, or what
 *                         the other keywords are about
 *   enum, const           beside annotations only, or with a type
 *   anyOf, oneOf, allOf   beside annotations only; oneOf if no value can fit two (apart.c), allOf of one schema
 *   object                properties, in their order; required; additionalProperties, behind the others
 *   array                 prefixItems, items, minItems, maxItems
 *   string                minLength, maxLength; pattern, in which they may only limit what it matches, or format (formats.c)
 *   integer, number       minimum, maximum, exclusiveMinimum, exclusiveMaximum
 *   $ref                  within the document, also recursive: values nest at most AX_GRAMMAR_DEPTH deep
 *   annotations           title, description, default, examples, deprecated, readOnly, writeOnly, discriminator, $schema,
 *                         $id, $comment, $defs, definitions
 *
 * Any other keyword is an error that names it. Of all texts of a value only some are made: white space is a
 * space or a line and its indentation, integers have up to 15 digits, numbers with limits up to 6 decimals, and texts
 * with a pattern or format have no escapes. */
#ifndef AX_DATA_GRAMMAR_GRAMMAR_H
#define AX_DATA_GRAMMAR_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define AX_GRAMMAR_DEPTH  32   /* frames of a stack */
#define AX_GRAMMAR_STACKS 128  /* ways to read a text at a time; further ones are dropped */
#define AX_GRAMMAR_NODES  4096 /* parts of a schema */
#define AX_GRAMMAR_TEXT   ((size_t)1 << 20) /* bytes of its names and constants */

struct ax_grammar;
/* References begin at the innermost schema around them that has $defs or definitions, else at the root. `alone`: as in
 * vocabulary.h. AX_ERR_DATA names the keyword and where it is. */
enum ax_status ax_grammar_compile(struct ax_grammar **out, const json_t *schema,
                                  const bool alone[256]);
/* One of the texts of a list; a text that the expression matches as a whole (pattern_read.c has the language).
 * AX_ERR_DATA names the text, or the place. */
enum ax_status ax_grammar_compile_choice(struct ax_grammar **out, const json_t *texts,
                                         const bool alone[256]);
enum ax_status ax_grammar_compile_pattern(struct ax_grammar **out, const char *text, size_t n,
                                          const bool alone[256]);
void ax_grammar_free(struct ax_grammar *g); /* NULL is fine */

/* ---- states ---- */

/* Without padding: frames are compared as bytes. */
struct ax_grammar_frame {
    int64_t value;
    int32_t node, n, lo, hi;
    int32_t at; /* byte of an additional key */
    int16_t phase, flag;
};
struct ax_grammar_stack {
    int n;
    struct ax_grammar_frame f[AX_GRAMMAR_DEPTH];
};
/* A zeroed one is none. */
struct ax_grammar_state {
    int n, cap;
    struct ax_grammar_stack *s;
};
enum ax_status ax_grammar_begin(const struct ax_grammar *g, struct ax_grammar_state *out);
void ax_grammar_state_free(struct ax_grammar_state *s);
/* `to` becomes what `from` is after the byte, which may not come if then to->n is 0. */
enum ax_status ax_grammar_step(const struct ax_grammar *g, const struct ax_grammar_state *from,
                               unsigned char byte, struct ax_grammar_state *to);
/* The value may end here; it must: nothing can follow. */
bool ax_grammar_may_end(const struct ax_grammar *g, const struct ax_grammar_state *s);
bool ax_grammar_must_end(const struct ax_grammar_state *s);

#endif
