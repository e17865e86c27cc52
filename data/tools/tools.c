#include "data/tools/tools.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "data/records/format/tools.h"
#include "data/reward/sandbox/sandbox.h"
#include "data/tools/environment.h"
#include "data/tools/schema.h"

struct ax_tools {
    struct ax_tool *list; /* [n] */
    size_t n;
    json_t *definitions;
    struct ax_tool_host python, *programs, boxed; /* programs: [n_programs]; boxed: the sandbox */
    size_t n_programs;
    struct ax_environment **environments; /* [n_environments] */
    size_t n_environments;
    struct ax_sandbox *sandbox;
    struct ax_watch *watch; /* what the sandbox asks; or NULL */
    char *program, *cache;
    int threads;
};

/* ---- the tool python ---- */

static const char sandboxed[] = "python";

json_t *ax_tools_python(bool keeps) {
    return json_pack("{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}}, s:[s]}, s:{s:s}}}", "type",
                     "function", "function", "name", sandboxed, "description",
                     keeps ? "Runs a Python program and returns what it prints. Names that earlier "
                             "programs have defined stay defined."
                           : "Runs a Python program and returns what it prints.",
                     "parameters", "type", "object", "properties", "code", "type", "string",
                     "description", "The program.", "required", "code", "return", "type", "string");
}

/* ---- opening ---- */

static enum ax_status add_tool(struct ax_tools *t, const char *name, json_t *definition,
                               struct ax_tool_host *host, struct ax_tool **out) {
    AX_TRY(ax_regrow(&t->list, t->n, t->n + 1, sizeof *t->list));
    struct ax_tool *tool = &t->list[t->n++];
    tool->host = host;
    tool->definition = definition;
    *out = tool;
    return ax_strdup(&tool->name, name);
}

static enum ax_status add_function(struct ax_tools *t, const struct ax_tools_options *o,
                                   const char *name) {
    struct ax_tool *tool;
    if (!t->python.children)
        AX_TRY(ax_tool_host_open(&t->python, o, NULL));
    AX_TRY(add_tool(t, name, NULL, &t->python, &tool));
    return ax_tool_load(tool);
}

static enum ax_status add_program(struct ax_tools *t, const struct ax_tools_options *o,
                                  const char *name) {
    struct ax_tool *ignored;
    json_t *list;
    if (access(name, X_OK) != 0 || ax_path_is_dir(name))
        return ax_error(AX_ERR_CONFIG, "tool \"%s\": there is no such program that can be executed",
                        name);
    struct ax_tool_host *host = &t->programs[t->n_programs++];
    AX_TRY(ax_tool_host_open(host, o, name));
    host->binds = true; /* it is told which answer calls, and may remember */
    AX_TRY(ax_tool_child_list(host->children[0], NULL, &list));
    enum ax_status st = AX_OK;
    for (size_t i = 0; st == AX_OK && i < json_array_size(list); i++)
        st = add_tool(t, name, json_incref(json_array_get(list, i)), host, &ignored);
    json_decref(list);
    return st;
}

static enum ax_status add_named(struct ax_tools *t, const struct ax_tools_options *o,
                                const char *name) {
    struct ax_tool *ignored;
    if (strcmp(name, sandboxed) == 0)
        return add_tool(t, name, ax_tools_python(o->keeps), &t->boxed, &ignored);
    if (ax_tool_is_function(name))
        return add_function(t, o, name);
    if (strchr(name, '/'))
        return add_program(t, o, name);
    return ax_error(AX_ERR_CONFIG,
                    "tool \"%s\": expected python, module.function or file.py:function, or the "
                    "path of a program, with a slash",
                    name);
}

