/* Everything printed from the command table: help, man page, completions.
 *
 * A command's details are lines of text. Lines that begin with two blanks and a word are entries:
 * the words, two or more blanks, and their meaning, which may continue on the next lines.
 *
 * Reading order: details.c (parsing details), values.c (words of options), man.c,
 * completion_*.c (one per shell), quote.c. The commands are cmd/help.c, cmd/completion.c. */
#ifndef AX_CMD_HELP_HELP_H
#define AX_CMD_HELP_HELP_H

#include "base/mem.h"
#include "cmd/commands.h"
#include "cmd/config/table.h"

/* ---- details, parsed ---- */

struct ax_help_part {
    bool entry;     /* else a line of text, in `text` */
    char words[96]; /* "--top-k N, --top-p X" */
    char text[512]; /* their meaning */
};
/* The next part of the text at *cursor, which advances; false at the end. */
bool ax_help_next(const char **cursor, struct ax_help_part *part);

struct ax_help_option {
    char name[32];  /* "--top-k" */
    char value[24]; /* "N", "DIR"; "" for an option without a value */
    char text[512];
    const struct ax_help_words *words; /* that it takes; NULL: others */
    bool is_file;                      /* the value is a path, or may be one instead of a word */
};
/* The words of an option of this command; NULL if it takes other values. */
const struct ax_help_words *ax_help_words(const char *command, const char *option);
/* Whether files may be named in the words' place. */
bool ax_help_words_or_file(const struct ax_help_words *words);
/* Appends the words, with blanks between them. */
enum ax_status ax_help_put_words(struct ax_buf *out, const struct ax_help_words *words);
#define AX_HELP_MAX_OPTIONS 48
/* A command's options, including those of its usage lines, each once, plus --help. */
int ax_help_options(const struct ax_command *c, struct ax_help_option out[AX_HELP_MAX_OPTIONS]);

#define AX_HELP_MAX_FORMS 8
/* The first words of usage lines: "mesh" and "flight" of check. */
int ax_help_forms(const struct ax_command *c, char out[AX_HELP_MAX_FORMS][24]);
/* True if the command takes a configuration and key=value. */
bool ax_help_takes_config(const struct ax_command *c);

/* Active keys that key=value can set: no lists, no maps. Begin with *section = *row = 0;
 * NULL at the end. */
const struct ax_config_key *ax_help_next_key(size_t *section, size_t *row);
/* How key=value names it, in the first entry of each list: "datasets.0.path". */
const char *ax_help_key_path(const struct ax_config_key *key, char buf[AX_CONFIG_PATH]);
/* "a|b" for a key with a few known values (also "true|false"); "" for others. */
void ax_help_key_choices(const struct ax_config_key *key, char *out, size_t size);

/* ---- output ---- */

enum ax_status ax_help_man(struct ax_buf *out, const struct ax_command *commands);
enum ax_status ax_completion_bash(struct ax_buf *out, const struct ax_command *commands);
enum ax_status ax_completion_zsh(struct ax_buf *out, const struct ax_command *commands);
enum ax_status ax_completion_fish(struct ax_buf *out, const struct ax_command *commands);

/* Text in single quotes. `quote` is the shell's escape for a quote inside ("'\\''" or "\\'"),
 * `also` lists characters that get a backslash. */
enum ax_status ax_completion_quote(struct ax_buf *out, const char *text, const char *quote,
                                   const char *also);
/* A word of a command line to be copied to a shell: in quotes only if it needs them. */
enum ax_status ax_quote_word(struct ax_buf *out, const char *text);

#endif
