/* Data passed between the loading steps. Private to cmd/config/. */
#ifndef AX_CMD_CONFIG_BUILD_H
#define AX_CMD_CONFIG_BUILD_H

#include "cmd/config/table.h"

struct ax_config_problem {
    int line, column;
    char *text;
};

struct ax_config_build {
    struct ax_config *cfg;
    struct ax_config_problem *problems;
    size_t n_problems; /* those stored; further ones are only counted, in n_more */
    size_t n_more;
};

/* Records a mistake; the message is "TEXT (WHERE)" or "TEXT (WHERE)TAIL". node, entry may be
 * NULL. */
enum ax_status ax_config_problem(struct ax_config_build *b, int line, int column, const char *tail,
                                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* All problems as one error, in file order; AX_OK if there are none. */
enum ax_status ax_config_problems_error(struct ax_config_build *b);
void ax_config_problems_free(struct ax_config_build *b);

enum ax_status ax_config_rename(struct ax_config_build *b); /* renamed keys */
enum ax_status ax_config_check(struct ax_config_build *b);  /* keys and values */
enum ax_status ax_config_find_notes(struct ax_config *cfg); /* support of each value */

/* Adds a note; copies its strings. */
enum ax_status ax_config_add_note(struct ax_config *cfg, enum ax_config_note_kind kind,
                                  bool text_side, const char *path, const char *text, int line,
                                  int column);

/* True for a key that real files have although nothing has ever read it. */
bool ax_config_ignores(const char *path);

/* The node of a concrete path in the document, or NULL; the default node of a key, or NULL. */
struct ax_yaml_node *ax_config_lookup(const struct ax_config *cfg, const char *path);
struct ax_yaml_node *ax_config_default(const struct ax_config *cfg,
                                       const struct ax_config_key *key);
/* Set value, else default, else NULL; null counts as unset. */
const struct ax_yaml_node *ax_config_value_of(const struct ax_config *cfg, const char *path);
/* Not null, false, 0, "" or empty. */
bool ax_config_truthy(const struct ax_yaml_node *node);
/* A scalar's text; "true" or "false" for a flag; NULL for null, lists and maps. */
const char *ax_config_scalar_text(const struct ax_yaml_node *node);
/* Origin of the value of a concrete path, as in ax_config_where. `node` is the value set there,
 * NULL if the default applies. */
const char *ax_config_origin(const struct ax_config *cfg, const char *path,
                             const struct ax_yaml_node *node, char *buf, size_t size);
/* "FILE:LINE:COLUMN", or "command line" for line 0. */
const char *ax_config_place(const struct ax_config *cfg, int line, int column, char *buf,
                            size_t size);

/* Converts a scalar to one of the key's kinds; false if that is impossible. null never fits. */
bool ax_config_coerce(const struct ax_config_key *key, unsigned types, struct ax_yaml_node *node);
/* "PATH: expected …, got …", with a hint if there is one. */
enum ax_status ax_config_type_problem(struct ax_config_build *b, const struct ax_config_key *key,
                                      unsigned types, const char *path,
                                      const struct ax_yaml_node *node);

/* "; did you mean …?" for a value that is not one of the choices, or "". */
const char *ax_config_suggest_choice(const struct ax_config_key *key, const char *text, char *buf,
                                     size_t size);

/* Iterates over the displayed keys of a map: the set ones in file order, then the defaults of the
 * others, if active. path "" is the entire configuration. List entries show no defaults. */
struct ax_config_members {
    const struct ax_config *cfg;
    const struct ax_yaml_node *map;
    size_t entry;
    bool no_defaults;
    struct ax_config_children rows;
    /* result of next: */
    const char *name;
    const struct ax_yaml_node *node;
    bool dflt;
};
void ax_config_members_begin(struct ax_config_members *it, const struct ax_config *cfg,
                             const char *path, const struct ax_yaml_node *map);
bool ax_config_members_next(struct ax_config_members *it);
/* A key's default if it is active in this run, else NULL. */
const struct ax_yaml_node *ax_config_acting_default(const struct ax_config *cfg,
                                                    const struct ax_config_key *key);
/* The path of a member: "a.b", or "b" at the top level; truncated if too long. */
void ax_config_join(char *buf, size_t size, const char *parent, const char *name);

/* Writing: write.c, show.c, help.c, docs.c, schema.c. */
/* "attn_implementation, torch_compile and 3 more": the keys with notes of this kind; *n is their
 * number. */
enum ax_status ax_config_put_noted(const struct ax_config *cfg, enum ax_config_note_kind kind,
                                   struct ax_buf *out, size_t *n);
/* One line per missing capability, with the keys that need it: PREFIX CAP: key (WHERE), … SUFFIX */
enum ax_status ax_config_put_not_yet(const struct ax_config *cfg, bool text_only,
                                     const char *prefix, const char *suffix, struct ax_buf *out);
enum ax_status ax_config_put_json(struct ax_buf *out, const char *text); /* "quoted" */
/* An entire node on one line, as YAML or JSON. */
enum ax_status ax_config_put_flow(struct ax_buf *out, const struct ax_yaml_node *node, bool json);
/* A name or string in YAML, quoted if necessary. */
enum ax_status ax_config_put_word(struct ax_buf *out, const char *text);
/* "not supported yet: needs lora", "no effect: …". */
enum ax_status ax_config_support_text(enum ax_config_support support, enum ax_capability needs,
                                      const char *note, struct ax_buf *out);
/* `all`: one line for each key without effect; else, several keys share one line. */
enum ax_status ax_config_show(const struct ax_config *cfg, bool all, struct ax_buf *out);
enum ax_status ax_config_help(const char *path, struct ax_buf *out);
enum ax_status ax_config_list(struct ax_buf *out);
enum ax_status ax_config_docs(struct ax_buf *out);
enum ax_status ax_config_schema(struct ax_buf *out);

#endif
