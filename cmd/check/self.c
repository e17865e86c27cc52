#include "optim/check/self.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "base/threads.h"
#include "cmd/args/args.h"
#include "cmd/check/check.h"
#include "optim/check/report.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/find.h"
#include "kernels/transfer.h"

/* ---- the table ---- */

static void print_line(struct ax_self *s, const char *name, const char *compared, double figure,
                       double tolerance, const char *where) {
    char allowed[32] = "0 (bits)";
    const double now = ax_clock_now();
    const bool ok = figure <= tolerance;
    if (tolerance > 0)
        snprintf(allowed, sizeof allowed, "%.3g", tolerance);
    printf("%-13s %-42s %-10.3g %-10s %-5s %6.2f s\n", name, compared,
           isnan(figure) ? INFINITY : figure, allowed, ok ? "ok" : "FAIL", now - s->since);
    if (!ok && *where)
        printf("              %s\n", where);
    fflush(stdout);
    s->since = now;
    s->passed += ok;
    s->failed += !ok;
}

static void print_skipped(struct ax_self *s, const char *name, const char *why) {
    printf("%-13s skipped: %s\n", name, why);
    s->skipped++;
}

static void print_title(const struct ax_self *s) {
    printf("\n%s, %s, %d threads\n%-13s %-42s %-10s %-10s\n",
           strcmp(s->backend, "cpu") == 0 ? ax_cpu_isa_name(ax_cpu_isa()) : s->backend,
           ax_dtype_info(s->dtype)->name, s->threads, "", "compared", "deviation", "tolerance");
}

/* ---- the models ---- */

static const char shape[] =
    "{\"model_type\": \"%s\", \"architectures\": [\"%s\"], \"vocab_size\": 512, \"hidden_size\": "
    "128, "
    "\"intermediate_size\": 352, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 32, \"initializer_range\": 0.08, "
    "\"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"tie_word_embeddings\": true, "
    "\"torch_dtype\": \"float32\"}";

/* *config (NULL: not needed) is a reference. */
static enum ax_status make_arch(struct ax_arch *arch, const char *type, const char *class,
                                json_t **config) {
    char text[1024];
    struct ax_json_doc doc;
    const int n = snprintf(text, sizeof text, shape, type, class);
    AX_TRY(ax_json_parse(&doc, "check self", text, (size_t)n));
    const enum ax_status st = ax_arch_parse(arch, ax_json_root(&doc));
    if (config)
        *config = json_incref(doc.root);
    ax_json_free(&doc);
    return st;
}

/* ---- the command ---- */

static const struct {
    const char *name;
    enum ax_status (*run)(struct ax_self *s);
} lines[] = {{"threads", ax_self_threads},
             {"packed", ax_self_packed},
             {"accumulation", ax_self_accumulation},
             {"recompute", ax_self_recompute},
             {"resume", ax_self_resume},
             {"generation", ax_self_generation},
             {"mesh", ax_self_meshes},
             {"kernels", ax_self_ops}};

const char *ax_check_self_name(size_t i) {
    return i < sizeof lines / sizeof *lines ? lines[i].name : NULL;
}

static bool wanted(const struct ax_arg_list *only, const char *name) {
    for (int i = 0; i < only->n; i++)
        if (strcmp(only->text[i], name) == 0)
            return true;
    return only->n == 0;
}

static enum ax_status check_names(const struct ax_arg_list *only) {
    for (int i = 0; i < only->n; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof lines / sizeof *lines && !known; k++)
            known = strcmp(only->text[i], lines[k].name) == 0;
        if (!known)
            return ax_error(AX_ERR_CONFIG,
                            "--only: \"%s\" is not one of threads, packed, accumulation, "
                            "recompute, resume, generation, mesh, kernels",
                            only->text[i]);
    }
    return AX_OK;
}

