/* What the name of a tensor says. */
#include <stdlib.h>
#include <string.h>

#include "ckpt/hf/hf.h"

int ax_hf_layer_of(const char *name) {
    static const char *const words[] = {"model.", "backbone."};
    static const char start[] = "layers.";
    char *end;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(name, words[i], strlen(words[i])) == 0)
            name += strlen(words[i]);
    if (strncmp(name, start, strlen(start)) != 0)
        return -1;
    const char *digits = name + strlen(start);
    const long layer = strtol(digits, &end, 10);
    const bool is = *digits >= '0' && *digits <= '9' && *end == '.'; /* no sign, blank or nothing */
    return is && layer < INT32_MAX ? (int)layer : -1;
}

static bool is_of_keys(const char *name) {
    static const char attention[] = ".self_attn.";
    static const char *const parts[] = {"k_proj.", "v_proj.", "k_norm.", "v_norm."};
    const char *at = strstr(name, attention);
    bool yes = false;
    for (size_t i = 0; at && i < sizeof parts / sizeof *parts; i++)
        yes = yes || strncmp(at + strlen(attention), parts[i], strlen(parts[i])) == 0;
    return yes;
}

bool ax_hf_is_unused(const struct ax_hf_unused *u, const char *name) {
    const int layer = ax_hf_layer_of(name);
    return (layer >= u->first && layer < u->end) ||
           (u->borrowing > 0 && layer >= u->borrowing && is_of_keys(name)) ||
           (u->prefix && strncmp(name, u->prefix, strlen(u->prefix)) == 0);
}
