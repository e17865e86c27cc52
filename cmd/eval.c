/* `axtrain eval`: how well a model predicts the trained tokens of some examples and, on request,
 * how many of them it solves. */
#include "cmd/eval/eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "ckpt/state/checkpoint.h"
#include "cmd/args/args.h"
#include "cmd/commands.h"
#include "cmd/harness/harness.h"
#include "cmd/args/text_args.h"
#include "data/text_side.h"
#include "model/convert/base_model.h"

#define MAX_OVERRIDES 12
#define MAX_POSITIONS 131072 /* longest sequence if the model allows more */

/* ---- configuration ---- */

struct overrides {
    int n;
    char *list[MAX_OVERRIDES];
};

/* Adds key=value, with the value as quoted YAML text. */
static enum ax_status add_text(struct overrides *o, const char *key, const char *value) {
    json_t *v = json_string(value);
    char *quoted = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
    json_decref(v);
    if (!quoted)
        return ax_error(AX_ERR_CONFIG, "%s: \"%s\" is not UTF-8", key, value);
    const enum ax_status st = ax_sprintf(&o->list[o->n], "%s=%s", key, quoted);
    ax_free(quoted);
    if (st == AX_OK)
        o->n++;
    return st;
}

static enum ax_status add_plain(struct overrides *o, const char *text) {
    AX_TRY(ax_strdup(&o->list[o->n], text));
    o->n++;
    return AX_OK;
}

/* Evaluates all records of --data in file order. */
static enum ax_status add_data(struct ax_eval *e, struct overrides *o) {
    if (!e->data)
        return AX_OK;
    AX_TRY(add_text(o, "datasets.0.path", e->data));
    if (e->type || !e->config)
        AX_TRY(add_text(o, "datasets.0.type", e->type ? e->type : "chat_template"));
    AX_TRY(add_plain(o, "val_set_size=0"));
    AX_TRY(add_plain(o, "shuffle_merged_datasets=false"));
    return e->config ? add_plain(o, "test_datasets=null") : AX_OK;
}

/* Whose tokenizer and chat template the records of --data are read with: without a configuration, those that the
 * adapters were trained with, so that all turns have the same tokens. NULL: the base's. */
static enum ax_status text_folder(const struct ax_eval *e, const char **folder) {
    const char *first = NULL;
    for (int i = 0; i < e->adapters.n && !e->config; i++) {
        const char *dir = e->adapters.pefts[i].dir;
        const char *text = ax_text_side_is_in(dir) ? dir : e->model_dir;
        bool same = true;
        if (first)
            AX_TRY(ax_text_side_same(first, text, &same));
        if (!same)
            return ax_error(AX_ERR_CONFIG,
                            "--adapter: %s and %s have different tokenizers or chat templates; "
                            "evaluate them one at a time, or say with --config how to read records",
                            first, text);
        first = text;
    }
    *folder = first != e->model_dir ? first : NULL;
    return AX_OK;
}

static enum ax_status load_config(struct ax_eval *e) {
    struct overrides o = {0};
    const char *folder;
    char *text = NULL;
    enum ax_status st;
    AX_TRY_GOTO(add_text(&o, "base_model", e->model_dir), st, done);
    AX_TRY_GOTO(add_data(e, &o), st, done);
    AX_TRY_GOTO(text_folder(e, &folder), st, done);
    if (folder)
        AX_TRY_GOTO(add_text(&o, "tokenizer_config", folder), st, done);
    if (e->config) {
        AX_TRY_GOTO(ax_config_load(&e->cfg, e->config, o.n, o.list), st, done);
    } else {
        const int64_t most = e->arch.max_positions;
        AX_TRY_GOTO(ax_sprintf(&text, "sequence_len: %lld\ndatasets:\n  - path: here\n",
                               (long long)(most < MAX_POSITIONS ? most : MAX_POSITIONS)),
                    st, done);
        AX_TRY_GOTO(ax_config_parse(&e->cfg, "eval", text, strlen(text), o.n, o.list), st, done);
    }
    AX_TRY_GOTO(ax_config_require(&e->cfg, AX_CONFIG_FOR_TEXT), st, done);
    if (e->data && ax_config_count(&e->cfg, "datasets") > 1)
        st = ax_error(AX_ERR_CONFIG,
                      "%s has %zu data sets; with --data, eval needs a configuration with exactly "
                      "one, whose type and fields describe %s",
                      e->config, ax_config_count(&e->cfg, "datasets"), e->data);
done:
    for (int i = 0; i < o.n; i++)
        ax_free(o.list[i]);
    ax_free(text);
    return st;
}

