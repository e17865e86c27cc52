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

bool ax_config_is_wrapper(const json_t *config) {
    return json_is_object(json_object_get(config, "text_config")) ||
           json_is_object(json_object_get(config, "vision_config"));
}

json_t *ax_config_text(json_t *config) {
    json_t *text = json_object_get(config, "text_config");
    return json_is_object(text) ? text : config;
}

/* Leaves *doc zeroed if there is none. */
static enum ax_status load_if_any(struct ax_json_doc *doc, const char *dir, const char *name) {
    char *path;
    *doc = (struct ax_json_doc){0};
    AX_TRY(ax_path_join(&path, dir, name));
    const enum ax_status st = ax_path_exists(path) ? ax_json_load(doc, path, MAX_CONFIG) : AX_OK;
    ax_free(path);
    return st;
}

/* Model Optimizer wrote its settings to a file of their own, and since 2025 to both. Weights that it left as they are
 * have no quant_algo there. */
static enum ax_status add_optimized(json_t *root, const char *dir) {
    static const char key[] = "quantization_config";
    struct ax_json_doc file;
    if (json_is_object(json_object_get(root, key)) ||
        json_is_object(json_object_get(ax_config_text(root), key)))
        return AX_OK;
    AX_TRY(load_if_any(&file, dir, "hf_quant_config.json"));
    const json_t *settings = json_object_get(file.root, "quantization");
    enum ax_status st = AX_OK;
    if (json_is_string(json_object_get(settings, "quant_algo")) &&
        (json_object_set_new(file.root, "quant_method", json_string("modelopt")) != 0 ||
         json_object_set(root, key, file.root) != 0))
        st = ax_error(AX_ERR_NOMEM, "out of memory for config.json");
    ax_json_free(&file);
    return st;
}

enum ax_status ax_hf_config_load(struct ax_json_doc *doc, const char *dir) {
    AX_TRY(load_if_any(doc, dir, "config.json"));
    const enum ax_status st = json_is_object(doc->root) ? add_optimized(doc->root, dir) : AX_OK;
    if (st != AX_OK)
        ax_json_free(doc);
    return st;
}
