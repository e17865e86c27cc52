/* Tools that a model calls while it answers:
 *
 *   python            a Python program in the sandbox (docs/sandbox.md); the model sees what it prints
 *   module.function   or file.py:function: Python of the user, with type hints and a docstring
 *   ./program         any program, which is asked a line of JSON and answers one
 *
 * and an environment, which answers turns, gives rewards and may have tools of its own (environment.h).
 *
 * Functions and programs are child processes with the user's rights (data/reward/child.h): arguments arrive at their
 * standard input, their environment has only what ordinary programs need and what begins with AXTRAIN_TOOL_, and
 * what they answer is bounded. What a tool raises, and that it has failed, is a result that the model sees. One
 * that dies, hangs or talks nonsense is named in the log; three times in a row end the run.
 *
 * Reading order: tools.c (all of them), outside.c (children), environment.h, kept.c (what earlier programs left),
 * result.c (what the model sees), beside.h (while others are sampled).
 * docs/tools.md is for those who write tools. */
#ifndef AX_DATA_TOOLS_TOOLS_H
#define AX_DATA_TOOLS_TOOLS_H

#include <stdatomic.h>

#include "data/reward/sandbox/watch.h"
#include "data/tools/episode.h"

struct ax_tools_options {
    const char *const *names; /* [n] as the user writes them; copied */
    size_t n;
    /* [n_environments], as the user writes them; copied. Records choose one by their column AX_TOOLS_CHOICE, which
     * has one of the keys; keys NULL: there is one, of all records */
    const char *const *environments, *const *keys;
    size_t n_environments;
    double timeout;            /* seconds for a call; 0: AX_TOOLS_TIMEOUT */
    const char *python;        /* NULL: $AXTRAIN_PYTHON, or python3 */
    const char *program;       /* this executable; NULL: /proc/self/exe */
    const char *sandbox_cache; /* ax_sandbox_options.cache; copied */
    int threads;               /* programs in the sandbox at a time; 0: 1 */
    int64_t workers;           /* most processes of a host; 0: AX_TOOLS_WORKERS */
    bool keeps;                /* programs go on where those of earlier calls ended */
};
#define AX_TOOLS_MOST_ENVIRONMENTS 16
#define AX_TOOLS_WORKERS           8
#define AX_TOOLS_MOST_WORKERS      64
#define AX_TOOLS_TIMEOUT           30.0
#define AX_TOOLS_START_TIMEOUT     120.0
/* Failed calls of one tool in a row that end the run. */
#define AX_TOOLS_STRIKES 3
/* Bytes of a result; what is longer loses its middle. */
#define AX_TOOLS_RESULT ((size_t)1 << 16)

struct ax_tools;
/* Starts the children and asks them for their definitions. AX_ERR_CONFIG names the tool, and why it cannot be used. */
enum ax_status ax_tools_open(struct ax_tools **out, const struct ax_tools_options *o);
void ax_tools_close(struct ax_tools *t); /* NULL is fine */
/* Opens the sandbox, if a tool needs it; a run that only counts tokens does not. */
enum ax_status ax_tools_start(struct ax_tools *t);
/* The definition of `python`; NULL if memory is out. keeps: as of ax_tools_options. */
json_t *ax_tools_python(bool keeps);
/* Their definitions, a list; if records choose an environment, an object with a list for each key. Borrowed. */
const json_t *ax_tools_definitions(const struct ax_tools *t);
/* Those of the k-th environment's answers, a list, or of all, if there is no environment. */
const json_t *ax_tools_definitions_of(const struct ax_tools *t, size_t k);
size_t ax_tools_environments(const struct ax_tools *t); /* their number */
/* The k-th one's name in metrics. Does it answer turns? */
const char *ax_tools_environment(const struct ax_tools *t, size_t k);
bool ax_tools_answer_turns(const struct ax_tools *t, size_t k);
/* Which one a record, whose prompt has been read, has. */
size_t ax_tools_choose(const struct ax_tools *t, const json_t *record);

