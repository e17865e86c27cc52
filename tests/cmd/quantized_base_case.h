/* A quantized folder made of the golden llama, as a model and as the base of an adapter. Include it after cmocka.h. */
#ifndef AX_TESTS_CMD_QUANTIZED_BASE_CASE_H
#define AX_TESTS_CMD_QUANTIZED_BASE_CASE_H

#include "base/mem.h"
#include "tests/bytes.h"
#include "tests/cmd/chats_case.h"
#include "tests/cmd/program_case.h"
#include "tests/golden_files.h"

static const char lora[] =
    "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\nmax_steps: 3\n"
    "merge_lora: true\nfloat32: true\nsave_only_model: true\n";

/* `quantization` is the text of quantization_config; NULL: none. */
static inline void put_config(const char *to, const char *quantization) {
    struct ax_json_doc doc;
    char path[600], *text;
    size_t len;
    snprintf(path, sizeof path, "%s/config.json", golden_llama());
    assert_int_equal(ax_json_load(&doc, path, 1 << 20), AX_OK);
    if (quantization)
        json_object_set_new(doc.root, "quantization_config", json_loads(quantization, 0, NULL));
    assert_int_equal(ax_json_dump(doc.root, &text, &len), AX_OK);
    snprintf(path, sizeof path, "%s/config.json", to);
    assert_int_equal(ax_write_file_atomic(path, text, len), AX_OK);
    ax_free(text);
    ax_json_free(&doc);
}

static inline void put_tokenizer(const char *to) {
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json"};
    char path[600], *text;
    size_t len;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", golden_llama(), files[i]);
        assert_int_equal(ax_read_file(path, 1 << 24, &text, &len), AX_OK);
        snprintf(path, sizeof path, "%s/%s", to, files[i]);
        assert_int_equal(ax_write_file_atomic(path, text, len), AX_OK);
        ax_free(text);
    }
}

/* Writes SCRATCH/NAME. */
static inline void put_folder(const char *name, const char *quantization, int n,
                              const struct ax_st_output *t) {
    char to[200], path[300];
    snprintf(to, sizeof to, "%s", in_scratch(name));
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    assert_int_equal(ax_mkdir_parents(to), AX_OK);
    assert_int_equal(ax_safetensors_write(path, n, t), AX_OK);
    put_config(to, quantization);
    put_tokenizer(to);
}

/* The mean NLL of the chats' rows by SCRATCH/MODEL. */
static inline double evaluate(const char *model, const char *more) {
    char said[8192];
    if (run(said, sizeof said, "eval --model %s --config %s --dtype float32 --json %s",
            in_scratch(model), in_scratch("c.yaml"), more) != 0)
        fail_msg("%s", said);
    const char *json = strchr(said, '{');
    json_t *v = json ? json_loads(json, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const double nll = json_number_value(json_object_get(v, "mean_nll"));
    json_decref(v);
    if (!(nll > 0))
        fail_msg("%s", said);
    return nll;
}

/* base_model=… in the scratch folder. */
static inline const char *base(const char *name) {
    static char text[2][200];
    static int next;
    char *to = text[next++ % 2];
    snprintf(to, sizeof text[0], "base_model=%s/%s", scratch, name);
    return to;
}

#endif