/* ---- what is evaluated ---- */

static enum ax_status open_model(struct ax_eval *e) {
    AX_TRY(ax_base_model_folder(&e->model_dir, &e->use, e->model, NULL, NULL));
    AX_TRY(ax_arch_load(&e->arch, e->model_dir));
    AX_TRY(ax_hf_open(&e->hf, e->model_dir));
    AX_TRY(ax_adapters_open(&e->adapters, &e->adapter_args, e->model_dir, &e->arch));
    AX_TRY(ax_classifier_refuse(&e->arch, e->model_dir, "predict tokens"));
    for (int i = e->adapters.n == 1 ? 0 : AX_ADAPTER_NONE; i < e->adapters.n; i++)
        e->turns[e->n_turns++].adapter = i;
    return AX_OK;
}

static enum ax_status warn_of_rows(const struct ax_setup_sets *s) {
    for (size_t i = 0; i < s->n; i++) {
        const struct ax_bad_records *skipped = &s->sets[i].info.bad;
        struct ax_buf lost = {0};
        AX_TRY(ax_setup_put_lost(&lost, &s->entries[i], &s->sets[i]));
        if (lost.len > 0)
            ax_log_warn("%s: %.*s", s->entries[i].path, (int)lost.len - 1, lost.data);
        ax_buf_free(&lost);
        if (skipped->n_empty > 0)
            ax_log_warn("%s: %lld record%s skipped, with nothing to evaluate; the first is %s",
                        s->entries[i].path, (long long)skipped->n_empty,
                        skipped->n_empty == 1 ? "" : "s", skipped->first_empty);
    }
    return AX_OK;
}

/* All examples in order, one per sequence. */
static enum ax_status open_rows(struct ax_eval *e) {
    struct ax_setup_data *d = &e->setup;
    const struct ax_loader_options lo = {
        .pack = {.mode = AX_PACK_PLAIN, .capacity = INT32_MAX, .max_docs = 1, .chunk = 4096}};
    const enum ax_status st =
        ax_setup_data_open_asked(d, &e->cfg, e->tools ? ax_tools_definitions(e->tools) : NULL);
    if (st == AX_ERR_DATA && !e->config && !e->type && ax_path_exists(e->data)) {
        char why[1024];
        snprintf(why, sizeof why, "%s", ax_error_text());
        return ax_error(st,
                        "%s. If the records are not messages, add --type T, or --config FILE to "
                        "read them as training does.",
                        why);
    }
    AX_TRY(st);
    if (d->stream)
        return ax_config_error(&e->cfg, "streaming",
                               "streamed data sets cannot be evaluated; give a file with --data");
    AX_TRY(warn_of_rows(e->data ? &d->train_sets : &d->eval_sets));
    e->q.corpus = e->data ? &d->train : &d->eval;
    e->left_out = e->data ? &d->train_report : &d->eval_report;
    if (e->q.corpus->n == 0)
        return e->data || e->left_out->too_long > 0 || e->left_out->too_short > 0
                   ? ax_error(AX_ERR_DATA,
                              "%s: no records to evaluate (%lld too long, %lld too short)",
                              e->data ? e->data : e->config, (long long)e->left_out->too_long,
                              (long long)e->left_out->too_short)
                   : ax_error(AX_ERR_CONFIG,
                              "%s holds out no records for evaluation; set val_set_size or "
                              "test_datasets, or give a file with --data",
                              e->config);
    e->q.n = e->q.corpus->n;
    if (e->max_rows > 0 && (size_t)e->max_rows < e->q.n)
        e->q.n = (size_t)e->max_rows;
    AX_TRY(ax_alloc(&e->q.list, e->q.n, sizeof *e->q.list));
    for (size_t i = 0; i < e->q.n; i++) {
        e->q.list[i].ref = e->q.corpus->refs[i];
        e->q.longest = e->q.list[i].ref.n > e->q.longest ? e->q.list[i].ref.n : e->q.longest;
    }
    e->source.chunk = lo.pack.chunk;
    ax_corpus_source_init(&e->source, e->q.corpus, &e->examples);
    return ax_loader_new(&e->loader, &e->examples, &lo);
}

