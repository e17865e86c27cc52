/* `axtrain plan`: what a step or a run takes, by dry run; reads no weights. */
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/mem.h"
#include "cmd/commands.h"
#include "cmd/args/config_args.h"
#include "parallel/fabric/mesh_sizes.h"
#include "optim/plan/hardware.h"
#include "cmd/plan/plan.h"
#include "model/arch/shapes.h"
#include "model/convert/base_model.h"
#include "cmd/train/setup.h"
#include "cmd/train/step_args.h"
#include "kernels/backend.h"
#include "optim/plan/choose.h"

/* ---- on which machine ---- */

/* Options of both forms; rates are filled by open_machine. */
struct machine {
    const char *name, *timeline;
    bool measured, search;
    struct ax_rates rates;
};
#define MACHINE_ARGS 4

static void machine_args(struct machine *m, struct ax_arg *args) {
    args[0] = (struct ax_arg){"--hardware", AX_ARG_STRING, &m->name, 0, 0};
    args[1] = (struct ax_arg){"--measured", AX_ARG_FLAG, &m->measured, 0, 0};
    args[2] = (struct ax_arg){"--search", AX_ARG_FLAG, &m->search, 0, 0};
    args[3] = (struct ax_arg){"--timeline", AX_ARG_STRING, &m->timeline, 0, 0};
}

static enum ax_status open_machine(struct machine *m, struct ax_plan_words *w) {
    struct ax_plan_request *r = &w->plan;
    struct ax_hardware h;
    if (!(r->speed >= 0 && r->speed <= 1e12))
        return ax_error(AX_ERR_CONFIG, "plan: --speed: expected tokens per second, got %g",
                        r->speed);
    if (m->name && m->measured)
        return ax_error(AX_ERR_CONFIG, "plan: give either --hardware or --measured");
    if (m->search && !m->name && !m->measured)
        return ax_error(AX_ERR_CONFIG, "plan: --search needs --hardware NAME or --measured");
    if (m->search && r->runtime.world < 2)
        return ax_error(AX_ERR_CONFIG, "plan: --search needs --world N");
    if (m->search && w->json)
        return ax_error(AX_ERR_CONFIG, "plan: --search has no --json");
    if (m->timeline && (m->search || (!m->name && !m->measured)))
        return ax_error(AX_ERR_CONFIG, "plan: --timeline needs --hardware NAME or --measured, and "
                                       "no --search");
    if (!m->name && !m->measured)
        return AX_OK;
    r->timeline = m->timeline;
    if (m->name) {
        AX_TRY(ax_plan_hardware(m->name, &h));
        m->rates = strcmp(r->runtime.backend, "cuda") == 0 ? ax_rates_cuda(&h) : ax_rates_of(&h);
        r->runtime.gpu = h.gpu;
    } else {
        const struct ax_runtime_options here = {.backend = r->runtime.backend,
                                                .threads = r->runtime.threads};
        AX_TRY(ax_plan_measure(&here, r->step.model.dtype, &h));
        m->rates = ax_rates_measured(&h, r->step.model.dtype);
    }
    r->rates = &m->rates;
    return AX_OK;
}

