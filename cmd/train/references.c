/* Where the log-probs of a reference are kept, and what identifies the model that gave them. */
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/text/json.h"
#include "cmd/train/setup.h"
#include "kernels/cpu/isa.h"

/* Adds a file as [real path, size, seconds, nanoseconds of its last change], as the folders of GGUF
 * files are identified (base_model.c). A file that is not there adds nothing. */
static enum ax_status add_file(json_t *list, const char *path) {
    char real[PATH_MAX];
    struct stat info;
    if (!realpath(path, real) || stat(real, &info) != 0)
        return AX_OK;
    json_t *facts = json_pack("[o I I I]", ax_json_repaired(real), (json_int_t)info.st_size,
                              (json_int_t)info.st_mtim.tv_sec, (json_int_t)info.st_mtim.tv_nsec);
    return json_array_append_new(list, facts) == 0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for what identifies the model");
}

static enum ax_status add_in(json_t *list, const char *folder, const char *name) {
    char *path;
    AX_TRY(ax_path_join(&path, folder, name));
    const enum ax_status st = add_file(list, path);
    ax_free(path);
    return st;
}

/* The weights, the configuration, and the adapter that training goes on from. */
static enum ax_status add_files(const struct ax_train_setup *s, json_t *list) {
    const char *config = s->config_name;
    for (int i = 0; i < s->hf.n_files; i++)
        AX_TRY(add_file(list, s->hf.files[i].path));
    AX_TRY(add_in(list, s->base, AX_HF_GGUF));
    AX_TRY(add_in(list, s->base, "config.json"));
    if (config) {
        AX_TRY(add_file(list, config));
        AX_TRY(add_in(list, config, "config.json"));
    }
    if (!s->start.dir)
        return AX_OK;
    AX_TRY(add_in(list, s->start.dir, AX_PEFT_CONFIG));
    return add_in(list, s->start.dir, AX_PEFT_WEIGHTS);
}

/* Everything in memory that says how the files become a model; the seed, for what is drawn. */
static enum ax_status describe(const struct ax_train_setup *s, json_t *files, json_t **out) {
    const struct ax_peft_config *a = s->adapter;
    json_t *adapter = NULL;
    if (a)
        AX_TRY(ax_peft_config_json(a, &adapter));
    *out = json_pack("{sO sb ss? ss? sO so? s[ii] s[sb] sb sI s[ss] s[s?Ibb]}", "files", files,
                     "drawn", s->hf.dir == NULL, "base_model_config", s->config_name, "revision",
                     s->revision, "config", s->config_edits, "adapter", adapter, "start",
                     a ? (int)a->start : 0, a ? a->iterations : 0, "store",
                     ax_storage_name(s->base_store), s->store_experts, "new_rows_mean",
                     s->arch.new_rows_mean, "seed", (json_int_t)s->o.step.seed, "computes",
                     s->o.runtime.backend, ax_cpu_isa_name(ax_cpu_isa()), "qat", s->qat.name,
                     (json_int_t)s->qat.weight.block, s->qat.embedding, s->qat.head);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for what identifies the model");
}

enum ax_status ax_train_references_read(struct ax_train_setup *s) {
    const char *cache = s->prepared;
    if (!cache || s->planning)
        return AX_OK;
    json_t *files = json_array();
    if (!files)
        return ax_error(AX_ERR_NOMEM, "out of memory for what identifies the model");
    enum ax_status st = add_files(s, files);
    if (st == AX_OK)
        st = describe(s, files, &s->reference_model);
    json_decref(files);
    s->o.references = (struct ax_reference_store){.cache = cache, .model = s->reference_model};
    return st;
}
