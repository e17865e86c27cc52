/* `axtrain env`: the facts needed in a bug report. */
#include <stdio.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "base/mem.h"
#include "cmd/args/args.h"
#include "cmd/commands.h"
#include "cmd/train/env.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/find.h"
#include "optim/plan/peak.h"

static enum ax_status add_text(json_t *facts, const char *key, const char *text) {
    if (*text && json_object_set_new(facts, key, json_string(text)) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for the environment");
    return AX_OK;
}

/* "device": what `device: auto` computes on, or why not on a GPU. */
static enum ax_status add_device(json_t *facts) {
    struct ax_cuda_facts f;
    const enum ax_status st = ax_cuda_usable();
    AX_TRY(add_text(facts, "device", st == AX_OK ? "cuda" : "cpu"));
    if (st != AX_OK)
        AX_TRY(add_text(facts, "no_cuda", ax_error_text()));
    ax_error_clear();
    ax_cuda_describe(&f);
    AX_TRY(add_text(facts, "gpu", f.gpu));
    AX_TRY(add_text(facts, "cuda_driver", f.driver));
    AX_TRY(add_text(facts, "cuda_runtime", f.runtime));
    AX_TRY(add_text(facts, "cublaslt", f.cublaslt));
    AX_TRY(add_text(facts, "cudnn", f.cudnn));
    return add_text(facts, "nccl", f.nccl);
}

static enum ax_status add_wrong_tiles(json_t *facts) {
    const bool wrong = ax_cpu_has(AX_CPU_AMX) && ax_cpu_default_isa() != AX_CPU_AMX;
    return add_text(facts, "amx", wrong ? ax_cpu_wrong_tiles : "");
}

/* "products_float32": the speed of matrix products with the set in use; emulated ones take minutes. */
static enum ax_status add_peaks(json_t *facts) {
    static const enum ax_dtype dtypes[] = {AX_BF16, AX_F32};
    const struct ax_runtime_options ro = {.backend = ax_ops_cpu() ? "cpu" : "ref"};
    if (ax_cpu_isa() == AX_CPU_AMX_EMULATED)
        return AX_OK;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char key[64], text[AX_PEAK_TEXT];
        struct ax_peak peak = {.kernels = ax_ops_cpu() ? ax_cpu_isa_name(ax_cpu_isa()) : "ref"};
        AX_TRY(ax_measure_gemm_peak(&ro, dtypes[i], AX_PEAK_SECONDS, &peak));
        snprintf(key, sizeof key, "products_%s", ax_dtype_info(dtypes[i])->name);
        ax_peak_text(&peak, text, sizeof text);
        AX_TRY(add_text(facts, key, text));
    }
    return AX_OK;
}

enum ax_status ax_cmd_env(int argc, char **argv) {
    bool json = false;
    const struct ax_arg args[] = {{"--json", AX_ARG_FLAG, &json, 0, 0}};
    int n;
    AX_TRY(ax_args_parse(argc, argv, 1, args, 0, 0, NULL, &n));
    json_t *facts;
    AX_TRY(ax_env_facts(&facts));
    char *text = NULL;
    size_t len;
    enum ax_status st = add_wrong_tiles(facts);
    if (st == AX_OK)
        st = add_device(facts);
    if (st == AX_OK)
        st = add_peaks(facts);
    if (st != AX_OK) {
        json_decref(facts);
        return st;
    }
    if (json) {
        st = ax_json_dump(facts, &text, &len);
        if (st == AX_OK)
            printf("%s\n", text);
        ax_free(text);
    } else {
        const char *key;
        json_t *value;
        json_object_foreach(facts, key, value) {
            if (json_is_integer(value))
                printf("%-18s %lld\n", key, (long long)json_integer_value(value));
            else
                printf("%-18s %s\n", key, json_string_value(value));
        }
    }
    json_decref(facts);
    return st;
}
