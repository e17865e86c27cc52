/* From a row of published speeds to a plan of the same step: what model, mesh, precision and machine
 * mean here. Nothing but the published speed is compared with it. */
#include "tests/bench/speeds.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "optim/plan/hardware.h"
#include "model/arch/shapes.h"

/* ---- cells ---- */

struct reader {
    const struct ax_tsv *t;
    int row;
    bool inferred; /* a number or word that was read ends in "?" */
    enum ax_status st;
};

static const char *word(const struct reader *r, const char *column) {
    return ax_tsv_cell(r->t, r->row, ax_tsv_column(r->t, column));
}

/* 0 if the cell is empty; st keeps the first failure. */
static double number(struct reader *r, const char *column) {
    double value = 0;
    bool inferred = false;
    if (r->st == AX_OK && word(r, column)[0])
        r->st = ax_tsv_number(r->t, r->row, ax_tsv_column(r->t, column), &value, &inferred);
    r->inferred |= inferred;
    return value;
}

static int count(struct reader *r, const char *column, int otherwise) {
    const double value = number(r, column);
    return value >= 1 && value <= 1e9 ? (int)value : otherwise;
}

/* True if the cell is `name`, perhaps inferred. */
static bool is(const struct reader *r, const char *column, const char *name) {
    const char *cell = word(r, column);
    const size_t len = strlen(name);
    return strncmp(cell, name, len) == 0 && (!cell[len] || strcmp(cell + len, "?") == 0);
}

static bool starts(const struct reader *r, const char *column, const char *name) {
    return strncmp(word(r, column), name, strlen(name)) == 0;
}

/* ---- what a row means ---- */

struct run {
    struct ax_arch arch;
    struct ax_scheme fp8;
    struct ax_peft_config adapter;
    struct ax_step_options step;
    struct ax_runtime_options runtime;
    struct ax_hardware hardware;
    bool flash2; /* attention is FlashAttention-2 */
    int gpus;
};

/* A published name without what says that weights were tuned. */
static enum ax_status read_model(const struct reader *r, struct run *run) {
    static const char *const endings[] = {"-Instruct", "-v0.1", "-Base"};
    char name[96];
    snprintf(name, sizeof name, "%s", word(r, "model"));
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t len = strlen(name), n = strlen(endings[i]);
        if (len > n && strcmp(name + len - n, endings[i]) == 0)
            name[len - n] = '\0';
    }
    struct ax_json_doc config;
    if (ax_shape_config(name, &config) != AX_OK)
        return ax_error(AX_ERR_CONFIG, "no shape of that name");
    const enum ax_status st = ax_arch_parse(&run->arch, ax_json_root(&config));
    ax_json_free(&config);
    return st;
}

static enum ax_status read_hardware(struct reader *r, struct run *run) {
    char name[AX_HARDWARE_NAME];
    snprintf(name, sizeof name, "%s", word(r, "hardware"));
    name[strcspn(name, "?")] = '\0';
    if (ax_plan_hardware(name, &run->hardware) != AX_OK)
        return ax_error(AX_ERR_CONFIG, "no machine of that name");
    if (run->hardware.node <= 8) /* more: a domain of several nodes */
        run->hardware.node = count(r, "nodes_gpus", 8);
    return AX_OK;
}

static enum ax_status read_mesh(struct reader *r, struct run *run) {
    struct ax_mesh_sizes *s = &run->runtime.sizes;
    *s = (struct ax_mesh_sizes){.pp = count(r, "pp", 1),
                                .dp_replicate = count(r, "dp_replicate", 1),
                                .dp_shard = count(r, "dp_shard", 1),
                                .cp = count(r, "cp", 1),
                                .tp = count(r, "tp", 1),
                                .ep = count(r, "ep", 1)};
    struct ax_mesh mesh;
    run->gpus = run->runtime.world = count(r, "gpus", 1);
    run->runtime.backend = "sheet";
    run->runtime.threads = 1;
    AX_TRY(r->st);
    return ax_mesh_create(&mesh, *s, run->gpus, 0);
}

static enum ax_status read_batch(struct reader *r, struct run *run) {
    const struct ax_mesh_sizes *s = &run->runtime.sizes;
    const int micro = count(r, "micro_batch", 0), batch = count(r, "global_batch", 0);
    const int64_t length = count(r, "seq_len", 0), ranks = (int64_t)s->dp_replicate * s->dp_shard;
    AX_TRY(r->st);
    if (micro == 0 || batch == 0 || length == 0)
        return ax_error(AX_ERR_CONFIG, "no micro-batch, batch or length");
    if (batch % (micro * ranks) != 0 || micro * length > INT32_MAX)
        return ax_error(AX_ERR_CONFIG, "the batch is no multiple of micro-batches");
    run->step.n_microbatches = (int)(batch / (micro * ranks));
    run->step.tokens = micro * length;
    run->step.n_docs = micro;
    run->step.max_len = length;
    if (strstr(word(r, "compile_or_notes"), "packed short")) { /* samples of some hundred tokens */
        run->step.max_len = length / 8;
        run->step.n_docs = 8 * (int64_t)micro;
    }
    const int virtual = count(r, "virtual_stages", 1);
    if (s->pp > 1 && virtual > 1) {
        run->step.pipeline = AX_PIPELINE_INTERLEAVED;
        run->step.virtual_stages = virtual;
    }
    return AX_OK;
}