/* Its tools come after the others, as in TRL. */
static enum ax_status add_environment(struct ax_tools *t, const struct ax_tools_options *o,
                                      size_t k) {
    struct ax_environment *e;
    AX_TRY(ax_environment_open(&e, o, k));
    t->environments[t->n_environments++] = e;
    for (size_t i = 0; i < json_array_size(e->tools); i++) {
        json_t *definition = json_array_get(e->tools, i);
        const json_t *name = json_object_get(json_object_get(definition, "function"), "name");
        struct ax_tool *tool;
        AX_TRY(add_tool(t, e->name, json_incref(definition), &e->host, &tool));
        tool->environment = e;
        for (size_t l = 0; l < json_array_size(e->late); l++)
            tool->late = tool->late || json_equal(json_array_get(e->late, l), name);
    }
    return AX_OK;
}

static bool is_for(const struct ax_tool *tool, const struct ax_environment *e) {
    return !tool->environment || tool->environment == e;
}

/* Definitions are what the model is shown and calls are checked by: all that answers may call that have this
 * environment, or none. */
static enum ax_status list_for(const struct ax_tools *t, const struct ax_environment *e,
                               json_t *list) {
    for (size_t i = 0; i < t->n; i++) {
        const json_t *f = json_object_get(t->list[i].definition, "function");
        if (!is_for(&t->list[i], e))
            continue;
        const char *called = json_string_value(json_object_get(f, "name"));
        if (!called || !json_is_object(json_object_get(f, "parameters")))
            return ax_error(AX_ERR_CONFIG,
                            "tool \"%s\": a definition is {\"type\": \"function\", \"function\": "
                            "{\"name\", \"description\", \"parameters\"}}",
                            t->list[i].name);
        if (ax_tool_function(list, called))
            return ax_error(AX_ERR_CONFIG, "tool \"%s\": another tool is called %s, too",
                            t->list[i].name, called);
        if (json_array_append(list, t->list[i].definition) != 0)
            return ax_error(AX_ERR_NOMEM, "out of memory for tools");
    }
    return AX_OK;
}

static enum ax_status list_definitions(struct ax_tools *t, bool choose) {
    t->definitions = choose ? json_object() : json_array();
    for (size_t k = 0; choose && k < t->n_environments; k++) {
        const struct ax_environment *e = t->environments[k];
        json_t *list = json_array();
        if (json_object_set_new(t->definitions, e->key, list) != 0)
            return ax_error(AX_ERR_NOMEM, "out of memory for tools");
        AX_TRY(list_for(t, e, list));
    }
    return choose ? AX_OK
                  : list_for(t, t->n_environments > 0 ? t->environments[0] : NULL, t->definitions);
}

static enum ax_status open_all(struct ax_tools *t, const struct ax_tools_options *o) {
    if (o->program)
        AX_TRY(ax_strdup(&t->program, o->program));
    if (o->sandbox_cache)
        AX_TRY(ax_strdup(&t->cache, o->sandbox_cache));
    t->threads = o->threads;
    t->boxed.n = 1;
    AX_TRY(ax_alloc(&t->programs, o->n, sizeof *t->programs));
    for (size_t i = 0; i < o->n; i++)
        AX_TRY(add_named(t, o, o->names[i]));
    if (o->n_environments > AX_TOOLS_MOST_ENVIRONMENTS || (o->keys && o->n_environments == 0))
        return ax_error(AX_ERR_CONFIG, "%zu environments: expected 1 to %d", o->n_environments,
                        AX_TOOLS_MOST_ENVIRONMENTS);
    AX_TRY(ax_alloc(&t->environments, o->n_environments, sizeof *t->environments));
    for (size_t k = 0; k < o->n_environments; k++)
        AX_TRY(add_environment(t, o, k));
    return list_definitions(t, o->keys != NULL);
}

enum ax_status ax_tools_open(struct ax_tools **out, const struct ax_tools_options *o) {
    struct ax_tools *t;
    AX_TRY(ax_alloc(&t, 1, sizeof *t));
    const enum ax_status st = open_all(t, o);
    if (st == AX_OK)
        *out = t;
    else
        ax_tools_close(t);
    return st;
}

