/* `axtrain plan`: what a step or a run takes, by dry run; reads no weights. */
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "cmd/commands.h"
#include "cmd/config_args.h"
#include "cmd/plan/plan.h"
#include "cmd/shapes.h"
#include "cmd/model/base_model.h"
#include "cmd/train/setup.h"
#include "cmd/train/step_args.h"

static enum ax_status make(const struct ax_plan_request *r) {
    struct ax_plan_figures *f;
    AX_TRY(ax_alloc(&f, 1, sizeof *f));
    enum ax_status st = ax_plan_figures_make(f, r);
    if (st == AX_OK && r->json)
        st = ax_plan_print_json(r, f);
    else if (st == AX_OK)
        ax_plan_print(r, f);
    ax_plan_figures_free(f);
    return st;
}

/* ---- of a model ---- */

static enum ax_status read_arch(struct ax_arch *arch, const char *shape, const char *model) {
    struct ax_json_doc config;
    if (!shape)
        return ax_base_model_arch(arch, model, NULL, NULL);
    AX_TRY(ax_shape_config(shape, &config));
    const enum ax_status st = ax_arch_parse(arch, ax_json_root(&config));
    ax_json_free(&config);
    return st;
}

static enum ax_status plan_model(int argc, char **argv) {
    struct ax_step_args a = {
        .dtype = "bfloat16", .optimizer = "adamw", .batch = 1, .seq = 2048, .accumulate = 1};
    struct ax_plan_request r = {.first = AX_RECOMPUTE_OFF, .last = AX_RECOMPUTE_ON};
    struct ax_arg args[AX_STEP_ARGS_COUNT + 5];
    const char *shape = NULL;
    struct ax_arch arch;
    int n = AX_STEP_ARGS_COUNT;
    ax_step_args_table(&a, args);
    args[n++] = (struct ax_arg){"--model", AX_ARG_STRING, &r.name, 0, 0};
    args[n++] = (struct ax_arg){"--arch", AX_ARG_STRING, &shape, 0, 0};
    args[n++] = (struct ax_arg){"--json", AX_ARG_FLAG, &r.json, 0, 0};
    args[n++] = (struct ax_arg){"--blocks", AX_ARG_FLAG, &r.blocks, 0, 0};
    args[n++] = (struct ax_arg){"--speed", AX_ARG_FLOAT, &r.speed, 0, 0};
    AX_TRY(ax_args_parse_model(argc, argv, n, args, &r.name));
    if (!r.name == !shape)
        return ax_error(AX_ERR_CONFIG,
                        r.name ? "plan: give either a model or --arch NAME"
                               : "plan: expected a configuration, a model or --arch NAME; see "
                                 "`axtrain plan --help`");
    AX_TRY(ax_step_args_options(&a, &r.step));
    if (a.recompute) {
        AX_TRY(ax_recompute_parse(a.recompute, &r.first));
        r.last = r.step.recompute = r.first;
    }
    AX_TRY(read_arch(&arch, shape, r.name));
    r.name = shape ? shape : r.name;
    r.arch = &arch;
    r.sequences = a.batch;
    r.sequence_tokens = a.seq;
    r.masters = a.masters;
    r.optimizer = a.optimizer;
    r.runtime = (struct ax_runtime_options){.backend = "cpu", .threads = (int)a.threads};
    const enum ax_status st = make(&r);
    ax_arch_free(&arch);
    return st;
}

/* ---- of a configuration ---- */

/* True for a file that is not a model, which would be a config.json or a GGUF file. */
static bool is_config(const char *word) {
    return ax_path_ends_in(word, ".yaml") || ax_path_ends_in(word, ".yml") ||
           (ax_path_exists(word) && !ax_path_is_dir(word) && !ax_path_ends_in(word, ".json") &&
            !ax_path_ends_in(word, ".gguf"));
}

static enum ax_status plan_config(int argc, char **argv) {
    struct ax_plan_request r = {.first = AX_RECOMPUTE_OFF, .last = AX_RECOMPUTE_ON};
    struct ax_train_stage *stages = NULL;
    int64_t world = 0;
    const struct ax_arg args[] = {{"--json", AX_ARG_FLAG, &r.json, 0, 0},
                                  {"--blocks", AX_ARG_FLAG, &r.blocks, 0, 0},
                                  {"--speed", AX_ARG_FLOAT, &r.speed, 0, 0},
                                  {"--world", AX_ARG_INT, &world, 1, 65536}};
    struct ax_config cfg;
    struct ax_train_setup s;
    AX_TRY(ax_setup_args(argc, argv, 4, args, AX_CONFIG_FOR_TRAINING, &cfg));
    enum ax_status st = ax_train_setup_plan(&s, &cfg, (int)world);
    if (st == AX_OK &&
        ((st = ax_alloc(&stages, (size_t)s.o.runtime.sizes.pp, sizeof *stages)) != AX_OK ||
         (st = ax_train_choose_rank(&s.o, stages)) != AX_OK))
        ax_train_setup_close(&s);
    if (st == AX_OK) {
        r.name = ax_config_str(&cfg, "base_model");
        r.masters = ax_config_str(&cfg, "master_dtype");
        r.optimizer = ax_config_str(&cfg, "optimizer");
        r.output_dir = s.o.save.output_dir;
        r.uncounted = s.uncounted;
        r.streamed = s.data.stream != NULL;
        r.arch = &s.arch;
        r.train = &s.o;
        r.runtime = s.o.runtime;
        r.stages = stages;
        r.step = ax_train_step_options(&s.o);
        r.sequences = s.o.data.sequences_per_batch;
        r.sequence_tokens = s.o.data.sequence_tokens;
        if (!s.o.recompute_auto)
            r.first = r.last = r.step.recompute;
        st = make(&r);
        ax_train_setup_close(&s);
    }
    ax_free(stages);
    ax_config_free(&cfg);
    return st;
}

enum ax_status ax_cmd_plan(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (is_config(argv[i]))
            return plan_config(argc, argv);
    return plan_model(argc, argv);
}
