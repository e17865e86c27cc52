/* Everything that is printed from the command table: help, man page, completions.
 *
 * A command's details are lines for people; those that begin with two blanks and a word are
 * entries: the words, two blanks or more, and what they mean, which may go on in the next lines.
 *
 * Read on: details.c (taking details apart), man.c,
 * completion_*.c (one for each shell), quote.c. The commands are cmd/help.c, cmd/completion.c. */
#ifndef AX_CMD_HELP_HELP_H
#define AX_CMD_HELP_HELP_H

#include "base/mem.h"
#include "cmd/commands.h"
#include "cmd/config/table.h"

/* ---- details, taken apart ---- */

struct ax_help_part {
    bool entry;     /* else a line of prose, in `text` */
    char words[96]; /* "--top-k N, --top-p X" */
    char text[512]; /* what they mean */
};
/* The next part of the text at *cursor, which moves on; false at the end. */
bool ax_help_next(const char **cursor, struct ax_help_part *part);

struct ax_help_option {
    char name[32];  /* "--top-k" */
    char value[24]; /* "N", "DIR"; "" for one without a value */
    char text[512];
    const char *choices; /* "a|b", where the values are known; else NULL */
    bool is_file;        /* the value is a path */
};
#define AX_HELP_MAX_OPTIONS 48
/* The options of a command, those of its usage lines too, each once, and --help. */
int ax_help_options(const struct ax_command *c, struct ax_help_option out[AX_HELP_MAX_OPTIONS]);

#define AX_HELP_MAX_FORMS 8
/* The words that begin usage lines: "golden" and "mesh" of check. */
int ax_help_forms(const struct ax_command *c, char out[AX_HELP_MAX_FORMS][24]);
/* Does it take a configuration and key=value? */
bool ax_help_takes_config(const struct ax_command *c);

/* Keys that can be set by key=value and have an effect: no lists' entries, no maps. Begin with
 * *section = *row = 0; NULL at the end. */
const struct ax_config_key *ax_help_next_key(size_t *section, size_t *row);
/* "a|b" of a key that has a few known values ("true|false" too); "" for others. */
void ax_help_key_choices(const struct ax_config_key *key, char *out, size_t size);

/* ---- what is printed ---- */

enum ax_status ax_help_man(struct ax_buf *out, const struct ax_command *commands);
enum ax_status ax_completion_bash(struct ax_buf *out, const struct ax_command *commands);
enum ax_status ax_completion_zsh(struct ax_buf *out, const struct ax_command *commands);
enum ax_status ax_completion_fish(struct ax_buf *out, const struct ax_command *commands);

/* Text in single quotes, as the shell at hand escapes a quote within: `quote` is what stands for
 * it ("'\\''" or "\\'"), `also` lists characters that get a backslash. */
enum ax_status ax_completion_quote(struct ax_buf *out, const char *text, const char *quote,
                                   const char *also);

#endif
