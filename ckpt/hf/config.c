#include "ckpt/hf/config.h"

#include "base/io.h"
#include "base/io_path.h"
#include "ckpt/hf/consolidated.h"
#include "ckpt/hf/params.h"

#define MAX_CONFIG (16u << 20)

/* The dtype is that of the weights beside the file, or what Mistral publishes. */
static enum ax_status translate(struct ax_json_doc *doc, const char *path) {
    enum ax_dtype dtype = AX_BF16;
    json_t *config;
    char *dir;
    AX_TRY(ax_path_parent(&dir, path));
    enum ax_status st = ax_hf_consolidated_dtype(dir, &dtype);
    ax_free(dir);
    AX_TRY(st);
    AX_TRY(ax_hf_params_config(ax_json_root(doc), dtype, &config));
    json_decref(doc->root);
    doc->root = config;
    return AX_OK;
}

enum ax_status ax_hf_config_read(struct ax_json_doc *doc, const char *path) {
    AX_TRY(ax_json_load(doc, path, MAX_CONFIG));
    const enum ax_status st = ax_hf_params_is(path) ? translate(doc, path) : AX_OK;
    if (st != AX_OK)
        ax_json_free(doc);
    return st;
}

enum ax_status ax_hf_config_load(struct ax_json_doc *doc, const char *dir) {
    static const char *const names[] = {"config.json", AX_HF_PARAMS};
    enum ax_status st = AX_OK;
    bool found = false;
    *doc = (struct ax_json_doc){0};
    for (size_t i = 0; i < 2 && !found && st == AX_OK; i++) {
        char *path;
        AX_TRY(ax_path_join(&path, dir, names[i]));
        found = ax_path_exists(path);
        if (found)
            st = ax_hf_config_read(doc, path);
        ax_free(path);
    }
    return st;
}