/* Before the records, which are read with their definitions. */
static enum ax_status open_tools(struct ax_eval *e) {
    if (e->tool_args.tools.n == 0)
        return AX_OK;
    const enum ax_status st = ax_text_tools_start(&e->tools, &e->tool_options.tools);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "--tools");
}

/* The tokens that end an answer must be known. */
static enum ax_status open_turns(struct ax_eval *e) {
    if (!e->tools)
        return AX_OK;
    enum ax_status st =
        ax_setup_chats_open(&e->chat, &e->setup, e->tool_options.format, &e->q.stop);
    if (st == AX_OK)
        st = ax_tools_start(e->tools);
    e->rules = e->tool_options.rules;
    e->rules.chat = &e->chat;
    e->q.turns = &e->rules;
    e->q.tools = e->tools;
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "--tools");
}

static enum ax_status open_all(struct ax_eval *e) {
    AX_TRY(open_model(e));
    AX_TRY(ax_eval_best_open(e));
    AX_TRY(load_config(e)); /* without its notes, which are about training */
    AX_TRY(open_tools(e));
    AX_TRY(open_rows(e));
    if (!e->solve)
        return AX_OK;
    e->q.tokenizer = e->setup.tok.tokenizer;
    AX_TRY(ax_stop_tokens_read(&e->q.stop, e->model_dir, e->setup.tok.eos));
    AX_TRY(open_turns(e));
    AX_TRY(ax_questions_find(&e->q));
    return ax_eval_samples_open(e);
}

static void close_all(struct ax_eval *e) {
    ax_eval_best_close(e);
    ax_eval_samples_close(e);
    ax_questions_free(&e->q);
    ax_loader_free(e->loader);
    ax_corpus_source_free(&e->source);
    ax_setup_data_close(&e->setup);
    ax_tools_close(e->tools);
    ax_config_free(&e->cfg);
    ax_buf_free(&e->row_lines);
    ax_adapters_close(&e->adapters);
    ax_hf_close(&e->hf);
    ax_arch_free(&e->arch);
    ax_lock_drop(&e->use);
    ax_free(e->model_dir);
}

/* ---- the command ---- */

/* Scores take records as they are, and a model as it is. */
static enum ax_status check_scores(const struct ax_eval *e) {
    const struct ax_sampled_options *p = &e->pass_options;
    if (!e->data)
        return ax_error(AX_ERR_CONFIG, "eval: --task %s needs --data FILE", e->scores->task);
    if (e->config || e->type || e->per_row || e->q.max_new_tokens > 0 || e->q.batch > 0 ||
        p->samples > 0 || e->log_steps || e->pass_at || e->seed >= 0 ||
        !isnan(p->sampling.temperature) || !isnan(p->sampling.top_p))
        return ax_error(
            AX_ERR_CONFIG,
            "eval: --task %s scores the records of --data: remove --config, --type, "
            "--per-row, --max-new-tokens, --batch, --samples, --log-steps, --pass-at, --seed, "
            "--temperature and --top-p",
            e->scores->task);
    if (e->adapter_args.n > 1)
        return ax_error(AX_ERR_CONFIG, "eval: --task %s takes one --adapter", e->scores->task);
    return AX_OK;
}