static enum ax_status make(const struct ax_plan_words *w, bool search) {
    struct ax_plan_figures *f;
    if (search)
        return ax_plan_search(&w->plan);
    AX_TRY(ax_alloc(&f, 1, sizeof *f));
    enum ax_status st = ax_plan_figures_make(f, &w->plan);
    if (st == AX_OK && w->json)
        st = ax_plan_print_json(w, f);
    else if (st == AX_OK)
        ax_plan_print(w, f);
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

/* The mesh of --world and --mesh, and the rank of each of its stages that needs most. */
static enum ax_status open_mesh(struct ax_plan_request *r, int64_t world, const char *text,
                                bool search, struct ax_train_stage **stages) {
    struct ax_mesh_sizes *s = &r->runtime.sizes;
    struct ax_mesh mesh;
    if (world == 0 && !text)
        return AX_OK;
    *s = (struct ax_mesh_sizes){1, 1, -1, 1, 1, 1};
    if (text) {
        if (world == 0)
            s->dp_shard = 1;
        AX_TRY(ax_mesh_sizes_parse(s, "plan", text));
    }
    r->step.model.sharding = ax_zero_stage(3);
    r->step.tp_auto = r->step.model.tp_overlap = r->step.model.expert_overlap = true;
    r->runtime.world = (int)world;
    if (world == 0)
        AX_TRY(ax_mesh_sizes_world(s, "plan", &r->runtime.world));
    AX_TRY(ax_mesh_create(&mesh, *s, r->runtime.world, 0));
    s->dp_shard = mesh.size[AX_ROLE_DP_SHARD];
    if (!search)
        AX_TRY(ax_step_choose(&r->step, &r->runtime, r->arch));
    if (search || r->runtime.world < 2)
        return AX_OK;
    struct ax_train_options o = {.arch = r->arch,
                                 .runtime = r->runtime,
                                 .step = r->step,
                                 .data = {.sequences_per_batch = r->sequences,
                                          .sequence_tokens = r->sequence_tokens,
                                          .sequence_docs = 1,
                                          .doc_tokens = r->sequence_tokens}};
    AX_TRY(ax_alloc(stages, (size_t)s->pp, sizeof **stages));
    AX_TRY(ax_train_choose_rank(&o, *stages));
    r->runtime = o.runtime;
    r->stages = *stages;
    return AX_OK;
}

static enum ax_status plan_model(int argc, char **argv) {
    struct ax_step_args a = {
        .dtype = "bfloat16", .optimizer = "adamw", .batch = 1, .seq = 2048, .accumulate = 1};
    struct ax_plan_words w = {.plan = {.first = AX_RECOMPUTE_OFF, .last = AX_RECOMPUTE_ON}};
    struct ax_plan_request *r = &w.plan;
    struct ax_arg args[AX_STEP_ARGS_COUNT + 8 + MACHINE_ARGS];
    struct machine machine = {0};
    struct ax_train_stage *stages = NULL;
    const char *shape = NULL, *mesh = NULL, *device = NULL;
    int64_t world = 0;
    struct ax_arch arch;
    int n = AX_STEP_ARGS_COUNT;
    ax_step_args_table(&a, args);
    args[n++] = (struct ax_arg){"--model", AX_ARG_STRING, &w.name, 0, 0};
    args[n++] = (struct ax_arg){"--arch", AX_ARG_STRING, &shape, 0, 0};
    args[n++] = (struct ax_arg){"--json", AX_ARG_FLAG, &w.json, 0, 0};
    args[n++] = (struct ax_arg){"--blocks", AX_ARG_FLAG, &w.blocks, 0, 0};
    args[n++] = (struct ax_arg){"--speed", AX_ARG_FLOAT, &r->speed, 0, 0};
    args[n++] = (struct ax_arg){"--world", AX_ARG_INT, &world, 1, 65536};
    args[n++] = (struct ax_arg){"--mesh", AX_ARG_STRING, &mesh, 0, 0};
    args[n++] = (struct ax_arg){"--device", AX_ARG_STRING, &device, 0, 0};
    machine_args(&machine, &args[n]);
    n += MACHINE_ARGS;
    AX_TRY(ax_args_parse_model(argc, argv, n, args, &w.name));
    if (!w.name == !shape)
        return ax_error(AX_ERR_CONFIG,
                        w.name ? "plan: give either a model or --arch NAME"
                               : "plan: expected a configuration, a model or --arch NAME; see "
                                 "`axtrain plan --help`");
    AX_TRY(ax_step_args_options(&a, &r->step));
    if (a.recompute) {
        AX_TRY(ax_recompute_parse(a.recompute, &r->first));
        r->last = r->step.recompute = r->first;
    }
    AX_TRY(read_arch(&arch, shape, w.name));
    w.name = shape ? shape : w.name;
    r->arch = &arch;
    r->sequences = a.batch;
    r->sequence_tokens = a.seq;
    w.masters = a.masters;
    w.optimizer = a.optimizer;
    r->runtime.threads = (int)a.threads;
    enum ax_status st = ax_backend_choose(device, true, &r->runtime.backend);
    if (st == AX_OK)
        st = open_mesh(r, world, mesh, machine.search, &stages);
    if (st == AX_OK)
        st = open_machine(&machine, &w);
    if (st == AX_OK)
        st = make(&w, machine.search);
    ax_free(stages);
    ax_arch_free(&arch);
    return st;
}

/* ---- of a configuration ---- */

/* True for a file that is not a model, which would be a config.json or a GGUF file. */
static bool is_config(const char *word) {
    return ax_path_ends_in(word, ".yaml") || ax_path_ends_in(word, ".yml") ||
           (ax_path_exists(word) && !ax_path_is_dir(word) && !ax_path_ends_in(word, ".json") &&
            !ax_path_ends_in(word, ".gguf") && !ax_path_ends_in(word, ".tsv"));
}

static enum ax_status plan_config(int argc, char **argv) {
    struct ax_plan_words w = {.plan = {.first = AX_RECOMPUTE_OFF, .last = AX_RECOMPUTE_ON}};
    struct ax_plan_request *r = &w.plan;
    struct ax_train_stage *stages = NULL;
    int64_t world = 0;
    struct machine machine = {0};
    struct ax_arg args[4 + MACHINE_ARGS] = {{"--json", AX_ARG_FLAG, &w.json, 0, 0},
                                            {"--blocks", AX_ARG_FLAG, &w.blocks, 0, 0},
                                            {"--speed", AX_ARG_FLOAT, &r->speed, 0, 0},
                                            {"--world", AX_ARG_INT, &world, 1, 65536}};
    struct ax_config cfg;
    struct ax_train_setup s;
    machine_args(&machine, &args[4]);
    AX_TRY(ax_setup_args(argc, argv, 4 + MACHINE_ARGS, args, AX_CONFIG_FOR_TRAINING, &cfg));
    enum ax_status st = ax_train_setup_plan(&s, &cfg, (int)world);
    if (st == AX_OK &&
        ((st = ax_alloc(&stages, (size_t)s.o.runtime.sizes.pp, sizeof *stages)) != AX_OK ||
         (st = ax_train_choose_rank(&s.o, stages)) != AX_OK))
        ax_train_setup_close(&s);
    if (st == AX_OK) {
        w.name = ax_config_str(&cfg, "base_model");
        w.masters = ax_config_str(&cfg, "master_dtype");
        w.optimizer = ax_config_str(&cfg, "optimizer");
        w.output_dir = s.o.save.output_dir;
        w.uncounted = s.uncounted;
        w.streamed = s.data.stream != NULL;
        r->arch = &s.arch;
        r->train = &s.o;
        r->runtime = s.o.runtime;
        r->stages = stages;
        r->step = ax_train_step_options(&s.o);
        r->sequences = s.o.data.sequences_per_batch;
        r->sequence_tokens = s.o.data.sequence_tokens;
        if (!s.o.recompute_auto)
            r->first = r->last = r->step.recompute;
        st = open_machine(&machine, &w);
        if (st == AX_OK)
            st = make(&w, machine.search);
        ax_train_setup_close(&s);
    }
    ax_free(stages);
    ax_config_free(&cfg);
    return st;
}

enum ax_status ax_cmd_plan(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "score") == 0)
        return ax_error(AX_ERR_CONFIG, "plan score: published speeds are compared by a program of "
                                       "the source now: build/tests/bench/plan_score FILE.tsv");
    for (int i = 1; i < argc; i++)
        if (is_config(argv[i]))
            return plan_config(argc, argv);
    return plan_model(argc, argv);
}
