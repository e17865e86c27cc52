/* Overrides from the command line, applied before anything is checked. */
#include <string.h>

#include "cmd/config/build.h"

/* A key that takes only strings gets the text as it is, so that "You are: x" needs no second
 * pair of quotes. */
static enum ax_status value_text(const char *path, const char *text, struct ax_buf *out) {
    const struct ax_config_key *key = ax_config_find(path);
    bool bare = strcmp(text, "null") != 0 && strcmp(text, "~") != 0 && text[0] != '\0' &&
                text[0] != '"' && text[0] != '\'';
    if (key != NULL && key->types == AX_T_STR && bare)
        return ax_config_put_json(out, text);
    return ax_buf_puts(out, text);
}

static enum ax_status override_one(struct ax_config *cfg, const char *path, const char *text) {
    struct ax_buf value = {0};
    enum ax_status st = value_text(path, text, &value);
    if (st == AX_OK)
        st = ax_yaml_set(&cfg->doc, path, value.data != NULL ? value.data : "null");
    ax_buf_free(&value);
    return st;
}

enum ax_status ax_config_override(struct ax_config *cfg, int n, char **overrides) {
    for (int i = 0; i < n; i++) {
        const char *arg = overrides[i];
        bool dashes = strncmp(arg, "--", 2) == 0;
        const char *name = arg + (dashes ? 2 : 0);
        const char *equals = strchr(name, '=');
        size_t len = equals != NULL ? (size_t)(equals - name) : strlen(name);
        if (len == 0 || len >= AX_CONFIG_PATH || (equals == NULL && !dashes))
            return ax_error(AX_ERR_CONFIG, "%s: expected key=value or --key value", arg);
        if (equals == NULL && i + 1 == n)
            return ax_error(AX_ERR_CONFIG, "%s: expected a value, as in %s true", arg, arg);
        char path[AX_CONFIG_PATH];
        memcpy(path, name, len);
        path[len] = '\0';
        for (char *c = path; dashes && *c != '\0'; c++)
            *c = *c == '-' ? '_' : *c;
        AX_TRY(override_one(cfg, path, equals != NULL ? equals + 1 : overrides[++i]));
    }
    return AX_OK;
}