/* Rejects options that apply only to the harness's tasks, or never to them. */
static enum ax_status check_tasks(struct ax_eval *e) {
    const struct ax_eval_tasks *t = &e->tasks;
    const struct ax_sampled_options *p = &e->pass_options;
    if (e->old_harness)
        return ax_error(AX_ERR_CONFIG, "eval: --harness is gone: --task NAME|FILE always runs "
                                       "lm-evaluation-harness; remove it");
    for (int i = 0; i < t->names.n; i++) {
        const bool solves = strcmp(t->names.text[i], AX_EVAL_SOLVE) == 0;
        e->solve = e->solve || solves;
    }
    for (int i = 0; i < t->names.n; i++)
        e->scores = e->scores ? e->scores : ax_classifier_find(t->names.text[i]);
    if ((e->solve || e->scores) && t->names.n > 1)
        return ax_error(AX_ERR_CONFIG,
                        "--task: %s is for --data, other tasks bring their own; run them "
                        "separately",
                        e->solve ? AX_EVAL_SOLVE : e->scores->task);
    if (e->scores)
        AX_TRY(check_scores(e));
    const bool named = t->names.n > 0 && !e->solve && !e->scores;
    if (named && (e->data || e->config || e->type || e->per_row || e->q.max_new_tokens > 0 ||
                  p->samples > 0 || e->log_steps || e->pass_at || !isnan(p->sampling.temperature) ||
                  !isnan(p->sampling.top_p)))
        return ax_error(
            AX_ERR_CONFIG,
            "eval: a task of lm-evaluation-harness says what is asked and how: remove --data, "
            "--config, --type, --per-row, --max-new-tokens, --samples, --log-steps, --pass-at, "
            "--temperature and --top-p, and use --log-samples for single records; the tasks with "
            "--data are final-answer, reward and prm, got \"%s\"",
            t->names.text[0]);
    if (!named && (t->num_fewshot >= 0 || t->max_length > 0 || t->chat || t->single_turn ||
                   t->system || t->samples || t->include_path))
        return ax_error(AX_ERR_CONFIG,
                        "eval: --include-path, --num-fewshot, --max-length, "
                        "--apply-chat-template, --fewshot-single-turn, --system and --log-samples "
                        "need --task NAME or --task FILE");
    if (t->single_turn && !t->chat)
        return ax_error(AX_ERR_CONFIG, "eval: --fewshot-single-turn needs --apply-chat-template");
    return AX_OK;
}

/* What is done with sampled answers. */
static enum ax_status check_best(struct ax_eval *e) {
    const struct ax_best_of_args *a = &e->best.args;
    AX_TRY(ax_best_of_args_check(a, "eval"));
    if (e->log_steps && (!e->solve || !e->data || e->pass_options.samples == 0))
        return ax_error(AX_ERR_CONFIG,
                        "eval: --log-steps needs --task final-answer, --data FILE and --samples N");
    if (e->log_steps && e->adapter_args.n > 1)
        return ax_error(AX_ERR_CONFIG, "eval: --log-steps takes one --adapter");
    if (a->n == 0)
        return AX_OK;
    if (!e->solve || !e->data)
        return ax_error(AX_ERR_CONFIG, "eval: --best-of needs --task final-answer and --data FILE");
    if (e->pass_options.samples > 0)
        return ax_error(AX_ERR_CONFIG, "eval: --best-of N samples N answers: remove --samples");
    if (e->adapter_args.n > 1)
        return ax_error(AX_ERR_CONFIG, "eval: --best-of takes one --adapter");
    e->pass_options.samples = a->n;
    return AX_OK;
}

static enum ax_status check(struct ax_eval *e) {
    if (!e->data && !e->config)
        return ax_error(
            AX_ERR_CONFIG,
            "eval: give --data FILE, --config FILE (to use its evaluation records), or both");
    AX_TRY(ax_tool_args_read(&e->tool_args, &e->tool_options));
    if (e->tool_args.tools.n > 0 && !e->solve)
        return ax_error(AX_ERR_CONFIG, "eval: --tools needs --task " AX_EVAL_SOLVE);
    if (e->type && !e->data)
        return ax_error(AX_ERR_CONFIG, "eval: --type needs --data");
    e->q.batch = e->q.batch > 0 ? e->q.batch : 16;
    e->q.max_new_tokens = e->q.max_new_tokens > 0 ? e->q.max_new_tokens : 256;
    if (e->base_name)
        AX_TRY(ax_storage_parse(e->base_name, &e->store));
    AX_TRY(ax_eval_pass_check(e));
    return ax_args_dtype(e->dtype_name, &e->dtype);
}

