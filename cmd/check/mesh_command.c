/* `axtrain check mesh MODEL_DIR dp_shard=2 tp=2 …`: does this mesh train like one rank? */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/args/args.h"
#include "cmd/check/check.h"
#include "kernels/backend.h"
#include "optim/check/mesh.h"
#include "parallel/fabric/mesh_sizes.h"

enum { MAX_SIZES = 6 };

enum ax_status ax_check_backend(const char *name) {
    const struct ax_ops *ops;
    const enum ax_status st = ax_backend_find(name, &ops);
    return st != AX_ERR_CONFIG
               ? st
               : ax_error(st, "--backend: \"%s\" is not one of cpu, cuda, ref", name);
}

void ax_golden_flush(struct ax_golden_report *r) {
    if (r->n > 0)
        printf("%s\n", r->title);
    for (int i = 0; i < r->n; i++) {
        const struct ax_golden_group *g = &r->groups[i];
        const bool ok = g->worst <= g->tolerance;
        const bool earlier = strcmp(g->first, g->where) != 0;
        printf("  %-4s  %-34s worst %-10.3g tolerance %-10.3g %s%s%s\n", ok ? "ok" : "FAIL",
               g->name, g->worst, g->tolerance, g->where, !ok && earlier ? "; first " : "",
               !ok && earlier ? g->first : "");
        r->checked++;
        r->failed += !ok;
    }
    fflush(stdout);
    r->n = 0;
}

/* Opens a folder with its weights. A config.json alone gets random weights. */
static enum ax_status open_model(struct ax_arch *arch, struct ax_hf *hf, const char *path) {
    AX_TRY(ax_arch_load(arch, path));
    return ax_arch_path_is_config(path) ? AX_OK : ax_hf_open(hf, path);
}

static enum ax_status report(const struct ax_mesh_check *c, struct ax_golden_report *r) {
    char rank[32], one[32];
    ax_golden_flush(r);
    printf("memory per rank %s as planned, %s on one rank\n",
           ax_format_bytes(rank, sizeof rank, (double)c->rank_bytes),
           ax_format_bytes(one, sizeof one, (double)c->one_bytes));
    if (c->other_choices > 0)
        printf(
            "routers choose other experts than on one rank at least %.0f times of %.0f: where two "
            "scores are nearly equal, rounding decides\n",
            c->other_choices, c->choices);
    printf("%d checks passed, %d failed\n", r->checked - r->failed, r->failed);
    if (r->failed == 0)
        return AX_OK;
    return ax_error(AX_ERR_FAILED, "check mesh: %d of %d checks failed", r->failed, r->checked);
}

