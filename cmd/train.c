/* `axtrain train` and the commands of single methods: a config in, a trained model folder out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "cmd/commands.h"
#include "cmd/args/config_args.h"
#include "cmd/help/help.h"
#include "cmd/report/card.h"
#include "cmd/train/elastic.h"
#include "cmd/train/hub_push.h"
#include "cmd/train/setup.h"
#include "cmd/tracker/tracker.h"
#include "kernels/backend.h"
#include "parallel/job/launch.h"
#include "parallel/fabric/world.h"

struct train_args {
    bool json, quiet;
    const char *color;
};

static void print_nothing(const struct ax_train_result *r) {
    printf("nothing to do (%lld of %lld steps%s); raise %s\n", (long long)r->steps,
           (long long)r->total_steps, r->stopped_early ? ", stopped early" : "",
           r->stopped_early ? "early_stopping_patience" : r->limit);
}

static double evaluation(const struct ax_eval_result *r) {
    return ax_eval_is_of_rewards(r) ? ax_figures_get(&r->figures, "reward") : r->loss;
}

/* What ended the run, where that is a question. */
static const char *ended(const struct ax_train_setup *s, const struct ax_train_result *r) {
    if (r->stopped_early)
        return " (stopped early)";
    if (s->o.max_steps <= 0 || s->o.epochs == 0)
        return "";
    return strcmp(r->limit, "max_steps") == 0 ? " (max_steps, before num_epochs)"
                                              : " (num_epochs, before max_steps)";
}

static void print_result(const struct ax_train_setup *s, const struct ax_train_result *r) {
    char time[32], memory[32], steps[64];
    const char *dir = s->o.save.output_dir;
    const char *what = s->adapter && s->o.step.relora.interval == 0 ? "adapter" : "model";
    if (r->steps > r->total_steps) /* resumed from a checkpoint of a longer run */
        snprintf(steps, sizeof steps, "%lld steps", (long long)r->steps);
    else
        snprintf(steps, sizeof steps, "%lld of %lld steps%s", (long long)r->steps,
                 (long long)r->total_steps, ended(s, r));
    printf("trained %s in %s, ", steps, ax_format_seconds(time, sizeof time, r->train_seconds));
    if (isfinite(r->loss))
        printf("last loss %.4f\n", r->loss);
    else
        puts("no finite loss");
    const bool samples = ax_eval_is_of_rewards(&r->last_eval);
    if (r->evaluated && r->resumed_from == 0)
        printf("evaluation %s %.4f -> %.4f\n", samples ? "reward" : "loss",
               evaluation(&r->first_eval), evaluation(&r->last_eval));
    else if (r->evaluated)
        printf("evaluation %s %.4f\n", samples ? "reward" : "loss", evaluation(&r->last_eval));
    printf("peak memory %s\n%s: %s\n",
           ax_format_bytes(memory, sizeof memory, (double)ax_mem_peak_rss()), what, dir);
}

/* "  axtrain COMMAND WORD …": words that a shell reads as they are. */
static enum ax_status put_command(struct ax_buf *out, const char *command,
                                  const char *const *words) {
    AX_TRY(ax_buf_printf(out, "  axtrain %s", command));
    for (; *words; words++) {
        AX_TRY(ax_buf_puts(out, " "));
        AX_TRY(ax_quote_word(out, *words));
    }
    return ax_buf_puts(out, "\n");
}
#define PUT_COMMAND(out, command, ...)                                                             \
    put_command(out, command, (const char *const[]){__VA_ARGS__, NULL})

/* The file of the run's first records, of evaluation if any; NULL: they are in no file. */
static const char *data_file(const struct ax_train_setup *s) {
    const struct ax_setup_sets *eval = &s->data.eval_sets, *train = &s->data.train_sets;
    const struct ax_setup_entry *e = eval->n > 0 ? eval->entries : train->entries;
    const char *path = ax_config_str(s->cfg, "%s.path", e->path);
    return path && ax_path_exists(path) && !ax_path_is_dir(path) ? path : NULL;
}

