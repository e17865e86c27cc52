#include "ckpt/hf/config.h"

#include <string.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/io_path.h"

#define MAX_CONFIG (16u << 20)

bool ax_hf_is_own_file(const char *name) {
    return strcmp(name, "params.json") == 0 ||
           (strncmp(name, "consolidated", strlen("consolidated")) == 0 &&
            (ax_path_ends_in(name, ".safetensors") || ax_path_ends_in(name, ".index.json")));
}

enum ax_status ax_hf_refuse_own_file(const char *where, const char *name) {
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: %s is a file of Mistral's own form, which is not read. Use a repository "
                    "or revision with Hugging Face's files (config.json, model.safetensors), or "
                    "convert it with transformers (convert_mistral_weights_to_hf.py).",
                    where, name);
}

enum ax_status ax_hf_refuse_own_form(const char *dir) {
    enum ax_status st = AX_OK;
    struct ax_dir d;
    ax_dir_open(&d, dir);
    for (const char *name; st == AX_OK && (name = ax_dir_next(&d)) != NULL;)
        if (ax_hf_is_own_file(name))
            st = ax_hf_refuse_own_file(dir, name);
    return ax_dir_end(&d, st);
}

enum ax_status ax_hf_config_read(struct ax_json_doc *doc, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return ax_hf_is_own_file(name) ? ax_hf_refuse_own_file(path, name)
                                   : ax_json_load(doc, path, MAX_CONFIG);
}

enum ax_status ax_hf_config_load(struct ax_json_doc *doc, const char *dir) {
    char *path;
    *doc = (struct ax_json_doc){0};
    AX_TRY(ax_path_join(&path, dir, "config.json"));
    const enum ax_status st = ax_path_exists(path) ? ax_json_load(doc, path, MAX_CONFIG) : AX_OK;
    ax_free(path);
    return st;
}