enum ax_status ax_check_mesh(int argc, char **argv) {
    bool ring = false, in_line = false;
    struct ax_mesh_check c = {.sizes = {1, 1, 1, 1, 1, 1}, .backend = "ref"};
    const char *recompute = "off", *schedule = "1f1b", *base = NULL, *qat = NULL, *fp8 = NULL,
               *positional[1 + MAX_SIZES];
    struct ax_peft_config adapter = {.all_linear = true};
    int64_t micro = 3, tokens = 96;
    int64_t lora = 0, virtual_stages = 0, zero = 3;
    const struct ax_arg args[] = {
        {"--backend", AX_ARG_STRING, &c.backend, 0, 0},
        {"--gloo", AX_ARG_FLAG, &c.gloo, 0, 0},
        {"--micro-batches", AX_ARG_INT, &micro, 1, 64},
        {"--tokens", AX_ARG_INT, &tokens, 16, 8192},
        {"--recompute", AX_ARG_STRING, &recompute, 0, 0},
        {"--lora", AX_ARG_INT, &lora, 1, 1024},
        {"--dora", AX_ARG_FLAG, &adapter.dora, 0, 0},
        {"--dropout", AX_ARG_FLOAT, &adapter.dropout, 0, 0},
        {"--bf16", AX_ARG_FLAG, &c.bf16, 0, 0},
        {"--adamw", AX_ARG_FLAG, &c.adamw, 0, 0},
        {"--pad", AX_ARG_INT, &c.step.pad, 1, 8192},
        {"--zero", AX_ARG_INT, &zero, 1, AX_ZERO_STAGES},
        {"--ring", AX_ARG_FLAG, &ring, 0, 0},
        {"--in-line", AX_ARG_FLAG, &in_line, 0, 0},
        {"--base", AX_ARG_STRING, &base, 0, 0},
        {"--qat", AX_ARG_STRING, &qat, 0, 0},
        {"--fp8", AX_ARG_STRING, &fp8, 0, 0},
        {"--schedule", AX_ARG_STRING, &schedule, 0, 0},
        {"--virtual", AX_ARG_INT, &virtual_stages, 1, AX_MAX_CHUNKS},
    };
    int n;
    AX_TRY(ax_args_parse(argc, argv, sizeof args / sizeof *args, args, 1, 1 + MAX_SIZES, positional,
                         &n));
    AX_TRY(ax_check_backend(c.backend));
    AX_TRY(ax_recompute_parse(recompute, &c.step.recompute));
    if (ax_pipeline_parse(schedule, &c.step.pipeline) != AX_OK)
        return ax_error(AX_ERR_CONFIG, "--schedule: %s", ax_error_text());
    if (virtual_stages > 0 && c.step.pipeline != AX_PIPELINE_INTERLEAVED)
        return ax_error(AX_ERR_CONFIG, "--virtual needs --schedule interleaved");
    for (int i = 1; i < n; i++)
        AX_TRY(ax_mesh_sizes_parse(&c.sizes, "check mesh", positional[i]));
    if (c.bf16 && strcmp(c.backend, "ref") == 0)
        return ax_error(AX_ERR_CONFIG, "--bf16 needs --backend cpu: ref computes in float64");
    if (base)
        AX_TRY(ax_storage_parse(base, &c.step.model.base_store));
    struct ax_scheme scheme;
    if (qat && fp8)
        return ax_error(AX_ERR_CONFIG, "give either --qat or --fp8: both say what products read");
    if (qat) {
        AX_TRY(ax_scheme_find_trained("--qat", qat, &scheme));
        c.step.model.qat = &scheme;
    }
    if (fp8) {
        AX_TRY(ax_fp8_recipe(fp8, false, &scheme));
        c.step.model.qat = &scheme;
    }
    if (!lora && (adapter.dora || base || adapter.dropout != 0))
        return ax_error(AX_ERR_CONFIG, "--dora, --dropout and --base need --lora R");
    if (!(adapter.dropout >= 0 && adapter.dropout < 1))
        return ax_error(AX_ERR_CONFIG, "--dropout: expected a number from 0 to below 1, got %g",
                        adapter.dropout);
    adapter.r = lora;
    adapter.alpha = 2 * (double)lora;
    c.step.model.adapter = lora ? &adapter : NULL;
    c.step.n_microbatches = (int)micro;
    c.step.tokens = tokens;
    c.step.virtual_stages = (int)virtual_stages;
    c.step.model.sharding = ax_zero_stage(zero);
    c.step.model.tp_overlap = c.step.model.expert_overlap = c.step.model.sharding.prefetch =
        !in_line;
    c.step.model.cp_method = ring ? AX_CP_RING : AX_CP_GATHER;

    struct ax_arch arch = {0};
    struct ax_hf hf = {0};
    static struct ax_golden_report r;
    bool here = true;
    enum ax_status st = open_model(&arch, &hf, positional[0]);
    c.arch = &arch;
    c.hf = hf.dir ? &hf : NULL;
    if (st == AX_OK)
        st = ax_mesh_check_run(&c, &r, &here);
    snprintf(r.title, sizeof r.title, "%s: %s, ranks as %s", positional[0], c.backend,
             c.gloo ? "processes" : "threads");
    if (st == AX_OK && here)
        st = report(&c, &r);
    ax_hf_close(&hf);
    ax_arch_free(&arch);
    return st;
}