/* What people do with the result: commands to copy, which is why none has a word to fill in. */
static enum ax_status put_next(const struct ax_train_setup *s, struct ax_buf *out) {
    const struct ax_method *m = ax_method_of(s->cfg);
    const char *dir = s->o.save.output_dir, *file = m->head ? data_file(s) : NULL;
    const bool as_in_file = !s->cfg->overridden && !s->data.stream;
    char *merged;
    if (!m->head)
        AX_TRY(PUT_COMMAND(out, "chat", dir));
    if (file)
        AX_TRY(PUT_COMMAND(out, "eval", dir, "--task", m->head->task, "--data", file));
    if (m->task == AX_TASK_TEXT && s->data.eval.n > 0 && as_in_file)
        AX_TRY(PUT_COMMAND(out, "eval", dir, "--config", s->cfg->doc.name));
    if (!s->adapter || s->merges || s->o.step.relora.interval > 0)
        return AX_OK;
    AX_TRY(ax_path_join(&merged, dir, "merged"));
    const enum ax_status st = PUT_COMMAND(out, "merge", s->base_name, dir, merged);
    ax_free(merged);
    return st;
}

static enum ax_status print_next(const struct ax_train_setup *s) {
    struct ax_buf out = {0};
    const enum ax_status st = put_next(s, &out);
    if (st == AX_OK && out.len > 0)
        printf("next:\n%s", out.data);
    ax_buf_free(&out);
    return st;
}

static void print_merged(const struct ax_train_setup *s) {
    if (s->adapter && s->merges)
        printf("merged model: %s/merged\n", s->o.save.output_dir);
}

static enum ax_status print_json(const struct ax_train_setup *s, const struct ax_train_result *r) {
    char *text;
    size_t len;
    json_t *v = json_pack("{ss sI sI ss sI sb sf sf sI sI}", "model", s->o.save.output_dir, "steps",
                          (json_int_t)r->steps, "total_steps", (json_int_t)r->total_steps, "limit",
                          r->limit, "resumed_from", (json_int_t)r->resumed_from, "stopped_early",
                          r->stopped_early, "seconds", r->train_seconds, "save_seconds",
                          r->save_waited, "peak_memory_bytes", (json_int_t)ax_mem_peak_rss(),
                          "planned_bytes", (json_int_t)ax_arena_plan_total(&r->plan));
    if (v && isfinite(r->loss))
        json_object_set_new(v, "loss", json_real(r->loss));
    if (v && r->evaluated)
        json_object_set_new(v, ax_eval_is_of_rewards(&r->last_eval) ? "eval_reward" : "eval_loss",
                            json_real(evaluation(&r->last_eval)));
    if (!v)
        return ax_error(AX_ERR_NOMEM, "out of memory for the result");
    const enum ax_status st = ax_json_dump(v, &text, &len);
    json_decref(v);
    AX_TRY(st);
    printf("%s\n", text);
    ax_free(text);
    return AX_OK;
}

static enum ax_status print(const struct ax_train_setup *s, const struct ax_train_result *r) {
    if (r->nothing_to_do)
        print_nothing(r);
    else
        print_result(s, r);
    print_merged(s);
    return print_next(s);
}

static enum ax_status write_cards(const struct ax_train_setup *s, bool keep) {
    struct ax_card c = {.run = s->o.save.output_dir,
                        .dir = s->o.save.output_dir,
                        .base = s->base,
                        .merged = s->o.step.relora.interval > 0,
                        .keep = keep};
    char *merged;
    ax_card_write(&c);
    if (!s->adapter || !s->merges)
        return AX_OK;
    AX_TRY(ax_path_join(&merged, c.run, "merged"));
    c.dir = merged;
    c.merged = true;
    ax_card_write(&c);
    ax_free(merged);
    return AX_OK;
}

/* What rank 0 does with the trained model. */
static enum ax_status use_model(struct ax_train_setup *s, const struct ax_train_result *r) {
    ax_train_completions_table(s);
    AX_TRY(ax_train_merge(s, r->nothing_to_do));
    AX_TRY(write_cards(s, r->nothing_to_do));
    return ax_hub_push(s->cfg);
}

