/* `axtrain env`: the facts needed in a bug report. */
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "cmd/args.h"
#include "cmd/commands.h"
#include "cmd/train/env.h"

enum ax_status ax_cmd_env(int argc, char **argv) {
    bool json = false;
    const struct ax_arg args[] = {{"--json", AX_ARG_FLAG, &json, 0, 0}};
    int n;
    AX_TRY(ax_args_parse(argc, argv, 1, args, 0, 0, NULL, &n));
    json_t *facts;
    AX_TRY(ax_env_facts(&facts));
    char *text = NULL;
    size_t len;
    enum ax_status st = AX_OK;
    if (json) {
        st = ax_json_dump(facts, &text, &len);
        if (st == AX_OK)
            printf("%s\n", text);
        ax_free(text);
    } else {
        const char *key;
        json_t *value;
        json_object_foreach(facts, key, value) {
            if (json_is_integer(value))
                printf("%-16s %lld\n", key, (long long)json_integer_value(value));
            else
                printf("%-16s %s\n", key, json_string_value(value));
        }
    }
    json_decref(facts);
    return st;
}
