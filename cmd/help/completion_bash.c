/* Bash: one function over word tables; does not need the bash-completion package. */
#include <string.h>

#include "cmd/help/help.h"

/* "a|b" as "a b" */
static enum ax_status put_choices(struct ax_buf *out, const char *choices) {
    for (; *choices; choices++)
        AX_TRY(ax_buf_printf(out, "%c", *choices == '|' ? ' ' : *choices));
    return AX_OK;
}

/* The line of a command in _axtrain_words: its forms and options. */
static enum ax_status put_words(struct ax_buf *out, const struct ax_command *c) {
    struct ax_help_option options[AX_HELP_MAX_OPTIONS];
    char forms[AX_HELP_MAX_FORMS][24];
    const int n = ax_help_options(c, options), n_forms = ax_help_forms(c, forms);
    AX_TRY(ax_buf_printf(out, "        %s) options='", c->name));
    for (int i = 0; i < n; i++)
        AX_TRY(ax_buf_printf(out, "%s%s", i ? " " : "", options[i].name));
    AX_TRY(ax_buf_puts(out, "'"));
    if (n_forms > 0)
        AX_TRY(ax_buf_puts(out, " forms='"));
    for (int i = 0; i < n_forms; i++)
        AX_TRY(ax_buf_printf(out, "%s%s", i ? " " : "", forms[i]));
    AX_TRY(ax_buf_puts(out, n_forms > 0 ? "'" : ""));
    return ax_buf_puts(out, ax_help_takes_config(c) ? " config=1 ;;\n" : " ;;\n");
}

/* Writes the options of a command that take a value which is not only a file, with its words. */
static enum ax_status put_values(struct ax_buf *out, const struct ax_command *c) {
    struct ax_help_option options[AX_HELP_MAX_OPTIONS];
    const int n = ax_help_options(c, options);
    for (int i = 0; i < n; i++) {
        const struct ax_help_option *o = &options[i];
        if (!o->value[0] || (o->is_file && !o->words))
            continue;
        AX_TRY(ax_buf_printf(out, "        '%s %s') values='", c->name, o->name));
        if (o->words)
            AX_TRY(ax_help_put_words(out, o->words));
        AX_TRY(ax_buf_puts(out, "' ;;\n"));
    }
    return AX_OK;
}

static enum ax_status put_keys(struct ax_buf *out) {
    const struct ax_config_key *k;
    size_t section = 0, row = 0;
    char path[AX_CONFIG_PATH];
    AX_TRY(ax_buf_puts(out, "_axtrain_keys='"));
    while ((k = ax_help_next_key(&section, &row)))
        AX_TRY(ax_buf_printf(out, "%s\n", ax_help_key_path(k, path)));
    return ax_buf_puts(out, "'\n");
}

static enum ax_status put_key_values(struct ax_buf *out) {
    const struct ax_config_key *k;
    size_t section = 0, row = 0;
    char choices[512], path[AX_CONFIG_PATH];
    AX_TRY(ax_buf_puts(out, "_axtrain_key_values() {\n    case $1 in\n"));
    while ((k = ax_help_next_key(&section, &row))) {
        ax_help_key_choices(k, choices, sizeof choices);
        if (!choices[0])
            continue;
        AX_TRY(ax_buf_printf(out, "    %s) echo '", ax_help_key_path(k, path)));
        AX_TRY(put_choices(out, choices));
        AX_TRY(ax_buf_puts(out, "' ;;\n"));
    }
    return ax_buf_puts(out, "    esac\n}\n");
}

/* Takes the current word from the line itself, because how bash splits words at '=' depends on
 * COMP_WORDBREAKS. */
static const char body[] =
    "    local line=${COMP_LINE:0:COMP_POINT} cur='' options='' forms='' config='' values=none\n"
    "    local -a words\n"
    "    read -ra words <<<\"$line\"\n"
    "    [[ $line == *[[:space:]] ]] || cur=${words[-1]}\n"
    "    local n=$((${#words[@]} - (${#cur} > 0)))\n"
    "    local command=${words[1]} prev=${words[n - 1]} key\n"
    "    COMPREPLY=()\n"
    "    if ((n == 1)); then\n"
    "        COMPREPLY=($(compgen -W \"$_axtrain_commands --help --version\" -- \"$cur\"))\n"
    "        return\n"
    "    fi\n";
static const char tail[] =
    "    if [[ $values != none ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
    "        [[ $values ]] || compopt +o default 2>/dev/null\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
    "    elif [[ $command == help ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$_axtrain_commands\" -- \"$cur\"))\n"
    "    elif [[ $command == config && ${words[2]} == help && $n -gt 2 ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$_axtrain_keys\" -- \"$cur\"))\n"
    "    elif [[ $forms && $n -eq 2 ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$forms\" -- \"$cur\"))\n"
    "    elif [[ ($config && $n -gt 2) || (${words[2]} == show && $n -gt 3) ]]; then\n"
    "        if [[ $cur == *=* ]]; then\n"
    "            key=${cur%%=*}\n"
    "            COMPREPLY=($(compgen -W \"$(_axtrain_key_values \"$key\")\" -- \"${cur#*=}\"))\n"
    "            [[ $COMP_WORDBREAKS == *=* ]] || COMPREPLY=(\"${COMPREPLY[@]/#/$key=}\")\n"
    "        else\n"
    "            COMPREPLY=($(compgen -S = -W \"$_axtrain_keys\" -- \"$cur\"))\n"
    "            compopt -o nospace 2>/dev/null\n"
    "        fi\n"
    "    fi\n"
    "}\n"
    "complete -o default -F _axtrain axtrain\n";

enum ax_status ax_completion_bash(struct ax_buf *out, const struct ax_command *commands) {
    AX_TRY(ax_buf_puts(out, "# bash completion of axtrain. In ~/.bashrc: source <(axtrain "
                            "completion bash)\n_axtrain_commands='"));
    for (const struct ax_command *c = commands; c->name; c++)
        AX_TRY(ax_buf_printf(out, "%s%s", c > commands ? " " : "", c->name));
    AX_TRY(ax_buf_puts(out, "'\n"));
    AX_TRY(put_keys(out));
    AX_TRY(put_key_values(out));
    AX_TRY(ax_buf_puts(out, "_axtrain() {\n"));
    AX_TRY(ax_buf_puts(out, body));
    AX_TRY(ax_buf_puts(out, "    case $command in\n"));
    for (const struct ax_command *c = commands; c->name; c++)
        AX_TRY(put_words(out, c));
    AX_TRY(ax_buf_puts(out, "    esac\n    case \"$command $prev\" in\n"));
    for (const struct ax_command *c = commands; c->name; c++)
        AX_TRY(put_values(out, c));
    AX_TRY(ax_buf_puts(out, "    esac\n"));
    return ax_buf_puts(out, tail);
}
