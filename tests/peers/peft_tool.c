/* What tests/peers/check_peft.py drives: our reader and writer of PEFT folders.
 *
 *   peft_tool copy BASE SRC DST   loads adapter SRC onto the model in BASE and writes it again, its
 *                                 config from what was understood, not from the file */
#include <stdio.h>
#include <string.h>

#include "model/model.h"

#include "model/adapter/load.h"

struct job {
    struct ax_arch arch;
    struct ax_hf hf;
    struct ax_peft peft;
    const char *dst;
};

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct job *j = ctx;
    struct ax_model m;
    const struct ax_model_options o = {
        .dtype = AX_F32, .train = true, .max_positions = 8, .adapter = &j->peft.config};
    AX_TRY(ax_model_create(&m, &j->arch, rt, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(&m, &j->hf), st, done);
    AX_TRY_GOTO(ax_adapter_load(&m, &j->peft), st, done);
    if (!ax_runtime_planning(rt))
        st = ax_adapter_save(&m, j->dst, AX_F32);
done:
    ax_model_free(&m);
    return st;
}

static enum ax_status copy(struct job *j, const char *base, const char *src) {
    AX_TRY(ax_arch_load(&j->arch, base));
    AX_TRY(ax_hf_open(&j->hf, base));
    AX_TRY(ax_peft_open(&j->peft, src));
    json_decref(j->peft.config.json);
    j->peft.config.json = NULL;
    return ax_runtime_run(&(struct ax_runtime_options){.backend = "cpu"}, body, j, NULL);
}

int main(int argc, char **argv) {
    if (argc != 5 || strcmp(argv[1], "copy") != 0) {
        fprintf(stderr, "usage: peft_tool copy BASE SRC DST\n");
        return 2;
    }
    struct job j = {.dst = argv[4]};
    const enum ax_status st = copy(&j, argv[2], argv[3]);
    if (st != AX_OK)
        fprintf(stderr, "%s\n", ax_error_text());
    ax_hf_close(&j.hf);
    ax_arch_free(&j.arch);
    ax_peft_close(&j.peft);
    return st != AX_OK;
}
