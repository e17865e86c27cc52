/* `axtrain train` and `axtrain sft`: a config in, a trained model folder out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cmd/commands.h"
#include "cmd/config_args.h"
#include "cmd/report/card.h"
#include "cmd/train/hub_push.h"
#include "cmd/train/setup.h"
#include "cmd/train/tracker.h"
#include "parallel/env.h"

struct train_args {
    bool json, quiet;
    const char *color;
};

static void print_nothing(const struct ax_train_setup *s, const struct ax_train_result *r) {
    const char *limit = r->stopped_early                   ? "early_stopping_patience"
                        : s->o.max_steps == r->total_steps ? "max_steps"
                                                           : "num_epochs";
    printf("nothing to do (%lld of %lld steps%s); raise %s\n", (long long)r->steps,
           (long long)r->total_steps, r->stopped_early ? ", stopped early" : "", limit);
}

static void print_result(const struct ax_train_setup *s, const struct ax_train_result *r) {
    char time[32], memory[32], steps[64];
    const char *dir = s->o.save.output_dir;
    const char *what = s->adapter && s->o.step.relora.interval == 0 ? "adapter" : "model";
    if (r->steps > r->total_steps) /* resumed from a checkpoint of a longer run */
        snprintf(steps, sizeof steps, "%lld steps", (long long)r->steps);
    else
        snprintf(steps, sizeof steps, "%lld of %lld steps%s", (long long)r->steps,
                 (long long)r->total_steps, r->stopped_early ? " (stopped early)" : "");
    printf("trained %s in %s, ", steps, ax_format_seconds(time, sizeof time, r->train_seconds));
    if (isfinite(r->loss))
        printf("last loss %.4f\n", r->loss);
    else
        puts("no finite loss");
    if (r->evaluated && r->resumed_from == 0)
        printf("evaluation loss %.4f -> %.4f\n", r->first_eval.loss, r->last_eval.loss);
    else if (r->evaluated)
        printf("evaluation loss %.4f\n", r->last_eval.loss);
    printf("peak memory %s\n%s: %s\n",
           ax_format_bytes(memory, sizeof memory, (double)ax_mem_peak_rss()), what, dir);
}

static void print_merged(const struct ax_train_setup *s) {
    if (s->adapter && ax_config_bool(s->cfg, "merge_lora"))
        printf("merged model: %s/merged\n", s->o.save.output_dir);
}

static enum ax_status print_json(const struct ax_train_setup *s, const struct ax_train_result *r) {
    char *text;
    size_t len;
    json_t *v = json_pack("{ss sI sI sI sb sf sf sI sI}", "model", s->o.save.output_dir, "steps",
                          (json_int_t)r->steps, "total_steps", (json_int_t)r->total_steps,
                          "resumed_from", (json_int_t)r->resumed_from, "stopped_early",
                          r->stopped_early, "seconds", r->train_seconds, "save_seconds",
                          r->save_waited, "peak_memory_bytes", (json_int_t)ax_mem_peak_rss(),
                          "planned_bytes", (json_int_t)ax_arena_plan_total(&r->plan));
    if (v && isfinite(r->loss))
        json_object_set_new(v, "loss", json_real(r->loss));
    if (v && r->evaluated)
        json_object_set_new(v, "eval_loss", json_real(r->last_eval.loss));
    if (!v)
        return ax_error(AX_ERR_NOMEM, "out of memory for the result");
    const enum ax_status st = ax_json_dump(v, &text, &len);
    json_decref(v);
    AX_TRY(st);
    printf("%s\n", text);
    ax_free(text);
    return AX_OK;
}

/* Rejects several ranks: each would train alone, and all would write to the same folder. */
static enum ax_status refuse_ranks(void) {
    struct ax_env e;
    AX_TRY(ax_env_read(&e));
    if (e.world == 1)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "sft: %s is %d, but training supports only one rank so far. Start it without "
                    "a launcher (%s), or unset %s.",
                    e.world_name, e.world, e.launcher, e.world_name);
}

