/* An adapter folder with golden/: logits, loss, gradients, steps and merged weights. */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/digest.h"
#include "tests/goldens/model.h"
#include "model/convert/merged.h"

#define MAX_JSON         (64u << 20)
#define MERGED_TOLERANCE 1e-6 /* of the largest weight: the file was summed in float */

static enum ax_status compare_merged(const struct ax_golden_case *c,
                                     const struct ax_safetensors *want, int i) {
    const char *name = want->entries[i].name;
    const struct ax_st_entry *base = ax_hf_find(&c->hf, name);
    struct ax_golden_tensor w = {0};
    struct ax_merged merged = {0};
    double *got = NULL;
    enum ax_status st;
    if (!base)
        return ax_error(AX_ERR_DATA, "%s: the base model has no tensor %s", want->path, name);
    AX_TRY_GOTO(golden_read_form(want, name, &w), st, done);
    AX_TRY_GOTO(ax_merged_open(&merged, &c->arch, base, c->peft, AX_F64), st, done);
    if (w.numel != base->numel)
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: %s has a different size", want->path, name), st,
                    done);
    AX_TRY_GOTO(ax_alloc(&got, (size_t)w.numel, sizeof *got), st, done);
    AX_TRY_GOTO(ax_merged_read(&merged, 0, w.numel, got), st, done);
    const struct golden_figure f = golden_of_largest(&w, got, MERGED_TOLERANCE);
    ax_golden_note(c->report, "merged weights (of the largest)", f.figure, f.tolerance, name);
done:
    ax_free(got);
    ax_merged_close(&merged);
    ax_golden_tensor_free(&w);
    return st;
}

static enum ax_status merged(const struct ax_golden_case *c) {
    char *path = NULL;
    AX_TRY(ax_golden_file(c, "merged.safetensors", &path));
    if (!path)
        return AX_OK;
    struct ax_safetensors want;
    enum ax_status st = ax_safetensors_open(&want, path);
    ax_free(path);
    AX_TRY(st);
    for (int i = 0; i < want.n && st == AX_OK; i++)
        st = compare_merged(c, &want, i);
    ax_safetensors_close(&want);
    return st;
}

static void attempt(const struct ax_golden_case *c, const char *what, enum ax_status st) {
    if (st != AX_OK)
        ax_golden_error(c->report, what);
}

static enum ax_status open_case(struct ax_golden_case *c, struct ax_peft *peft, const char *dir) {
    char *base = NULL, *path = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_peft_open(peft, dir), st, done);
    c->peft = peft;
    AX_TRY_GOTO(ax_peft_base(peft, &base), st, done);
    AX_TRY_GOTO(ax_arch_load(&c->arch, base), st, done);
    AX_TRY_GOTO(ax_hf_open(&c->hf, base), st, done);
    AX_TRY_GOTO(ax_golden_file(c, "golden.json", &path), st, done);
    if (path)
        AX_TRY_GOTO(ax_json_load(&c->golden, path, MAX_JSON), st, done);
done:
    ax_free(path);
    ax_free(base);
    return st;
}

bool ax_golden_lora(struct ax_golden_report *r, const char *dir,
                    const struct ax_golden_options *o) {
    char golden[4096];
    snprintf(golden, sizeof golden, "%s/golden", dir);
    if (!ax_peft_is_folder(dir) || !ax_path_is_dir(golden))
        return false;
    struct ax_golden_case c = {.dir = dir, .o = o, .report = r, .dtype = AX_F32};
    struct ax_peft peft = {0};
    c.dtype = strcmp(o->backend, "ref") == 0 ? AX_F64 : AX_F32;
    if (o->dtype && ax_dtype_parse(o->dtype, &c.dtype) != AX_OK) {
        ax_golden_error(r, "--dtype");
        return true;
    }
    snprintf(r->title, sizeof r->title, "%s backend=%s dtype=%s", dir, o->backend,
             ax_dtype_info(c.dtype)->name);
    if (open_case(&c, &peft, dir) != AX_OK) {
        ax_golden_error(r, "adapter");
    } else {
        attempt(&c, "forward", ax_golden_forward(&c));
        attempt(&c, "gradients",
                ax_golden_gradients(&c, "forward.safetensors", "grads.safetensors", "batch"));
        attempt(&c, "optimizer steps", ax_golden_steps(&c));
        attempt(&c, "merged weights", merged(&c));
    }
    ax_golden_flush(r);
    ax_json_free(&c.golden);
    ax_hf_close(&c.hf);
    ax_arch_free(&c.arch);
    ax_peft_close(&peft);
    return true;
}
