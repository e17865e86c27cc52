/* Parses the command table's texts. */
#include <stdio.h>
#include <string.h>

#include "cmd/help/help.h"

/* ---- groups ---- */

const char *ax_command_group_title(enum ax_command_group g) {
    static const char *const titles[AX_COMMANDS_COUNT] = {"Train", "Look", "Models and text",
                                                          "Serve and evaluate", "Measure"};
    return titles[g];
}

const struct ax_command *ax_command_at(const struct ax_command *all, enum ax_command_group g,
                                       int place) {
    for (const struct ax_command *c = all; c->name; c++)
        if (c->group == g && c->place == place)
            return c;
    return NULL;
}

/* ---- parts ---- */

/* The next line of *cursor, without its line end; false if there is none. */
static bool next_line(const char **cursor, const char **line, size_t *n) {
    if (**cursor == '\0')
        return false;
    *line = *cursor;
    *n = strcspn(*cursor, "\n");
    *cursor += *n + ((*cursor)[*n] == '\n');
    return true;
}

static void append(char *to, size_t size, const char *text, size_t n) {
    const size_t len = strlen(to);
    snprintf(to + len, size - len, "%s%.*s", len > 0 ? " " : "", (int)n, text);
}

static bool begins_entry(const char *line, size_t n) {
    return n > 2 && line[0] == ' ' && line[1] == ' ' && line[2] != ' ';
}

static bool goes_on(const char *line, size_t n) {
    return n > 3 && strspn(line, " ") > 3;
}

bool ax_help_next(const char **cursor, struct ax_help_part *part) {
    const char *line;
    size_t n;
    *part = (struct ax_help_part){0};
    if (!next_line(cursor, &line, &n))
        return false;
    part->entry = begins_entry(line, n);
    if (!part->entry) {
        append(part->text, sizeof part->text, line, n);
        return true;
    }
    size_t words = 2;
    while (words < n && !(line[words] == ' ' && words + 1 < n && line[words + 1] == ' '))
        words++;
    append(part->words, sizeof part->words, line + 2, words - 2);
    const size_t blanks = strspn(line + words, " ");
    if (words + blanks < n)
        append(part->text, sizeof part->text, line + words + blanks, n - words - blanks);
    while (goes_on(*cursor, strcspn(*cursor, "\n")) && next_line(cursor, &line, &n)) {
        const size_t indent = strspn(line, " ");
        append(part->text, sizeof part->text, line + indent, n - indent);
    }
    return true;
}

/* ---- options ---- */

/* What stands for a path in usage and details: any of these words in the value. */
static bool names_file(const char *value) {
    static const char *const files[] = {"DIR", "FILE", "MODEL", "OUT", ".jinja", ".json"};
    bool is = strcmp(value, "M") == 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        is = is || strstr(value, files[i]);
    return is;
}

/* convert's --base is a model, not a way to store one. */
static void describe(struct ax_help_option *o, const char *command) {
    o->is_file = names_file(o->value);
    if (o->value[0] && !o->is_file)
        o->words = ax_help_words(command, o->name);
    o->is_file = o->is_file || (o->words && ax_help_words_or_file(o->words));
}

struct options {
    const char *command;
    struct ax_help_option *out;
    int n;
};

static void add(struct options *list, const char *word, size_t len, const char *text) {
    const size_t name = strcspn(word, " =|]");
    struct ax_help_option o = {0};
    if (name > len || name >= sizeof o.name || list->n == AX_HELP_MAX_OPTIONS)
        return;
    snprintf(o.name, sizeof o.name, "%.*s", (int)name, word);
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->out[i].name, o.name) == 0)
            return;
    const char *value = word + name + (name < len);
    const size_t rest = name < len ? len - name - 1 : 0;
    snprintf(o.value, sizeof o.value, "%.*s", (int)rest, value);
    snprintf(o.text, sizeof o.text, "%s", text);
    describe(&o, list->command);
    list->out[list->n++] = o;
}

