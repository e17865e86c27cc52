/* Fish: one `complete` line per completion. */
#include <string.h>

#include "cmd/help/help.h"

#define QUOTE "\\'"

static enum ax_status quote(struct ax_buf *out, const char *text) {
    return ax_completion_quote(out, text, QUOTE, "\\");
}

static enum ax_status put_option(struct ax_buf *out, const struct ax_command *c,
                                 const struct ax_help_option *o) {
    const bool is_long = strncmp(o->name, "--", 2) == 0;
    AX_TRY(ax_buf_printf(out, "complete -c axtrain -n '__fish_seen_subcommand_from %s' %s %s",
                         c->name, is_long ? "-l" : "-s", o->name + (is_long ? 2 : 1)));
    if (o->value[0])
        AX_TRY(ax_buf_puts(out, o->is_file ? " -rF" : " -x"));
    if (o->words) {
        AX_TRY(ax_buf_puts(out, " -a '"));
        AX_TRY(ax_help_put_words(out, o->words));
        AX_TRY(ax_buf_puts(out, "'"));
    }
    AX_TRY(ax_buf_puts(out, " -d "));
    AX_TRY(quote(out, o->text));
    return ax_buf_puts(out, "\n");
}

static enum ax_status put_command(struct ax_buf *out, const struct ax_command *c) {
    struct ax_help_option options[AX_HELP_MAX_OPTIONS];
    char forms[AX_HELP_MAX_FORMS][24];
    const int n = ax_help_options(c, options), n_forms = ax_help_forms(c, forms);
    AX_TRY(
        ax_buf_printf(out, "complete -c axtrain -f -n __fish_use_subcommand -a %s -d ", c->name));
    AX_TRY(quote(out, c->summary));
    AX_TRY(ax_buf_puts(out, "\n"));
    for (int i = 0; i < n; i++)
        AX_TRY(put_option(out, c, &options[i]));
    for (int i = 0; i < n_forms; i++)
        AX_TRY(ax_buf_printf(out, "complete -c axtrain -f -n '__axtrain_second %s' -a %s\n",
                             c->name, forms[i]));
    if (strcmp(c->name, "help") == 0)
        return ax_buf_puts(out, "complete -c axtrain -f -n '__axtrain_second help' -a "
                                "\"$__axtrain_commands\"\n");
    if (!ax_help_takes_config(c))
        return AX_OK;
    return ax_buf_printf(out,
                         "complete -c axtrain -n '__axtrain_later %s' -a '(__axtrain_keys)'\n"
                         "complete -c axtrain -f -n '__axtrain_no_file %s'\n",
                         c->name, c->name);
}

/* Writes a line for each key, or for each value of a key with known values. */
static enum ax_status put_keys(struct ax_buf *out) {
    const struct ax_config_key *k;
    size_t section = 0, row = 0;
    AX_TRY(ax_buf_puts(out, "function __axtrain_keys\n    printf '%s\\n' \\\n"));
    while ((k = ax_help_next_key(&section, &row))) {
        char choices[512], path[AX_CONFIG_PATH];
        ax_help_key_choices(k, choices, sizeof choices);
        const char *at = choices;
        do {
            struct ax_buf line = {0};
            const size_t n = strcspn(at, "|");
            enum ax_status st =
                ax_buf_printf(&line, "%s=%.*s\t%s", ax_help_key_path(k, path), (int)n, at, k->help);
            if (st == AX_OK)
                st = ax_buf_puts(out, "        ");
            if (st == AX_OK)
                st = quote(out, line.data);
            if (st == AX_OK)
                st = ax_buf_puts(out, " \\\n");
            ax_buf_free(&line);
            AX_TRY(st);
            at += n + (at[n] == '|');
        } while (*at);
    }
    return ax_buf_puts(out, "        ''\nend\n");
}

/* True while completing the second word after axtrain, for this command; or a later word; or a later
 * one that cannot be a file: a key, or one of a key's values, if they are known. */
static const char head[] =
    "function __axtrain_second\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -eq 2 -a \"$words[2]\" = $argv[1]\n"
    "end\n"
    "function __axtrain_later\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -gt 2 -a \"$words[2]\" = $argv[1]\n"
    "end\n"
    "function __axtrain_no_file\n"
    "    __axtrain_later $argv; or return 1\n"
    "    set -l parts (string split -m 1 = -- (commandline -ct))\n"
    "    test (count $parts) -lt 2; and return 0\n"
    "    __axtrain_keys | string match -q -- \"$parts[1]=\"\\t'*'; and return 1\n"
    "    return 0\n"
    "end\n";

enum ax_status ax_completion_fish(struct ax_buf *out, const struct ax_command *commands) {
    AX_TRY(ax_buf_puts(out, "# fish completion of axtrain: axtrain completion fish > "
                            "~/.config/fish/completions/axtrain.fish\n"));
    AX_TRY(ax_buf_puts(out, head));
    AX_TRY(put_keys(out));
    AX_TRY(ax_buf_puts(out, "set -g __axtrain_commands"));
    for (const struct ax_command *c = commands; c->name; c++)
        AX_TRY(ax_buf_printf(out, " %s", c->name));
    AX_TRY(ax_buf_puts(out, "\n"));
    for (const struct ax_command *c = commands; c->name; c++)
        AX_TRY(put_command(out, c));
    return AX_OK;
}