static enum ax_status check_request(const char *backend, const char *dtype) {
    enum ax_dtype type = AX_F64;
    const bool ref = strcmp(backend, "ref") == 0;
    AX_TRY(ax_check_backend(backend));
    if (strcmp(backend, "cuda") == 0)
        AX_TRY(ax_cuda_usable());
    if (!dtype)
        return AX_OK;
    AX_TRY(ax_args_dtype(dtype, &type));
    if (ref != (type == AX_F64))
        return ax_error(AX_ERR_CONFIG,
                        "--dtype %s: --backend ref computes in float64, and the others in float32 "
                        "or bfloat16",
                        dtype);
    return AX_OK;
}

/* A line that cannot be computed has failed, and the next one is tried. */
static void check_all(struct ax_self *s, const struct ax_arg_list *only) {
    print_title(s);
    s->since = ax_clock_now();
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!wanted(only, lines[i].name) || lines[i].run(s) == AX_OK)
            continue;
        print_line(s, lines[i].name, "could not be computed", INFINITY, 0, ax_error_text());
        ax_error_clear();
    }
}

/* On one backend: in one dtype, or in those that it trains in. */
static void check_backend(struct ax_self *s, const char *backend, const char *dtype,
                          const struct ax_arg_list *only) {
    static const enum ax_dtype trained[] = {AX_F32, AX_BF16};
    s->backend = backend;
    s->by_row = strcmp(backend, "cuda") != 0;
    const bool ref = strcmp(backend, "ref") == 0;
    for (int i = 0; i < (dtype || ref ? 1 : 2); i++) {
        s->dtype = ref ? AX_F64 : trained[i];
        if (dtype)
            (void)ax_args_dtype(dtype, &s->dtype);
        check_all(s, only);
    }
}

static enum ax_status result(const struct ax_self *s) {
    printf("\n%d checks passed, %d failed, %d skipped\n", s->passed, s->failed, s->skipped);
    if (s->failed > 0)
        return ax_error(AX_ERR_FAILED,
                        "check self: %d of %d checks failed. This build computes wrongly on this "
                        "machine: do not train with it, and report this table together with the "
                        "output of `axtrain env`",
                        s->failed, s->passed + s->failed);
    if (s->passed == 0)
        return ax_error(AX_ERR_UNSUPPORTED, "check self: nothing could be checked");
    return AX_OK;
}

enum ax_status ax_check_self(int argc, char **argv) {
    struct ax_self s = {.note = print_line, .skip = print_skipped};
    struct ax_arg_list only = {0};
    const char *backend = NULL, *dtype = NULL;
    int64_t threads = 0;
    int n;
    const struct ax_arg args[] = {
        {"--backend", AX_ARG_STRING, &backend, 0, 0},
        {"--dtype", AX_ARG_STRING, &dtype, 0, 0},
        {"--threads", AX_ARG_INT, &threads, 2, 1024},
        {"--only", AX_ARG_LIST, &only, 0, 0},
    };
    AX_TRY(ax_args_parse(argc, argv, sizeof args / sizeof *args, args, 0, 0, NULL, &n));
    AX_TRY(check_names(&only));
    AX_TRY(check_request(backend ? backend : "cpu", dtype));
    const int cpus = ax_cpu_count();
    s.threads = threads > 0 ? (int)threads : cpus > 1 ? cpus : 2;
    enum ax_status st = make_arch(&s.dense, "llama", "LlamaForCausalLM", &s.config);
    AX_TRY_GOTO(st, st, done);
    AX_TRY_GOTO(make_arch(&s.experts, "mixtral", "MixtralForCausalLM", NULL), st, done);
    if (backend) {
        check_backend(&s, backend, dtype, &only);
    } else {
        check_backend(&s, "cpu", dtype, &only);
        if (ax_cuda_usable() == AX_OK)
            check_backend(&s, "cuda", dtype, &only);
        else
            printf("\ncuda was not checked: %s\n", ax_error_text());
        ax_error_clear();
    }
    st = result(&s);
done:
    json_decref(s.config);
    ax_arch_free(&s.experts);
    ax_arch_free(&s.dense);
    return st;
}
