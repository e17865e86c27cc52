/* `axtrain help`: the overview, one command, or other sources of help. */
#include "cmd/help/help.h"

#include <stdio.h>
#include <string.h>

#include "cmd/args/args.h"
#include "cmd/config/table.h"

/* ---- names ---- */

const struct ax_command *ax_command_find(const struct ax_command *all, const char *name) {
    for (const struct ax_command *c = all; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

/* The only command with this prefix; NULL if there is none or more than one. */
static const char *beginning_with(const struct ax_command *all, const char *name) {
    const char *found = NULL;
    for (const struct ax_command *c = all; c->name; c++) {
        if (strncmp(c->name, name, strlen(name)) != 0)
            continue;
        if (found)
            return NULL;
        found = c->name;
    }
    return found;
}

const char *ax_command_nearest(const struct ax_command *all, const char *name) {
    const int len = (int)strlen(name);
    const char *begun = len >= 2 ? beginning_with(all, name) : NULL;
    struct ax_nearest nearest = {.given = name, .within = len < 3 ? len : 3};
    for (const struct ax_command *c = all; c->name; c++)
        ax_nearest_try(&nearest, c->name);
    return begun ? begun : nearest.name;
}

/* Commands of other programs, and their counterparts here. */
static const struct {
    const char *name, *here;
} others[] = {
    {"version", "--version"},
    {"merge-lora", "merge"},
    {"merge_lora", "merge"},
    {"inference", "generate"},
    {"lora", "sft"},
    {"finetune", "sft"},
    {"run", "sft"},
    {"fine-tune", "sft"},
    {"evaluate", "eval"},
    {"lm_eval", "eval"},
    {"lm-eval", "eval"},
    {"download", "fetch"},
    {"kto", "dpo"},
    {"orpo", "dpo"},
    {"cpo", "dpo"},
    {"simpo", "dpo"},
    {"vllm-serve", "serve"},
    {"convert_hf_to_gguf.py", "convert"},
    {"llama-quantize", "convert"},
    {"llama-server", "serve"},
    {"llama-cli", "chat"},
    {"torchrun", "launch"},
};

enum ax_status ax_command_unknown(const struct ax_command *all, const char *name) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].name, name) == 0)
            return ax_error(AX_ERR_CONFIG, "unknown command \"%s\"; here it is `axtrain %s`", name,
                            others[i].here);
    const char *near = ax_command_nearest(all, name);
    if (near)
        return ax_error(AX_ERR_CONFIG, "unknown command \"%s\"; did you mean `axtrain %s`?", name,
                        near);
    if (ax_config_find(name))
        return ax_error(
            AX_ERR_CONFIG,
            "unknown command \"%s\"; it is a configuration key: see `axtrain config help "
            "%s`",
            name, name);
    return ax_error(AX_ERR_CONFIG, "unknown command \"%s\"; `axtrain help` lists all commands",
                    name);
}

/* ---- printing ---- */

void ax_command_print_help(const struct ax_command *c) {
    printf("axtrain %s: %s\n\nusage:\n", c->name, c->summary);
    for (const char *line = c->usage; *line;) {
        const size_t n = strcspn(line, "\n");
        printf("  axtrain %s %.*s\n", c->name, (int)n, line);
        line += n + (line[n] == '\n');
    }
    printf("\n%s\nexample:\n  %s\n", c->details, c->example);
}

static void print_commands(const struct ax_command *all) {
    for (int g = 0; g < AX_COMMANDS_COUNT; g++) {
        const struct ax_command *c;
        printf("\n%s:\n", ax_command_group_title((enum ax_command_group)g));
        for (int i = 1; (c = ax_command_at(all, (enum ax_command_group)g, i)); i++)
            printf("  %-11s %s\n", c->name, c->summary);
    }
}

static void print_exit_codes(void) {
    printf("\nExit codes:\n");
    for (int code = 0; code < 256; code++) {
        for (int st = 0; st < AX_STATUS_COUNT; st++) {
            const struct ax_status_info *info = ax_status_info((enum ax_status)st);
            if (info->exit_code != code)
                continue;
            printf("  %-11d %s\n", code, info->meaning);
            break;
        }
    }
}

void ax_command_print_overview(const struct ax_command *all) {
    printf("axtrain %s: post-train language models. Reads a YAML file, writes a model folder.\n"
           "\nusage: axtrain COMMAND [arguments]\n"
           "\nFirst steps:\n"
           "  axtrain init --model my-model/ --data train.jsonl   write sft.yaml for this model "
           "and data\n"
           "  axtrain preview sft.yaml                            see what training will see\n"
           "  axtrain sft sft.yaml                                train; output_dir names the "
           "folder\n",
           AX_VERSION);
    print_commands(all);
    printf(
        "\n`axtrain help COMMAND` explains a command, `axtrain config help KEY` a key of the YAML "
        "file;\n`axtrain --version` prints the version.\n");
    print_exit_codes();
}

/* ---- the command ---- */

enum ax_status ax_cmd_help(const struct ax_command *all, int argc, char **argv) {
    bool man = false;
    const struct ax_arg args[] = {{"--man", AX_ARG_FLAG, &man, 0, 0}};
    const char *name = NULL;
    int n;
    AX_TRY(ax_args_parse(argc, argv, 1, args, 0, 1, &name, &n));
    if (man) {
        struct ax_buf page = {0};
        const enum ax_status st = ax_help_man(&page, all);
        if (st == AX_OK)
            fputs(page.data, stdout);
        ax_buf_free(&page);
        return st;
    }
    const struct ax_command *c = n > 0 ? ax_command_find(all, name) : NULL;
    if (n > 0 && !c)
        return ax_command_unknown(all, name);
    if (c)
        ax_command_print_help(c);
    else
        ax_command_print_overview(all);
    return AX_OK;
}