enum ax_status ax_tools_start(struct ax_tools *t) {
    struct ax_sandbox_parts parts;
    bool sandbox = false;
    for (size_t i = 0; i < t->n; i++)
        sandbox = sandbox || t->list[i].host == &t->boxed;
    if (!sandbox || t->sandbox)
        return AX_OK;
    AX_TRY(ax_sandbox_find(&parts, NULL, NULL));
    const int threads = t->threads < 1 ? 1 : t->threads;
    const struct ax_sandbox_options o = {
        .program = t->program,
        .wasmtime = parts.wasmtime,
        .python = {parts.python, parts.library},
        .cache = t->cache,
        .threads = threads < AX_SANDBOX_MAX_THREADS ? threads : AX_SANDBOX_MAX_THREADS,
        .seconds = AX_SANDBOX_SECONDS,
        .watch = &t->watch,
    };
    const enum ax_status st = ax_sandbox_open(&t->sandbox, &o);
    ax_sandbox_parts_free(&parts);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "tool \"%s\"", sandboxed);
}

void ax_tools_close(struct ax_tools *t) {
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++) {
        json_decref(t->list[i].definition);
        ax_free(t->list[i].name);
        ax_free(t->list[i].loaded);
    }
    for (size_t i = 0; i < t->n_programs; i++)
        ax_tool_host_close(&t->programs[i]);
    ax_tool_host_close(&t->python);
    for (size_t k = 0; k < t->n_environments; k++)
        ax_environment_close(t->environments[k]);
    ax_free(t->environments);
    ax_sandbox_close(t->sandbox);
    json_decref(t->definitions);
    ax_free(t->list);
    ax_free(t->programs);
    ax_free(t->program);
    ax_free(t->cache);
    ax_free(t);
}

const json_t *ax_tools_definitions(const struct ax_tools *t) {
    return t->definitions;
}

const json_t *ax_tools_definitions_of(const struct ax_tools *t, size_t k) {
    return json_is_object(t->definitions) ? json_object_get(t->definitions, t->environments[k]->key)
                                          : t->definitions;
}

size_t ax_tools_environments(const struct ax_tools *t) {
    return t->n_environments;
}

const char *ax_tools_environment(const struct ax_tools *t, size_t k) {
    return t->environments[k]->title;
}

bool ax_tools_answer_turns(const struct ax_tools *t, size_t k) {
    return k < t->n_environments && t->environments[k]->steps;
}

size_t ax_tools_choose(const struct ax_tools *t, const json_t *record) {
    const char *key = json_string_value(json_object_get(record, AX_TOOLS_CHOICE));
    size_t k = 0;
    while (json_is_object(t->definitions) && key && k + 1 < t->n_environments &&
           strcmp(t->environments[k]->key, key) != 0)
        k++;
    return k;
}

/* ---- calls in the sandbox ---- */

/* The last line that is not blank: an exception's "TYPE: text". */
static void last_line(const struct ax_buf *b, char out[AX_TOOL_ERROR]) {
    size_t end = b->len;
    while (end > 0 && isspace((unsigned char)b->data[end - 1]))
        end--;
    size_t from = end;
    while (from > 0 && b->data[from - 1] != '\n')
        from--;
    const size_t n = end - from < AX_TOOL_ERROR - 1 ? end - from : AX_TOOL_ERROR - 1;
    if (n > 0)
        memcpy(out, b->data + from, n);
    out[n] = '\0';
}

static const char *const verdicts[AX_VERDICT_COUNT] = {
    [AX_VERDICT_FUEL] = "the program ran for too long",
    [AX_VERDICT_TIME] = "the program ran for too long",
    [AX_VERDICT_MEMORY] = "the program used too much memory",
    [AX_VERDICT_STACK] = "the program nested too deep",
    [AX_VERDICT_OUTPUT] = "the program wrote too much",
    [AX_VERDICT_TRAP] = "the interpreter failed",
    [AX_VERDICT_CRASH] = "the interpreter failed",
};