/* "--top-k N, --top-p X" */
static void add_words(struct options *list, const char *words, const char *text) {
    while (*words == '-') {
        const size_t len = strcspn(words, ",");
        add(list, words, len, text);
        words += len;
        words += strspn(words, ", ");
    }
}

/* "SRC DST --to hf [--dtype T]": the word after an option is its value, unless it is an option,
 * a bracket or a bar. */
static void add_usage(struct options *list, const char *usage) {
    for (const char *at = strstr(usage, "-"); at; at = strstr(at, "-")) {
        const bool begins = at > usage && strchr(" [|\n", at[-1]) != NULL;
        size_t len = strcspn(at, " ]|\n");
        const bool is_placeholder = strncmp(at, "--key ", 6) == 0; /* any key of a configuration */
        if ((begins || at == usage) && len > 1 && !is_placeholder) {
            if (at[len] == ' ' && at[len + 1] && !strchr("[-|", at[len + 1]))
                len += 1 + strcspn(at + len + 1, " ]|\n");
            add(list, at, len, "");
        }
        at += len > 0 ? len : 1;
    }
}

int ax_help_options(const struct ax_command *c, struct ax_help_option out[AX_HELP_MAX_OPTIONS]) {
    struct ax_help_part part;
    const char *cursor = c->details;
    struct options list = {c->name, out, 0};
    while (ax_help_next(&cursor, &part))
        if (part.entry)
            add_words(&list, part.words, part.text);
    add_usage(&list, c->usage);
    add(&list, "--help", 6, "what this command does");
    return list.n;
}

int ax_help_forms(const struct ax_command *c, char out[AX_HELP_MAX_FORMS][24]) {
    const char *cursor = c->usage, *line;
    size_t len;
    int n = 0;
    while (next_line(&cursor, &line, &len)) {
        const size_t word = strspn(line, "abcdefghijklmnopqrstuvwxyz");
        if (word == 0 || word >= 24 || n == AX_HELP_MAX_FORMS || (word < len && line[word] != ' '))
            continue;
        snprintf(out[n++], 24, "%.*s", (int)word, line);
    }
    return n;
}

bool ax_help_takes_config(const struct ax_command *c) {
    return strncmp(c->usage, "CONFIG", 6) == 0;
}

/* ---- keys ---- */

const struct ax_config_key *ax_help_next_key(size_t *section, size_t *row) {
    for (; *section < ax_config_n_sections; (*section)++, *row = 0) {
        const struct ax_config_section *s = &ax_config_sections[*section];
        while (s->keys[*row].path) {
            const struct ax_config_key *k = &s->keys[(*row)++];
            const bool acts = ax_config_support_of(k->support, k->needs) <= AX_SUPPORT_APPROXIMATED;
            if (acts && (k->types & (AX_T_SCALAR | AX_T_ANY)))
                return k;
        }
    }
    return NULL;
}

const char *ax_help_key_path(const struct ax_config_key *key, char buf[AX_CONFIG_PATH]) {
    size_t n = 0;
    for (const char *c = key->path; *c && n + 3 < AX_CONFIG_PATH; c++) {
        const bool entry = strncmp(c, "[]", 2) == 0;
        n += (size_t)snprintf(buf + n, AX_CONFIG_PATH - n, entry ? ".0" : "%c", *c);
        c += entry;
    }
    return buf;
}

void ax_help_key_choices(const struct ax_config_key *key, char *out, size_t size) {
    char choice[64];
    size_t n = 0;
    out[0] = '\0';
    if (key->types & AX_T_BOOL)
        n += (size_t)snprintf(out, size, "true|false");
    for (size_t i = 0; ax_config_choice_at(key->choices, i, choice, sizeof choice); i++)
        if (!strchr(choice, '*') && n + strlen(choice) + 2 < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? "|" : "", choice);
}