static enum ax_status train_and_serve(struct ax_train_setup *s, struct ax_train_result *r) {
    struct ax_error_record record;
    AX_TRY(ax_setup_serve_start(&s->serve));
    ax_error_save(&record, ax_train(&s->o, r));
    ax_setup_serve_close(&s->serve);
    return ax_error_restore(&record);
}

static enum ax_status train_setup(struct ax_train_setup *s, const struct train_args *a, int argc,
                                  char **argv, struct ax_trackers *trackers,
                                  struct ax_train_result *r) {
    const bool leads = !s->fabric || s->fabric->rank == 0;
    AX_TRY(ax_train_about_command(s, argc, argv));
    AX_TRY(ax_setup_elastic_read(s));
    s->o.metrics.progress = !a->quiet;
    AX_TRY(ax_color_mode_parse("--color", a->color, &s->o.metrics.color));
    ax_tracker_describe(trackers, s->about, s->o.save.output_dir);
    s->o.metrics.sink = ax_tracker_sink(trackers);
    AX_TRY(train_and_serve(s, r));
    return leads ? use_model(s, r) : AX_OK;
}

/* One rank's part, from the configuration on. */
static enum ax_status train_rank(const struct ax_config *cfg, const struct train_args *a, int argc,
                                 char **argv, struct ax_fabric *fabric) {
    const bool leads = !fabric || fabric->rank == 0;
    struct ax_train_setup s;
    struct ax_train_result r = {0};
    struct ax_trackers *trackers = NULL;
    if (leads)
        AX_TRY(ax_tracker_open(&trackers, cfg, &ax_tracker_patience));
    enum ax_status st = ax_train_setup_open(&s, cfg, fabric);
    if (st == AX_OK)
        st = train_setup(&s, a, argc, argv, trackers, &r);
    struct ax_error_record first;
    ax_error_save(&first, st);
    ax_tracker_close(trackers, st == AX_OK);
    st = ax_error_restore(&first);
    if (st == AX_OK && leads && a->json)
        st = print_json(&s, &r);
    else if (st == AX_OK && leads && !a->quiet)
        st = print(&s, &r);
    ax_train_setup_close(&s);
    return st;
}

/* What all ranks must have been given alike. */
static enum ax_status hash_config(const struct ax_config *cfg, uint64_t *hash) {
    struct ax_buf text = {0};
    AX_TRY(ax_config_show_json(cfg, &text));
    *hash = ax_hash64(text.data, text.len, 0);
    ax_buf_free(&text);
    return AX_OK;
}

/* What would stop the run only after its data have been prepared, or at its end. */
static enum ax_status check_outputs(const struct ax_config *cfg) {
    const enum ax_status st = ax_mkdir_check(ax_config_str(cfg, "output_dir"));
    return st == AX_OK ? ax_hub_push_check(cfg) : ax_error_prefix(st, "output_dir");
}

static enum ax_status train(const struct ax_config *cfg, const struct train_args *a, int argc,
                            char **argv) {
    struct ax_world world;
    struct ax_world_options wo = {.timeout = (double)ax_config_i64(cfg, "ddp_timeout")};
    enum ax_color_mode color;
    AX_TRY(ax_color_mode_parse("--color", a->color, &color));
    AX_TRY(hash_config(cfg, &wo.config));
    AX_TRY(ax_world_open(&world, &wo));
    const bool leads = world.env.rank == 0;
    const enum ax_log_level most = leads ? AX_LOG_WARN : AX_LOG_ERROR; /* others would repeat it */
    if ((a->quiet || !leads) && ax_log_get_level() > most)
        ax_log_set_level(most);
    ax_config_log_notes(cfg);
    enum ax_status st = leads ? check_outputs(cfg) : AX_OK;
    if (st == AX_OK)
        st = train_rank(cfg, a, argc, argv, world.fabric);
    ax_world_close(&world, st);
    return st;
}

/* What a command needs that no rl chooses. */
static const struct {
    const char *command, *needs;
} others[] = {
    {"sft", "no rl and no reward model"},
    {"prm", "process_reward_model: true"},
    {"reward", "reward_model: true"},
    {"qat", "qat: and a scheme"},
};