/* What the program prints, without blanks at its end. */
static enum ax_status take_program(const struct ax_sandbox_result *r, struct ax_tool_result *out) {
    char why[AX_TOOL_ERROR];
    size_t n = r->out.len;
    out->seconds = r->seconds;
    out->ran = r->verdict == AX_VERDICT_EXIT;
    if (r->verdict == AX_VERDICT_EXIT && r->exit_code == 0) {
        while (n > 0 && isspace((unsigned char)r->out.data[n - 1]))
            n--;
        return ax_tool_result_set(out, r->out.data ? r->out.data : "", n);
    }
    if (r->verdict != AX_VERDICT_EXIT)
        return ax_tool_result_fail(out, verdicts[r->verdict]);
    last_line(&r->err, why);
    return ax_tool_result_fail(out, why[0] ? why : "the program ended with an error");
}

/* All of them together, on as many threads as the sandbox has. */
struct programs {
    struct ax_sandbox_job *jobs;
    struct ax_sandbox_result *results;
    struct ax_bytes *parts;
    struct ax_buf *texts; /* of those that go on */
    size_t *which;        /* request of each */
    size_t n;
};

static enum ax_status add_job(struct programs *p, const struct ax_tool_request *r, size_t i) {
    const json_t *code =
        json_object_get(json_object_get(json_object_get(r->call, "function"), "arguments"), "code");
    struct ax_bytes program = {json_string_value(code), json_string_length(code)};
    if (r->earlier) {
        AX_TRY(ax_tool_go_on(r->earlier, code, &p->texts[p->n]));
        program = (struct ax_bytes){p->texts[p->n].data, p->texts[p->n].len};
    }
    p->parts[2 * p->n] = program;
    p->parts[2 * p->n + 1] = (struct ax_bytes){"", 0};
    p->which[p->n] = i;
    p->jobs[p->n] = (struct ax_sandbox_job){.kind = AX_SANDBOX_PROGRAM,
                                            .parts = p->parts + 2 * p->n,
                                            .n_parts = 2,
                                            .limits = AX_SANDBOX_LIMITS,
                                            .seed = (uint64_t)r->rollout * 1024 +
                                                    (r->earlier ? 0 : (uint64_t)r->turn)};
    p->n++;
    return AX_OK;
}

static enum ax_status allocate(struct programs *p, size_t n) {
    AX_TRY(ax_alloc(&p->jobs, n, sizeof *p->jobs));
    AX_TRY(ax_alloc(&p->results, n, sizeof *p->results));
    AX_TRY(ax_alloc(&p->which, n, sizeof *p->which));
    AX_TRY(ax_alloc(&p->texts, n, sizeof *p->texts));
    return ax_alloc(&p->parts, 2 * n, sizeof *p->parts);
}

static void free_programs(struct programs *p) {
    for (size_t i = 0; p->results && i < p->n; i++)
        ax_sandbox_result_free(&p->results[i]);
    for (size_t i = 0; p->texts && i < p->n; i++)
        ax_buf_free(&p->texts[i]);
    ax_free(p->texts);
    ax_free(p->jobs);
    ax_free(p->results);
    ax_free(p->which);
    ax_free(p->parts);
}

static enum ax_status run_programs(struct ax_tools *t, struct programs *p, struct ax_watch *watch,
                                   struct ax_tool_result *results) {
    if (p->n == 0)
        return AX_OK;
    AX_TRY(ax_tools_start(t));
    t->watch = watch;
    const enum ax_status st = ax_sandbox_run(t->sandbox, p->jobs, p->n, p->results);
    t->watch = NULL;
    AX_TRY(st);
    for (size_t i = 0; i < p->n; i++)
        AX_TRY(take_program(&p->results[i], &results[p->which[i]]));
    return AX_OK;
}

/* ---- calls of children ---- */