static enum ax_status read_precision(const struct reader *r, struct run *run) {
    run->step.model.dtype = AX_BF16;
    if (is(r, "precision", "bf16"))
        return AX_OK;
    run->step.model.qat = &run->fp8;
    if (run->hardware.fp8 > 0 && is(r, "precision", "fp8-tensor"))
        return ax_fp8_recipe("tensorwise", false, &run->fp8);
    if (run->hardware.fp8 > 0 && is(r, "precision", "fp8-row"))
        return ax_fp8_recipe("rowwise", false, &run->fp8);
    return ax_error(AX_ERR_CONFIG, "no such precision here");
}

/* What the table calls the parts, separated by "+", and what stays in the host's memory of a step. Weights
 * and gradients that train do not. */
static enum ax_status read_offload(const struct reader *r, struct run *run) {
    struct ax_offload *o = &run->step.model.offload;
    const struct {
        const char *name;
        bool *part;
    } parts[] = {
        {"none", NULL},
        {"optimizer", &o->optimizer},
        {"opt-m", &o->optimizer},
        {"opt-v", &o->optimizer},
        {"master", &o->optimizer},
        {"activations", &o->activations},
        {"residual", &o->activations},
    };
    const char *at = word(r, "offload");
    while (*at && *at != '?') {
        const size_t len = strcspn(at, "+?"), n = sizeof parts / sizeof *parts;
        size_t i = 0;
        while (i < n && (strlen(parts[i].name) != len || strncmp(at, parts[i].name, len) != 0))
            i++;
        if (i == n)
            return ax_error(AX_ERR_CONFIG, "%.*s in the host's memory: not possible here", (int)len,
                            at);
        if (parts[i].part)
            *parts[i].part = true;
        at += len + (at[len] == '+');
    }
    return AX_OK;
}

static enum ax_status read_method(const struct reader *r, struct run *run) {
    const bool quantized = is(r, "method", "qlora");
    run->step.objective = &ax_objective_sft;
    run->step.max_norm = 1;
    AX_TRY(ax_optimizer_find("adamw", &run->step.optimizer, &run->step.opt));
    if (starts(r, "optimizer_states", "bf16")) {
        run->step.model.masters = AX_MASTERS_STOCHASTIC;
        run->step.opt.moments = AX_MOMENTS_BF16;
    } else if (starts(r, "optimizer_states", "8bit")) {
        AX_TRY(ax_optimizer_find("adamw_8bit", &run->step.optimizer, &run->step.opt));
    }
    if (quantized || is(r, "method", "lora")) {
        run->adapter = (struct ax_peft_config){.r = 16, .alpha = 32, .all_linear = true};
        run->step.model.adapter = &run->adapter;
        run->step.model.base_store = quantized ? AX_STORAGE_NF4 : AX_STORAGE_PLAIN;
    } else if (!is(r, "method", "pretrain") && !is(r, "method", "full")) {
        return ax_error(AX_ERR_CONFIG, "no such method here");
    }
    AX_TRY(read_offload(r, run));
    run->step.recompute = is(r, "recompute", "full") ? AX_RECOMPUTE_ON
                          : is(r, "recompute", "selective") || is(r, "recompute", "op")
                              ? AX_RECOMPUTE_SELECTIVE
                              : AX_RECOMPUTE_OFF;
    const char *stage = word(r, "zero_stage");
    run->step.model.sharding = ax_zero_stage(*stage >= '1' && *stage <= '3' ? *stage - '0' : 3);
    return AX_OK;
}

/* What programs are documented to do, by the beginning of a source's name. A row's notes may say so, too.
 * torchtitan, torchao, torchtune and fms-fsdp call PyTorch's attention; Megatron's linears move
 * activations behind products (--tp-comm-overlap), as NeMo's recipes have it. */
static const struct {
    const char *source;
    bool flash2, tp_overlap;
} programs[] = {
    {"torchtitan", true, false}, {"torchao", true, false},         {"torchtune", true, false},
    {"fms-fsdp", true, false},   {"NeMo Automodel", false, false}, {"NeMo", false, true},
    {"Megatron", false, true},   {"NVIDIA dgxc", false, true},
};

static void read_program(const struct reader *r, struct run *run) {
    const char *notes = word(r, "compile_or_notes");
    const size_t n = sizeof programs / sizeof *programs;
    size_t i = 0;
    while (i < n && !starts(r, "source", programs[i].source))
        i++;
    run->flash2 = (i < n && programs[i].flash2) || strstr(notes, "FlashAttention-2");
    run->step.model.tp_overlap = (i < n && programs[i].tp_overlap) || strstr(notes, "async TP");
}

