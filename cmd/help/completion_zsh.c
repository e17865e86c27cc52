/* Zsh: _arguments for each command. */
#include <string.h>

#include "cmd/help/help.h"

#define QUOTE "'\\''"

/* Writes 'name:description', for _describe. */
static enum ax_status put_described(struct ax_buf *out, const char *name, const char *text) {
    AX_TRY(ax_buf_puts(out, "    "));
    struct ax_buf both = {0};
    enum ax_status st = ax_buf_printf(&both, "%s:%s", name, text);
    if (st == AX_OK)
        st = ax_completion_quote(out, both.data, QUOTE, "");
    ax_buf_free(&both);
    AX_TRY(st);
    return ax_buf_puts(out, "\n");
}

/* '--color[when]:WHEN:(auto always never)' */
static enum ax_status put_option(struct ax_buf *out, const struct ax_help_option *o) {
    struct ax_buf text = {0};
    enum ax_status st;
    AX_TRY_GOTO(ax_buf_printf(&text, "%s[", o->name), st, done);
    for (const char *c = o->text; *c; c++)
        AX_TRY_GOTO(ax_buf_printf(&text, strchr("[]:\\", *c) ? "\\%c" : "%c", *c), st, done);
    AX_TRY_GOTO(ax_buf_puts(&text, "]"), st, done);
    if (o->value[0])
        AX_TRY_GOTO(ax_buf_printf(&text, ":%s:", o->value), st, done);
    const bool both = o->words && o->is_file;
    if (o->words) {
        AX_TRY_GOTO(ax_buf_puts(&text, both ? "{_alternative \"w\\:word\\:(" : "("), st, done);
        AX_TRY_GOTO(ax_help_put_words(&text, o->words), st, done);
        AX_TRY_GOTO(ax_buf_puts(&text, both ? ")\" \"f\\:file\\:_files\"}" : ")"), st, done);
    } else if (o->is_file) {
        AX_TRY_GOTO(ax_buf_puts(&text, "_files"), st, done);
    }
    AX_TRY_GOTO(ax_buf_puts(out, " \\\n            "), st, done);
    st = ax_completion_quote(out, text.data, QUOTE, "");
done:
    ax_buf_free(&text);
    return st;
}

static const char *rest_of(const struct ax_command *c) {
    if (ax_help_takes_config(c))
        return "'1:configuration:_files' '*:key=value:_axtrain_overrides'";
    if (strcmp(c->name, "help") == 0)
        return "'1:command:_axtrain_commands'";
    if (strcmp(c->name, "config") == 0)
        return "'1:what:(help show schema docs)' '*::rest:_axtrain_config'";
    return NULL;
}

static enum ax_status put_command(struct ax_buf *out, const struct ax_command *c) {
    struct ax_help_option options[AX_HELP_MAX_OPTIONS];
    char forms[AX_HELP_MAX_FORMS][24];
    const int n = ax_help_options(c, options), n_forms = ax_help_forms(c, forms);
    AX_TRY(ax_buf_printf(out, "    %s)\n        _arguments", c->name));
    for (int i = 0; i < n; i++)
        AX_TRY(put_option(out, &options[i]));
    AX_TRY(ax_buf_puts(out, " \\\n            "));
    if (rest_of(c))
        return ax_buf_printf(out, "%s ;;\n", rest_of(c));
    if (n_forms > 0) {
        AX_TRY(ax_buf_puts(out, "'1:what:("));
        for (int i = 0; i < n_forms; i++)
            AX_TRY(ax_buf_printf(out, "%s%s", i ? " " : "", forms[i]));
        AX_TRY(ax_buf_puts(out, ")' "));
    }
    return ax_buf_puts(out, "'*:file:_files' ;;\n");
}

static enum ax_status put_keys(struct ax_buf *out) {
    const struct ax_config_key *k;
    size_t section = 0, row = 0;
    char path[AX_CONFIG_PATH];
    AX_TRY(ax_buf_puts(out, "_axtrain_keys=(\n"));
    while ((k = ax_help_next_key(&section, &row)))
        AX_TRY(put_described(out, ax_help_key_path(k, path), k->help));
    return ax_buf_puts(out, ")\n");
}

static enum ax_status put_overrides(struct ax_buf *out) {
    const struct ax_config_key *k;
    size_t section = 0, row = 0;
    char choices[512], path[AX_CONFIG_PATH];
    AX_TRY(ax_buf_puts(out,
                       "_axtrain_overrides() {\n    if ! compset -P '*='; then\n"
                       "        _describe -t keys key _axtrain_keys -S =\n        return\n    fi\n"
                       "    case ${IPREFIX%=} in\n"));
    while ((k = ax_help_next_key(&section, &row))) {
        ax_help_key_choices(k, choices, sizeof choices);
        if (!choices[0])
            continue;
        AX_TRY(ax_buf_printf(out, "    %s) compadd -- ", ax_help_key_path(k, path)));
        for (const char *c = choices; *c; c++)
            AX_TRY(ax_buf_printf(out, "%c", *c == '|' ? ' ' : *c));
        AX_TRY(ax_buf_puts(out, " ;;\n"));
    }
    return ax_buf_puts(out, "    *) _files ;;\n    esac\n}\n");
}

static const char config[] =
    "_axtrain_config() {\n"
    "    case $words[1] in\n"
    "    help) _describe -t keys key _axtrain_keys ;;\n"
    "    show) if ((CURRENT == 2)); then _files; else _axtrain_overrides; fi ;;\n"
    "    esac\n"
    "}\n";

/* Each group under its title. */
static enum ax_status put_names(struct ax_buf *out, const struct ax_command *commands) {
    AX_TRY(ax_buf_puts(out, "_axtrain_commands() {\n    local -a names\n"));
    for (int g = 0; g < AX_COMMANDS_COUNT; g++) {
        const struct ax_command *c;
        AX_TRY(ax_buf_puts(out, "    names=(\n"));
        for (int i = 1; (c = ax_command_at(commands, (enum ax_command_group)g, i)); i++)
            AX_TRY(put_described(out, c->name, c->summary));
        AX_TRY(ax_buf_printf(out, "    )\n    _describe -t commands-%d '%s' names\n", g,
                             ax_command_group_title((enum ax_command_group)g)));
    }
    return ax_buf_puts(out, "}\n");
}

enum ax_status ax_completion_zsh(struct ax_buf *out, const struct ax_command *commands) {
    AX_TRY(ax_buf_puts(out, "#compdef axtrain\n# zsh completion of axtrain. In a folder of $fpath: "
                            "axtrain completion zsh > _axtrain\n"
                            "typeset -ga _axtrain_keys\n"));
    AX_TRY(put_keys(out));
    AX_TRY(put_names(out, commands));
    AX_TRY(put_overrides(out));
    AX_TRY(ax_buf_puts(out, config));
    AX_TRY(ax_buf_puts(out, "_axtrain() {\n    if ((CURRENT == 2)); then\n"
                            "        _axtrain_commands\n        return\n    fi\n"
                            "    shift words\n    ((CURRENT--))\n    case $words[1] in\n"));
    for (const struct ax_command *c = commands; c->name; c++)
        AX_TRY(put_command(out, c));
    return ax_buf_puts(out, "    esac\n}\n"
                            "if [[ $funcstack[1] == _axtrain ]]; then _axtrain \"$@\"; else "
                            "compdef _axtrain axtrain; fi\n");
}
