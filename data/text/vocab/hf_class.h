/* The parts of a tokenizer that transformers 5 makes by its class, whatever tokenizer.json has. */
#ifndef AX_DATA_TEXT_VOCAB_HF_CLASS_H
#define AX_DATA_TEXT_VOCAB_HF_CLASS_H

#include "base/text/json.h"

/* Parses them, written as in tokenizer.json; parts->root = NULL: the tokenizer.json of `dir` counts, of which `text` is the
 * beginning up to a NUL. */
enum ax_status ax_hf_class_parts(struct ax_json_doc *parts, const char *dir, const char *text);

/* Says so where `file`, the root of tokenizer.json, has other ones. */
void ax_hf_class_report(const struct ax_json_doc *parts, struct ax_json file);

/* Parses dir/name; doc->root stays NULL if there is no such file. */
enum ax_status ax_hf_load_optional(struct ax_json_doc *doc, const char *dir, const char *name);

#endif