static enum ax_status call_child(struct ax_tool *tool, const struct ax_tool_request *r,
                                 struct ax_watch *watch, struct ax_tool_result *out) {
    char failure[AX_TOOL_ERROR];
    const double start = ax_clock_now();
    const enum ax_status st = ax_tool_call_outside(tool, r, watch, out, failure);
    out->seconds = ax_clock_now() - start;
    AX_TRY(st);
    return ax_tool_strike(&tool->in_a_row, "tool", tool->name, failure);
}

/* ---- all calls ---- */

static struct ax_environment *environment_of(const struct ax_tools *t,
                                             const struct ax_tool_request *r) {
    return t->n_environments > 0 ? t->environments[r->environment] : NULL;
}

/* Environments may have tools of the same name. */
static struct ax_tool *find_tool(const struct ax_tools *t, const struct ax_tool_request *r) {
    const char *called =
        json_string_value(json_object_get(json_object_get(r->call, "function"), "name"));
    for (size_t i = 0; i < t->n; i++) {
        const json_t *f = json_object_get(t->list[i].definition, "function");
        if (is_for(&t->list[i], environment_of(t, r)) &&
            strcmp(json_string_value(json_object_get(f, "name")), called) == 0)
            return &t->list[i];
    }
    return NULL;
}

/* What is to be said of a call that is not run; nothing if it is. */
static enum ax_status check(const struct ax_tools *t, const struct ax_tool_request *r,
                            struct ax_tool **tool, struct ax_buf *why) {
    const json_t *f = json_object_get(r->call, "function"),
                 *unread = json_object_get(r->call, "unread");
    if (unread)
        return ax_buf_printf(why, "the tool call cannot be read: %s", json_string_value(unread));
    *tool = find_tool(t, r);
    if (!*tool)
        return ax_buf_printf(why, "Tool %s not found.",
                             json_string_value(json_object_get(f, "name")));
    /* Python refuses arguments in its own words, and takes those of other types than its hints, as in TRL. */
    if (ax_tool_is_function((*tool)->name))
        return AX_OK;
    return ax_tool_misfit(json_object_get((*tool)->definition, "function"),
                          json_object_get(f, "arguments"), why);
}

static enum ax_status run_one(struct ax_tools *t, const struct ax_tool_request *r, size_t i,
                              struct ax_watch *watch, struct programs *p,
                              struct ax_tool_result *out) {
    struct ax_tool *tool = NULL;
    struct ax_buf why = {0};
    if (r->ask != AX_ASK_CALLS)
        return ax_environment_ask(environment_of(t, r), r, watch, out);
    enum ax_status st = check(t, r, &tool, &why);
    out->late = tool && tool->late;
    if (st == AX_OK && (why.len > 0 || !tool))
        st = ax_tool_result_fail(out, why.data);
    else if (st == AX_OK && tool->environment)
        st = ax_environment_ask(tool->environment, r, watch, out);
    else if (st == AX_OK && tool->host == &t->boxed)
        st = add_job(p, r, i);
    else if (st == AX_OK)
        st = call_child(tool, r, watch, out);
    ax_buf_free(&why);
    return st;
}

enum ax_status ax_tools_run(struct ax_tools *t, size_t n, const struct ax_tool_request *requests,
                            struct ax_watch *watch, struct ax_tool_result *results) {
    struct programs p = {0};
    enum ax_status st = allocate(&p, n);
    for (size_t i = 0; st == AX_OK && i < n; i++)
        st = run_one(t, &requests[i], i, watch, &p, &results[i]);
    if (st == AX_OK)
        st = run_programs(t, &p, watch, results);
    free_programs(&p);
    return st;
}

struct ax_tool_host *ax_tools_host(struct ax_tools *t, const struct ax_tool_request *r) {
    if (r->ask != AX_ASK_CALLS)
        return &environment_of(t, r)->host;
    if (json_object_get(r->call, "unread"))
        return NULL;
    const struct ax_tool *tool = find_tool(t, r);
    return tool ? tool->host : NULL;
}
