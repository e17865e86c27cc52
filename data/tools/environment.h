/* An environment that answers turns of a completion, and may have tools of its own: a child process, which has an
 * episode for each completion. Private to data/tools/; docs/environments.md is for those who write one.
 *
 *   Python    {"environment": NAME}           ->  {"title", "steps", "tools": [definition, …], "late": [name, …]}
 *   program   {"environment": true}           ->  the same
 *
 *   {"reset": {record}, "seed", "rollout"}    ->  {"observation": text or null}
 *   {"step": answer, "rollout"}               ->  {"observation": text or null, "reward": 1.0 or null, "done": false}
 *   {"call", "arguments", "rollout", "turn"}  ->  as a tool's
 *   {"close": rollout}                        ->  {"reward": 1.0 or null}
 *
 * An episode has one of the environment's processes to its end, and is lost if a question fails. If its process dies with
 * it, the other episodes of that process are played again in the next one: they get the questions that they had, and
 * must answer them alike. */
#ifndef AX_DATA_TOOLS_ENVIRONMENT_H
#define AX_DATA_TOOLS_ENVIRONMENT_H

#include "data/tools/tools.h"

struct ax_environment {
    struct ax_tool_host host;
    struct plays *plays;      /* [host.n] open episodes of each process */
    char *name, *title, *key; /* key NULL: it is that of all records */
    bool steps;               /* answers turns; else it only has tools */
    json_t *tools;            /* definitions, a list; or NULL */
    json_t *late;             /* names of tools whose results come last; or NULL */
    atomic_int in_a_row;      /* failed questions */
};

/* Starts the k-th one and asks what it is. AX_ERR_CONFIG says why it cannot be used. */
enum ax_status ax_environment_open(struct ax_environment **out, const struct ax_tools_options *o,
                                   size_t k);
void ax_environment_close(struct ax_environment *e); /* NULL is fine */
/* Asks r->ask, or calls a tool. AX_ERR_DATA: AX_TOOLS_STRIKES questions in a row failed. */
enum ax_status ax_environment_ask(struct ax_environment *e, const struct ax_tool_request *r,
                                  struct ax_watch *watch, struct ax_tool_result *out);
/* What an answer says of an episode, into `out`. False: it is none, and `why` says what was expected. */
bool ax_environment_read(enum ax_ask ask, const json_t *answer, struct ax_tool_result *out,
                         char why[AX_TOOL_ERROR]);

#endif