static enum ax_status read_run(struct reader *r, struct run *run) {
    read_program(r, run);
    AX_TRY(read_model(r, run));
    AX_TRY(read_hardware(r, run));
    AX_TRY(read_mesh(r, run));
    AX_TRY(read_batch(r, run));
    AX_TRY(read_precision(r, run));
    return read_method(r, run);
}

/* ---- a prediction ---- */

/* An H100 reaches 329 TFLOP/s with FlashAttention-2 where FlashAttention-3 reaches 632 (PyTorch's issue
 * 142132): it was written for the A100, and does not use Hopper's instructions. */
#define FLASH2 (329.0 / 632)

/* With attention by FlashAttention-2, PyTorch's own kernel, if that is what the row had. */
static struct ax_rates rates_of(const struct run *run) {
    struct ax_rates r = ax_rates_of(&run->hardware);
    for (int i = 0; i < 4 && run->flash2 && ax_hardware_is_hopper(&run->hardware); i++)
        r.attention[i / 2][i % 2] *= FLASH2;
    return r;
}

static enum ax_status predict(struct reader *r, struct run *run, struct ax_plan_row *out) {
    AX_TRY(read_run(r, run));
    struct ax_rates rates = rates_of(run);
    rates.grouped = rates.bf16; /* of other programs, by Hopper's instructions */
    const struct ax_plan_time_options o = {.rates = &rates, .shorten = true};
    AX_TRY(ax_plan_time(&out->time, &o, &run->runtime, &run->arch, &run->step));
    out->predicted = out->time.tokens_per_second / run->gpus;
    out->predicted_memory = (double)out->time.arena / (1024.0 * 1024 * 1024);
    return AX_OK;
}

/* On A100, H100, H200 and RTX cards, with nothing inferred that the speed depends on. */
static bool counts(const struct reader *r) {
    static const char *const needed[] = {
        "gpus", "dp_replicate", "dp_shard",     "tp",      "cp",        "pp",
        "ep",   "micro_batch",  "global_batch", "seq_len", "precision", "tokens_per_s_per_gpu"};
    static const char *const machines[] = {"a100", "h100", "h200", "rtx"};
    bool all = true, known = false;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        all = all && !strchr(word(r, needed[i]), '?');
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        known |= starts(r, "hardware", machines[i]);
    return all && known;
}

enum ax_status ax_plan_row_predict(const struct ax_tsv *t, int row, struct ax_plan_row *out) {
    struct reader r = {.t = t, .row = row};
    struct run *run;
    *out = (struct ax_plan_row){.id = word(&r, "id"),
                                .source = word(&r, "source"),
                                .model = word(&r, "model"),
                                .hardware = word(&r, "hardware"),
                                .counts = counts(&r),
                                .published = number(&r, "tokens_per_s_per_gpu"),
                                .published_memory = number(&r, "peak_memory_gib")};
    AX_TRY(r.st);
    AX_TRY(ax_alloc(&run, 1, sizeof *run));
    const enum ax_status st = predict(&r, run, out);
    if (st != AX_OK)
        snprintf(out->left_out, sizeof out->left_out, "%s", ax_error_text());
    else if (out->published <= 0)
        snprintf(out->left_out, sizeof out->left_out, "no speed is published");
    ax_arch_free(&run->arch);
    ax_free(run);
    return r.st == AX_OK && st == AX_ERR_NOMEM ? st : r.st;
}

/* ---- a table ---- */

static enum ax_status check_columns(const struct ax_tsv *t) {
    static const char *const needed[] = {
        "id",          "source",  "model",     "method",       "hardware",  "gpus",
        "micro_batch", "seq_len", "precision", "global_batch", "recompute", "tokens_per_s_per_gpu"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (ax_tsv_column(t, needed[i]) < 0)
            return ax_error(AX_ERR_CONFIG, "%s: column %s is missing", t->path, needed[i]);
    if (t->n_rows == 0)
        return ax_error(AX_ERR_CONFIG, "%s: no rows", t->path);
    return AX_OK;
}

static enum ax_status score(const struct ax_tsv *t, struct ax_plan_row *rows) {
    AX_TRY(check_columns(t));
    for (int row = 0; row < t->n_rows; row++)
        AX_TRY(ax_plan_row_predict(t, row, &rows[row]));
    return ax_plan_score_print(rows, t->n_rows);
}

enum ax_status ax_plan_score(const char *path) {
    struct ax_tsv t;
    struct ax_plan_row *rows;
    AX_TRY(ax_tsv_read(&t, path));
    enum ax_status st = ax_alloc(&rows, (size_t)t.n_rows + 1, sizeof *rows);
    if (st == AX_OK) {
        st = score(&t, rows);
        ax_free(rows);
    }
    ax_tsv_free(&t);
    return st;
}
