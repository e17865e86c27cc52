/* The options of commands that open a model to answer (generate, chat, eval of tasks), those of tools that
 * answers call, and those of the best of several answers. */
#ifndef AX_CMD_TEXT_ARGS_H
#define AX_CMD_TEXT_ARGS_H

#include "cmd/args/args.h"
#include "model/text/text_tools.h"
#include "cmd/ranks.h"

struct ax_text_args {
    struct ax_text_options o;
    const char *dtype, *mesh, *device;
    int64_t threads;
};
#define AX_TEXT_ARGS_COUNT 15
/* Sets the defaults and fills args[0 … AX_TEXT_ARGS_COUNT − 1]. */
void ax_text_args_table(struct ax_text_args *a, struct ax_arg *args);
/* ax_text_model_open with them, on these ranks; NULL: one. */
enum ax_status ax_text_args_open(struct ax_text_model *t, struct ax_text_args *a,
                                 struct ax_ranks *ranks);

/* Options with the names of the configuration's keys (docs/tools.md). */
struct ax_tool_args {
    struct ax_arg_list tools;
    const char *format, *parse_error, *python_state;
    int64_t max_rounds;              /* negative: no limit */
    int64_t workers;                 /* 0: not given */
    double timeout, rollout_timeout; /* seconds; NaN: not given */
};
#define AX_TOOL_ARGS_COUNT 8
/* Sets the defaults and fills args[0 … AX_TOOL_ARGS_COUNT − 1]. */
void ax_tool_args_table(struct ax_tool_args *a, struct ax_arg *args);
/* AX_ERR_CONFIG names an option that does not fit. `out` borrows `a`. */
enum ax_status ax_tool_args_read(const struct ax_tool_args *a, struct ax_text_tools_options *out);
/* ax_text_tools_open with them, if there are any. */
enum ax_status ax_tool_args_open(struct ax_text_tools *x, const struct ax_text_tools_options *o,
                                 struct ax_text_model *model);

/* AX_ERR_CONFIG for options that do not go together. */
struct ax_best_of_args;
enum ax_status ax_best_of_args_check(const struct ax_best_of_args *a, const char *command);

#endif
