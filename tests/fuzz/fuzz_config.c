/* A configuration: any bytes give one or an error, what loads can be shown, what is shown loads
 * again, and nothing stays allocated. After a '!', the rest is tried as an override and a key. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/config/build.h"

static void try_override(const char *arg) {
    static const char text[] =
        "base_model: m\ndatasets: [{path: a, type: alpaca}]\nflash_attention: true\n";
    char copy[128];
    snprintf(copy, sizeof copy, "%s", arg);
    char *args[] = {copy};
    struct ax_config cfg;
    if (ax_config_parse(&cfg, "o.yaml", text, strlen(text), 1, args) == AX_OK)
        ax_config_free(&cfg);
    AX_ASSERT(cfg.doc.root == NULL);
    struct ax_buf out = {0};
    if (ax_config_help(copy, &out) != AX_OK)
        AX_ASSERT(strlen(ax_error_text()) > 0);
    ax_buf_free(&out);
}

static void try_file(const char *data, size_t size) {
    struct ax_config cfg;
    if (ax_config_parse(&cfg, "f.yaml", data, size, 0, NULL) != AX_OK) {
        AX_ASSERT(strlen(ax_error_text()) > 0);
        AX_ASSERT(cfg.doc.root == NULL && cfg.notes == NULL);
        return;
    }
    struct ax_buf text = {0};
    struct ax_buf json = {0};
    AX_ASSERT(ax_config_show(&cfg, false, &text) == AX_OK);
    AX_ASSERT(ax_config_show_json(&cfg, &json) == AX_OK);
    enum ax_status st = ax_config_require(&cfg, AX_CONFIG_FOR_TRAINING);
    AX_ASSERT(st == AX_OK || st == AX_ERR_CONFIG || st == AX_ERR_UNSUPPORTED);
    ax_config_free(&cfg);
    AX_ASSERT(ax_config_parse(&cfg, "shown.yaml", text.data, text.len, 0, NULL) == AX_OK);
    ax_config_free(&cfg);
    ax_buf_free(&text);
    ax_buf_free(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t live = ax_mem_live_blocks();
    char line[128];
    if (size > 0 && size < sizeof line && data[0] == '!') {
        memcpy(line, data + 1, size - 1);
        line[size - 1] = '\0';
        try_override(line);
    } else {
        try_file((const char *)data, size);
    }
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