#define MAX_RUN ((size_t)64 << 20)

/* Without --dtype: what the run computed in that wrote the folder (its first adapter's, if there is one),
 * else float32. *own: memory of the name. */
static enum ax_status choose_dtype(struct ax_eval *e, char **own) {
    const char *dir = e->adapter_args.n > 0 ? e->adapter_args.text[0] : e->model, *dtype = NULL;
    const char *name_ends = e->adapter_args.n > 0 ? strchr(dir, '=') : NULL;
    struct ax_json_doc run = {0};
    char *path;
    if (e->dtype_name)
        return AX_OK;
    e->dtype_name = "float32";
    dir = name_ends ? name_ends + 1 : dir;
    AX_TRY(ax_path_join(&path, dir, AX_RUN_FILE));
    enum ax_status st = ax_path_exists(path) ? ax_json_load(&run, path, MAX_RUN) : AX_OK;
    if (st == AX_OK && run.root)
        dtype = json_string_value(json_object_get(run.root, "compute_dtype"));
    if (dtype)
        st = ax_strdup(own, dtype);
    if (*own) {
        e->dtype_name = *own;
        if (ax_ranks_lead(&e->ranks))
            ax_log_info("computing in %s, as the run of %s did; --dtype changes it", *own, dir);
    }
    ax_json_free(&run);
    ax_free(path);
    return st;
}

/* Evaluates tasks of the harness, which define everything else. */
static enum ax_status run_tasks(struct ax_eval *e, struct ax_buf *text) {
    struct ax_eval_tasks *t = &e->tasks;
    t->model = e->model;
    t->base = e->base_name;
    t->dtype = e->dtype_name;
    t->adapters = &e->adapter_args;
    t->max_rows = e->max_rows;
    t->batch = e->q.batch;
    t->threads = e->threads;
    t->ranks = &e->ranks;
    t->seed = e->seed >= 0 ? e->seed : AX_HARNESS_SEED;
    t->json = e->json;
    return ax_eval_tasks_run(t, text);
}

static enum ax_status run_scores(struct ax_eval *e, struct ax_buf *text) {
    AX_TRY(check(e));
    return ax_eval_score(e, e->scores, text);
}

static enum ax_status run_rows(struct ax_eval *e, struct ax_buf *text) {
    AX_TRY(check(e));
    enum ax_status st;
    AX_TRY_GOTO(open_all(e), st, done);
    AX_TRY_GOTO(ax_eval_run(e), st, done);
    st = ax_eval_print(e, text);
done:
    close_all(e);
    return st;
}

static enum ax_status write_out(const struct ax_eval *e, const struct ax_buf *text) {
    if (!ax_ranks_lead(&e->ranks))
        return AX_OK;
    return ax_write_result(e->scores ? NULL : e->out, text->data, text->len);
}

/* This rank's part. */
static enum ax_status run_rank(struct ax_eval *e) {
    struct ax_buf text = {0};
    char *dtype = NULL;
    enum ax_status st = choose_dtype(e, &dtype);
    if (st == AX_OK)
        st = e->scores                           ? run_scores(e, &text)
             : e->tasks.names.n > 0 && !e->solve ? run_tasks(e, &text)
                                                 : run_rows(e, &text);
    if (st == AX_OK)
        st = write_out(e, &text);
    ax_buf_free(&text);
    ax_free(dtype);
    return st;
}

static enum ax_status run_ranks(struct ax_eval *e, int argc, char **argv, enum ax_status parsed) {
    const struct ax_ranks_options o = {
        .command = "eval", .mesh = e->mesh, .device = e->device, .argc = argc, .argv = argv};
    AX_TRY(ax_ranks_open(&e->ranks, &o, parsed));
    const enum ax_status st = run_rank(e);
    ax_ranks_close(&e->ranks, st);
    return st;
}

