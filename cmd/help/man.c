/* The man page, in the man(7) macros. */
#include <stdio.h>
#include <string.h>

#include "cmd/help/help.h"

#define DATED "2026-11-20" /* date of the version */

static const struct {
    const char *name, *text;
} variables[] = {
    {"AXTRAIN_CPU",
     "Instruction set: avx2, avx512, avx512bf16, amx or amx-emulated (for tests), "
     "on ARM neon; by default the "
     "best, amx only if a check of its products passes. If the machine lacks it, commands fail."},
    {"AXTRAIN_BASE",
     "With \"any\", adapters are used with other bases than the one that they were trained on."},
    {"AXTRAIN_NONFINITE", "With \"allow\", files whose weights contain NaN or infinity are read, "
                          "for a look at them; they are "
                          "still not trained from."},
    {"AXTRAIN_TOKEN_FILE, AXTRAIN_TOKEN",
     "Secret of the ranks of a job, where axtrain launch does not make one: a file that only its "
     "owner can read, or the text itself."},
    {"AXTRAIN_PORT", "Port on which ranks meet (default: it follows from MASTER_PORT or the job)."},
    {"OMP_NUM_THREADS", "Number of CPU threads if no option sets it (default: one per core)."},
    {"HF_HOME, HF_HUB_CACHE", "Cache of models and data sets from the hub."},
    {"NO_COLOR", "If set to any value, output has no colors."},
};

/* Writes text that is not a request, escaping what roff would interpret. */
static enum ax_status put_text(struct ax_buf *out, const char *text) {
    if (*text == '.' || *text == '\'')
        AX_TRY(ax_buf_puts(out, "\\&"));
    for (; *text; text++) {
        const char c[2] = {*text, '\0'};
        AX_TRY(ax_buf_puts(out, *text == '\\'   ? "\\e"
                                : *text == '-'  ? "\\-"
                                : *text == '`'  ? "\\(ga"
                                : *text == '\'' ? "\\(aq"
                                : *text == '"'  ? "\\(dq"
                                                : c));
    }
    return AX_OK;
}

static enum ax_status put_line(struct ax_buf *out, const char *before, const char *text,
                               const char *behind) {
    AX_TRY(ax_buf_puts(out, before));
    AX_TRY(put_text(out, text));
    return ax_buf_puts(out, behind);
}

/* "--top-k N": the option in bold, its value's name in roman. */
static enum ax_status put_words(struct ax_buf *out, const char *words) {
    bool bold = false;
    for (size_t n; *words; words += n) {
        char word[96];
        n = *words == ' ' ? strspn(words, " ") : strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, words);
        const bool option = word[0] == '-';
        AX_TRY(ax_buf_puts(out, option ? "\\fB" : bold ? "\\fR" : ""));
        bold = option;
        AX_TRY(put_text(out, word));
    }
    return ax_buf_puts(out, bold ? "\\fR\n" : "\n");
}

static enum ax_status put_usage(struct ax_buf *out, const struct ax_command *c) {
    for (const char *line = c->usage; *line;) {
        char text[256];
        const size_t n = strcspn(line, "\n");
        snprintf(text, sizeof text, "%.*s", (int)n, line);
        AX_TRY(line == c->usage ? ax_buf_puts(out, ".PP\n") : ax_buf_puts(out, ".br\n"));
        AX_TRY(put_line(out, "\\fBaxtrain ", c->name, "\\fR "));
        AX_TRY(put_line(out, "", text, "\n"));
        line += n + (line[n] == '\n');
    }
    return AX_OK;
}

static enum ax_status put_command(struct ax_buf *out, const struct ax_command *c) {
    struct ax_help_part part;
    const char *cursor = c->details;
    bool entry = true;
    AX_TRY(put_line(out, ".SS ", c->name, "\n"));
    AX_TRY(put_line(out, "", c->summary, ".\n"));
    AX_TRY(put_usage(out, c));
    while (ax_help_next(&cursor, &part)) {
        if (part.entry) {
            AX_TRY(ax_buf_puts(out, ".TP\n"));
            AX_TRY(put_words(out, part.words));
        } else if (entry) {
            AX_TRY(ax_buf_puts(out, ".PP\n"));
        }
        AX_TRY(put_line(out, "", part.text, "\n"));
        entry = part.entry;
    }
    return put_line(out, ".PP\nExample:\n.RS\n.nf\n", c->example, "\n.fi\n.RE\n");
}

static enum ax_status put_exit_codes(struct ax_buf *out) {
    AX_TRY(ax_buf_puts(out, ".SH EXIT STATUS\n"));
    for (int code = 0; code < 256; code++)
        for (int st = 0; st < AX_STATUS_COUNT; st++) {
            const struct ax_status_info *info = ax_status_info((enum ax_status)st);
            if (info->exit_code != code)
                continue;
            AX_TRY(ax_buf_printf(out, ".TP\n%d\n", code));
            AX_TRY(put_line(out, "", info->meaning, "\n"));
            break;
        }
    return AX_OK;
}

static enum ax_status put_variables(struct ax_buf *out) {
    AX_TRY(ax_buf_puts(out, ".SH ENVIRONMENT\n"));
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        AX_TRY(put_line(out, ".TP\n\\fB", variables[i].name, "\\fR\n"));
        AX_TRY(put_line(out, "", variables[i].text, "\n"));
    }
    return AX_OK;
}

enum ax_status ax_help_man(struct ax_buf *out, const struct ax_command *commands) {
    AX_TRY(ax_buf_puts(out,
                       ".\\\" Generated by `make docs` from the command table. Do not edit.\n"
                       ".TH AXTRAIN 1 \"" DATED "\" \"axtrain " AX_VERSION "\" \"User Commands\"\n"
                       ".SH NAME\naxtrain \\- post\\-train language models\n"
                       ".SH SYNOPSIS\n.B axtrain\n.I COMMAND\n.RI [ arguments ]\n.br\n"
                       ".B axtrain help\n.RI [ COMMAND ]\n"
                       ".SH DESCRIPTION\n"
                       "A run is described by one YAML file; a folder with a trained model comes\n"
                       "out. \\fBaxtrain init\\fR writes such a file, \\fBaxtrain sft\\fR trains "
                       "by it.\nA key is overridden on the command line by \\fIkey\\fR=\\fIvalue"
                       "\\fR, with dots\ninto maps and lists (\\fBdatasets.0.path\\fR=\\fIFILE"
                       "\\fR) and null to unset it.\n\\fBaxtrain config help\\fR \\fIKEY\\fR "
                       "explains a key.\n"));
    for (int g = 0; g < AX_COMMANDS_COUNT; g++) {
        const struct ax_command *c;
        AX_TRY(put_line(out, ".SH COMMANDS: ", ax_command_group_title((enum ax_command_group)g),
                        "\n"));
        for (int i = 1; (c = ax_command_at(commands, (enum ax_command_group)g, i)); i++)
            AX_TRY(put_command(out, c));
    }
    AX_TRY(put_exit_codes(out));
    return put_variables(out);
}