struct ax_tool_request {
    enum ax_ask ask;
    const json_t *call; /* as in an episode's calls */
    int64_t rollout;
    size_t environment; /* the answer's, if there are any */
    int64_t seed;       /* for its random numbers */
    int turn;           /* for programs, and for the sandbox's random numbers */
    size_t worker;      /* number of the host's process that is asked */
    /* Programs that the answer has run, a list of texts, which python repeats before its own: their names
     * stay defined. All of them together have the limits of one, and an answer's random numbers are the same in
     * each. NULL: python begins anew. Borrowed */
    const json_t *earlier;
};
/* Runs calls, and fills results[n], which are zeroed before; their texts are freed by the caller with ax_free.
 * `watch`: asked while it waits; NULL: nobody. AX_ERR_DATA: a tool failed AX_TOOLS_STRIKES times in a row. */
enum ax_status ax_tools_run(struct ax_tools *t, size_t n, const struct ax_tool_request *requests,
                            struct ax_watch *watch, struct ax_tool_result *results);

/* ---- private to data/tools/ ---- */

/* What answers calls: Python's functions, a program or an environment, each in processes of its own that have one
 * question at a time; or the sandbox, which runs all that wait together. */
struct ax_tool_child;
struct ax_tool_host {
    struct ax_tool_child **children; /* [n]; NULL: the sandbox */
    size_t n;
    bool binds;    /* an answer's questions are all for the process that had its first one */
    size_t needed; /* the most processes that questions have waited for; beside.c */
};
/* `name`: of a program; NULL: Python. Processes are started by their first questions. */
enum ax_status ax_tool_host_open(struct ax_tool_host *h, const struct ax_tools_options *o,
                                 const char *name);
void ax_tool_host_close(struct ax_tool_host *h); /* safe on a zeroed one */
/* NULL: the call is answered without. */
struct ax_tool_host *ax_tools_host(struct ax_tools *t, const struct ax_tool_request *r);

/* A process that has one or more tools; outside.c. */
struct ax_tool {
    char *name;         /* as the user writes it; of a program's several tools, its */
    json_t *definition; /* owned */
    bool late;
    atomic_int in_a_row; /* failed calls */
    struct ax_tool_host *host;
    uint64_t *
        loaded; /* [host->n] of a function of Python: the start of each process that has loaded it; or NULL */
    struct ax_environment *environment; /* that has the tool; NULL: none */
};
/* "file.py:function", or "module.function" */
bool ax_tool_is_function(const char *name);
/* Takes `question`, an object, and starts the process if there is none. *answer: an object, to be freed; NULL:
 * `failure` says why there is none, and the process is gone. seconds 0: those of a call. */
enum ax_status ax_tool_child_ask(struct ax_tool_child *c, json_t *question, double seconds,
                                 struct ax_watch *watch, json_t **answer,
                                 char failure[AX_TOOL_ERROR]);
/* The first question of a process: an answer, or AX_ERR_CONFIG that names the "tool" or what `kind` it is. */
enum ax_status ax_tool_child_first(struct ax_tool_child *c, const char *kind, const char *name,
                                   json_t *question, struct ax_watch *watch, json_t **answer);
/* The number of the running process; 0: none runs. */
uint64_t ax_tool_child_process(const struct ax_tool_child *c);
/* The result in the answer to a call. */
enum ax_status ax_tool_take_answer(const json_t *answer, struct ax_tool_result *out);
/* The definition of a function of Python, into t, whose host is set. */
enum ax_status ax_tool_load(struct ax_tool *t);
/* The definitions of a program's tools, a list. */
enum ax_status ax_tool_child_list(struct ax_tool_child *c, struct ax_watch *watch, json_t **out);
/* `failure`: gets "", or why the tool has failed and will be started again. */
enum ax_status ax_tool_call_outside(struct ax_tool *t, const struct ax_tool_request *r,
                                    struct ax_watch *watch, struct ax_tool_result *out,
                                    char failure[AX_TOOL_ERROR]);
/* Appends a program that repeats `earlier` ones and then runs `code`, a text; kept.c. */
enum ax_status ax_tool_go_on(const json_t *earlier, const json_t *code, struct ax_buf *out);
/* Sets a result's text, or that of an error as the model sees it; result.c. */
enum ax_status ax_tool_result_set(struct ax_tool_result *out, const char *text, size_t n);
enum ax_status ax_tool_result_fail(struct ax_tool_result *out, const char *why);
/* Warns of a failure, counts it, and ends the run if it is one too many; `why` "": there is none. Several processes
 * may count in the same number. */
enum ax_status ax_tool_strike(atomic_int *in_a_row, const char *kind, const char *name,
                              const char *why);

#endif