static void print(const struct ax_train_setup *s, const struct ax_train_result *r) {
    if (r->nothing_to_do)
        print_nothing(s, r);
    else
        print_result(s, r);
    print_merged(s);
}

static enum ax_status write_cards(const struct ax_train_setup *s, bool keep) {
    struct ax_card c = {.run = s->o.save.output_dir,
                        .dir = s->o.save.output_dir,
                        .base = s->base,
                        .merged = s->o.step.relora.interval > 0,
                        .keep = keep};
    char *merged;
    ax_card_write(&c);
    if (!s->adapter || !ax_config_bool(s->cfg, "merge_lora"))
        return AX_OK;
    AX_TRY(ax_path_join(&merged, c.run, "merged"));
    c.dir = merged;
    c.merged = true;
    ax_card_write(&c);
    ax_free(merged);
    return AX_OK;
}

/* Trains, then merges and uploads the model if requested. */
static enum ax_status finish(struct ax_train_setup *s, struct ax_trackers *trackers,
                             struct ax_train_result *r) {
    ax_tracker_describe(trackers, s->about, s->o.save.output_dir);
    s->o.metrics.sink = ax_tracker_sink(trackers);
    AX_TRY(ax_train(&s->o, r));
    AX_TRY(ax_train_merge(s, r->nothing_to_do));
    AX_TRY(write_cards(s, r->nothing_to_do));
    return ax_hub_push(s->cfg);
}

static enum ax_status train(const struct ax_config *cfg, const struct train_args *a, int argc,
                            char **argv) {
    struct ax_train_setup s;
    struct ax_train_result r = {0};
    struct ax_trackers *trackers;
    enum ax_color_mode color;
    AX_TRY(ax_color_mode_parse("--color", a->color, &color));
    AX_TRY(refuse_ranks());
    if (a->quiet && ax_log_get_level() > AX_LOG_WARN)
        ax_log_set_level(AX_LOG_WARN);
    ax_config_log_notes(cfg);
    AX_TRY(ax_hub_push_check(cfg));
    AX_TRY(ax_tracker_open(&trackers, cfg, &ax_tracker_patience));
    enum ax_status st = ax_train_setup_open(&s, cfg);
    if (st == AX_OK)
        st = ax_train_about_command(&s, argc, argv);
    if (st == AX_OK) {
        s.o.metrics.progress = !a->quiet;
        s.o.metrics.color = color;
        st = finish(&s, trackers, &r);
    }
    struct ax_error_record first;
    ax_error_save(&first, st);
    ax_tracker_close(trackers, st == AX_OK);
    st = ax_error_restore(&first);
    if (st == AX_OK && a->json)
        st = print_json(&s, &r);
    else if (st == AX_OK && !a->quiet)
        print(&s, &r);
    ax_train_setup_close(&s);
    return st;
}

static enum ax_status run(int argc, char **argv, bool sft) {
    struct train_args a = {.color = "auto"};
    const struct ax_arg args[] = {
        {"--json", AX_ARG_FLAG, &a.json, 0, 0},
        {"--quiet", AX_ARG_FLAG, &a.quiet, 0, 0},
        {"--color", AX_ARG_STRING, &a.color, 0, 0},
    };
    struct ax_config cfg;
    AX_TRY(ax_setup_args(argc, argv, 3, args, AX_CONFIG_FOR_TRAINING, &cfg));
    enum ax_status st = AX_OK;
    if (sft && ax_config_is_set(&cfg, "rl"))
        st = ax_config_error(&cfg, "rl", "this is not fine-tuning; use `axtrain train`");
    if (st == AX_OK)
        st = train(&cfg, &a, argc, argv);
    ax_config_free(&cfg);
    return st;
}

enum ax_status ax_cmd_train(int argc, char **argv) {
    return run(argc, argv, false);
}

enum ax_status ax_cmd_sft(int argc, char **argv) {
    return run(argc, argv, true);
}
