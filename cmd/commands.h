/* The command table: name, group, purpose, an example, and the function. Help, completions and the
 * man page are generated from it. */
#ifndef AX_CMD_COMMANDS_H
#define AX_CMD_COMMANDS_H

#include <stdbool.h>

#include "base/status.h"

/* Groups of commands, by what they are used for. */
enum ax_command_group {
    AX_COMMANDS_TRAIN,
    AX_COMMANDS_LOOK,
    AX_COMMANDS_MODELS,
    AX_COMMANDS_SERVE,
    AX_COMMANDS_MEASURE,
    AX_COMMANDS_COUNT
};

struct ax_command {
    const char *name;
    enum ax_command_group group;
    /* its place in the group, from 1, in the order in which a newcomer needs the commands */
    int place;
    const char *summary; /* one line */
    const char *usage;   /* arguments, one form per line, without "axtrain NAME" */
    const char *details; /* options, their meaning, and the output; ends with a newline */
    const char *example;
    /* argv[0] is the command's name. */
    enum ax_status (*run)(int argc, char **argv);
    bool trains; /* it takes the configuration of a training, and runs it */
    /* `axtrain launch` starts it though it does not train: its processes share the work, or each host
     * needs it */
    bool launched;
    /* Instead of `run`: it is about all commands. */
    enum ax_status (*run_among)(const struct ax_command *all, int argc, char **argv);
};

/* NULL-terminated by name. */
extern const struct ax_command ax_commands[];
const char *ax_command_group_title(enum ax_command_group g); /* "Serve and evaluate" */
/* The command at a place of a group; NULL behind the last. */
const struct ax_command *ax_command_at(const struct ax_command *all, enum ax_command_group g,
                                       int place);

/* NULL: none. */
const struct ax_command *ax_command_find(const struct ax_command *all, const char *name);
/* Before anything else in main, with the command's name and words: signals that come from now on are answered as the
 * command does. True if this process is no command, but was started by one: then it has done its work, and ends with
 * *code. */
bool ax_command_start(const struct ax_command *all, const char *name, int argc, char **argv,
                      int *code);
/* The command that `axtrain launch` with these words starts ranks of; NULL: none. argv[0] is "launch". */
const struct ax_command *ax_launch_command(const struct ax_command *all, int argc, char **argv);
/* Runs it, unless the environment chooses what this machine cannot do. */
enum ax_status ax_command_run(const struct ax_command *c, int argc, char **argv);
/* The known name nearest to a mistyped or abbreviated one; NULL if none is close. */
const char *ax_command_nearest(const struct ax_command *all, const char *name);
/* AX_ERR_CONFIG with a suggestion. */
enum ax_status ax_command_unknown(const struct ax_command *all, const char *name);
void ax_command_print_help(const struct ax_command *c);
void ax_command_print_overview(const struct ax_command *all);

enum ax_status ax_cmd_bench(int argc, char **argv);
enum ax_status ax_cmd_cache(int argc, char **argv);
enum ax_status ax_cmd_chat(int argc, char **argv);
enum ax_status ax_cmd_check(int argc, char **argv);
enum ax_status ax_cmd_ckpt(int argc, char **argv);
enum ax_status ax_cmd_completion(const struct ax_command *all, int argc, char **argv);
enum ax_status ax_cmd_config(int argc, char **argv);
enum ax_status ax_cmd_convert(int argc, char **argv);
enum ax_status ax_cmd_env(int argc, char **argv);
enum ax_status ax_cmd_eval(int argc, char **argv);
enum ax_status ax_cmd_fetch(int argc, char **argv);
enum ax_status ax_cmd_generate(int argc, char **argv);
enum ax_status ax_cmd_help(const struct ax_command *all, int argc, char **argv);
enum ax_status ax_cmd_grpo(int argc, char **argv);
enum ax_status ax_cmd_init(int argc, char **argv);
enum ax_status ax_cmd_launch(const struct ax_command *all, int argc, char **argv);
enum ax_status ax_cmd_merge(int argc, char **argv);
enum ax_status ax_cmd_plan(int argc, char **argv);
enum ax_status ax_cmd_preprocess(int argc, char **argv);
enum ax_status ax_cmd_preview(int argc, char **argv);
enum ax_status ax_cmd_problems(int argc, char **argv);
enum ax_status ax_cmd_report(int argc, char **argv);
enum ax_status ax_cmd_sandbox(int argc, char **argv);
enum ax_status ax_cmd_serve(int argc, char **argv);
enum ax_status ax_cmd_sft(int argc, char **argv);
enum ax_status ax_cmd_dpo(int argc, char **argv);
enum ax_status ax_cmd_ppo(int argc, char **argv);
enum ax_status ax_cmd_prm(int argc, char **argv);
enum ax_status ax_cmd_reward(int argc, char **argv);
enum ax_status ax_cmd_qat(int argc, char **argv);
enum ax_status ax_cmd_quantize(int argc, char **argv);
enum ax_status ax_cmd_template(int argc, char **argv);
enum ax_status ax_cmd_tokenize(int argc, char **argv);
enum ax_status ax_cmd_train(int argc, char **argv);

#endif