/* "rl: dpo, orpo, cpo, simpo or kto" */
static const char *needs_of(const char *command, char *buf, size_t size) {
    const struct ax_method *m;
    const char *names[16];
    size_t n = 0, at = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].command, command) == 0)
            return others[i].needs;
    for (size_t i = 0; (m = ax_method_at(i)) != NULL && n < sizeof names / sizeof *names; i++)
        if (m->command && strcmp(m->command, command) == 0)
            names[n++] = m->name;
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s",
                               i == 0      ? "rl: "
                               : i + 1 < n ? ", "
                                           : " or ",
                               names[i]);
    return buf;
}

static bool trains(const char *command, const struct ax_config *cfg) {
    const char *own = ax_method_of(cfg)->command;
    if (strcmp(command, "qat") == 0)
        return ax_config_holds(cfg, "qat");
    return strcmp(command, "train") == 0 || (own && strcmp(own, command) == 0);
}

static enum ax_status check_method(const struct ax_config *cfg, const char *command) {
    char needs[256];
    if (trains(command, cfg))
        return AX_OK;
    return ax_config_error(cfg, ax_config_is_set(cfg, "rl") ? "rl" : "base_model",
                           "`axtrain %s` needs a configuration with %s; `axtrain train` "
                           "takes any",
                           command, needs_of(command, needs, sizeof needs));
}

/* A rank for each GPU, where no launcher has said what this process is; 0: it trains by itself. (What is
 * wrong with a launcher's variables, ax_world_open says.) */
static int count_ranks(const struct ax_config *cfg) {
    struct ax_env env;
    const bool alone = ax_env_read(&env) == AX_OK && !env.launcher;
    ax_error_clear();
    const int n = alone ? ax_backend_gpus(ax_config_str(cfg, "device")) : 0;
    return n > 1 ? n : 0;
}

static enum ax_status launch(int ranks, bool quiet, char **command) {
    if (!quiet)
        ax_log_info(
            "%d GPUs: one rank each, as by `axtrain launch -n %d`; CUDA_VISIBLE_DEVICES chooses "
            "among them",
            ranks, ranks);
    return ax_launch_run(&(struct ax_launch_options){.ranks = ranks,
                                                     .hosts = 1,
                                                     .timeout = AX_LAUNCH_TIMEOUT,
                                                     .command = command,
                                                     .trains = true});
}

static enum ax_status run(int argc, char **argv, const char *command) {
    struct train_args a = {.color = "auto"};
    const struct ax_arg args[] = {
        {"--json", AX_ARG_FLAG, &a.json, 0, 0},
        {"--quiet", AX_ARG_FLAG, &a.quiet, 0, 0},
        {"--color", AX_ARG_STRING, &a.color, 0, 0},
    };
    struct ax_config cfg;
    enum ax_status st = ax_setup_args(argc, argv, 3, args, AX_CONFIG_FOR_TRAINING, &cfg);
    if (st != AX_OK)
        return ax_world_report(st);
    st = check_method(&cfg, command);
    const int ranks = st == AX_OK ? count_ranks(&cfg) : 0;
    if (st == AX_OK)
        st = ranks > 0 ? launch(ranks, a.quiet, argv) : train(&cfg, &a, argc, argv);
    ax_config_free(&cfg);
    return st;
}

enum ax_status ax_cmd_train(int argc, char **argv) {
    return run(argc, argv, "train");
}

enum ax_status ax_cmd_sft(int argc, char **argv) {
    return run(argc, argv, "sft");
}

enum ax_status ax_cmd_dpo(int argc, char **argv) {
    return run(argc, argv, "dpo");
}

enum ax_status ax_cmd_grpo(int argc, char **argv) {
    return run(argc, argv, "grpo");
}

enum ax_status ax_cmd_ppo(int argc, char **argv) {
    return run(argc, argv, "ppo");
}

enum ax_status ax_cmd_qat(int argc, char **argv) {
    return run(argc, argv, "qat");
}

enum ax_status ax_cmd_prm(int argc, char **argv) {
    return run(argc, argv, "prm");
}

enum ax_status ax_cmd_reward(int argc, char **argv) {
    return run(argc, argv, "reward");
}