enum ax_status ax_cmd_eval(int argc, char **argv) {
    char *named = NULL;
    struct ax_eval e = {.tasks = {.num_fewshot = -1}};
    e.pass_options.sampling.temperature = e.pass_options.sampling.top_p =
        NAN; /* not set by the user */
    e.seed = -1;
    const struct ax_arg own[] = {
        {"--model", AX_ARG_STRING, &e.model, 0, 0},
        {"--adapter", AX_ARG_LIST, &e.adapter_args, 0, 0},
        {"--base", AX_ARG_STRING, &e.base_name, 0, 0},
        {"--data", AX_ARG_STRING, &e.data, 0, 0},
        {"--config", AX_ARG_STRING, &e.config, 0, 0},
        {"--type", AX_ARG_STRING, &e.type, 0, 0},
        {"--rows", AX_ARG_INT, &e.max_rows, 1, INT32_MAX},
        {"--task", AX_ARG_LIST, &e.tasks.names, 0, 0},
        {"--harness", AX_ARG_FLAG, &e.old_harness, 0, 0},
        {"--include-path", AX_ARG_STRING, &e.tasks.include_path, 0, 0},
        {"--num-fewshot", AX_ARG_INT, &e.tasks.num_fewshot, 0, 10000},
        {"--apply-chat-template", AX_ARG_FLAG, &e.tasks.chat, 0, 0},
        {"--fewshot-single-turn", AX_ARG_FLAG, &e.tasks.single_turn, 0, 0},
        {"--system", AX_ARG_STRING, &e.tasks.system, 0, 0},
        {"--max-length", AX_ARG_INT, &e.tasks.max_length, 2, 1 << 24},
        {"--log-samples", AX_ARG_STRING, &e.tasks.samples, 0, 0},
        {"--max-new-tokens", AX_ARG_INT, &e.q.max_new_tokens, 1, 1 << 20},
        {"--batch", AX_ARG_INT, &e.q.batch, 1, 1024},
        {"--samples", AX_ARG_INT, &e.pass_options.samples, 1, AX_SAMPLED_MAX},
        {"--log-steps", AX_ARG_STRING, &e.log_steps, 0, 0},
        {"--best-of", AX_ARG_INT, &e.best.args.n, 2, AX_BEST_OF_MAX},
        {"--scorer", AX_ARG_STRING, &e.best.args.scorer, 0, 0},
        {"--score-by", AX_ARG_STRING, &e.best.args.by, 0, 0},
        {"--pass-at", AX_ARG_STRING, &e.pass_at, 0, 0},
        {"--temperature", AX_ARG_FLOAT, &e.pass_options.sampling.temperature, 0, 0},
        {"--top-p", AX_ARG_FLOAT, &e.pass_options.sampling.top_p, 0, 0},
        {"--seed", AX_ARG_INT, &e.seed, 0, INT64_MAX},
        {"--dtype", AX_ARG_STRING, &e.dtype_name, 0, 0},
        {"--threads", AX_ARG_INT, &e.threads, 1, 1024},
        {"--mesh", AX_ARG_STRING, &e.mesh, 0, 0},
        {"--device", AX_ARG_STRING, &e.device, 0, 0},
        {"--per-row", AX_ARG_FLAG, &e.per_row, 0, 0},
        {"--json", AX_ARG_FLAG, &e.json, 0, 0},
        {"-o", AX_ARG_STRING, &e.out, 0, 0},
    };
    struct ax_arg args[AX_TOOL_ARGS_COUNT + sizeof own / sizeof *own];
    ax_tool_args_table(&e.tool_args, args);
    memcpy(args + AX_TOOL_ARGS_COUNT, own, sizeof own);
    enum ax_status st = ax_args_parse_model(argc, argv, sizeof args / sizeof *args, args, &e.model);
    if (st == AX_OK && !e.model)
        st = ax_error(AX_ERR_CONFIG, "eval: --model DIR is missing; see `axtrain eval --help`");
    if (st == AX_OK)
        st = ax_base_model_of_adapter(&named, &e.model, &e.adapter_args);
    if (st == AX_OK)
        st = check_tasks(&e);
    if (st == AX_OK)
        st = check_best(&e);
    st = run_ranks(&e, argc, argv, st);
    ax_free(named);
    return st;
}
