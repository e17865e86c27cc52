/* Conditions over a configuration, and rules between keys. Private to cmd/config/.
 *
 * A condition has C-like syntax: "adapter == lora,qlora && (streaming || max_steps > 0)".
 *   key            is set (or defaults) to something other than false, 0, "" or empty
 *   set(key)       is set, to any value
 *   !key, !set(key)
 *   key == a,b*    its text, or that of an element of its list, matches one of these patterns
 *   key != a,b     it does not, or has no value
 *   key > 2        its number is greater
 * In a key's own condition (`when`), .key is a key beside it: .type of datasets.0.field is
 * datasets.0.type. */
#ifndef AX_CMD_CONFIG_RULES_H
#define AX_CMD_CONFIG_RULES_H

#include <stdbool.h>

#include "cmd/config/build.h"

struct ax_config_rule {
    const char *when;    /* the rule is broken if this holds */
    const char *path;    /* the key that the message names */
    const char *message; /* the remedy */
};
extern const struct ax_config_rule ax_config_rules[];
extern const size_t ax_config_n_rules;

/* Does the condition of the key at this path hold? */
bool ax_config_holds_at(const struct ax_config *cfg, const char *at, const char *condition);
/* The condition in words: "adapter: lora or qlora and …". */
enum ax_status ax_config_condition_text(const char *condition, struct ax_buf *out);
/* Copies the i-th key path of a condition; false past the end. */
bool ax_config_condition_key(const char *condition, size_t i, char *buf, size_t size);
/* Adds a problem for each broken rule. */
enum ax_status ax_config_check_rules(struct ax_config_build *b);

#endif
