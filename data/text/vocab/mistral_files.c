#include "data/text/vocab/mistral_files.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/text/json.h"
#include "data/text/vocab/vocab_tekken.h"

enum { MAX_FILE = 256 << 20 };

enum ax_status ax_mistral_tokenizer_in(const char *dir, bool bare, char **path) {
    static const char *const names[] = {
        AX_TEKKEN,
        "tokenizer.model.v7m1",
        "tokenizer.model.v7",
        "tokenizer.model.v3",
        "tokenizer.model.v2",
        "tokenizer.model.v1",
        "tokenizer.model",
    };
    const size_t n = sizeof names / sizeof *names;
    *path = NULL;
    for (size_t i = 0; i < n; i++)
        if (ax_path_has(dir, names[i]) && (i + 1 < n || bare || ax_path_has(dir, "params.json")))
            return ax_path_join(path, dir, names[i]);
    return AX_OK;
}

static enum ax_status stated_version(const char *path, char version[AX_MISTRAL_VERSION]) {
    struct ax_json_doc doc;
    const char *text;
    AX_TRY(ax_json_load(&doc, path, MAX_FILE));
    const struct ax_json v = ax_json_get(ax_json_get(ax_json_root(&doc), "config"), "version");
    const enum ax_status st = ax_json_str(v, &text);
    if (st == AX_OK)
        snprintf(version, AX_MISTRAL_VERSION, "%s", text);
    ax_json_free(&doc);
    return st;
}

enum ax_status ax_mistral_version(const char *path, char version[AX_MISTRAL_VERSION]) {
    if (ax_tekken_is(path))
        return stated_version(path, version);
    const char *dot = strrchr(path, '.');
    const bool named = dot && dot[1] == 'v';
    const size_t n = named ? strcspn(dot + 1, "m") : 0;
    snprintf(version, AX_MISTRAL_VERSION, "%.*s", n < AX_MISTRAL_VERSION ? (int)n : 0,
             named ? dot + 1 : "");
    if (!named)
        snprintf(version, AX_MISTRAL_VERSION, "v1");
    return AX_OK;
}
