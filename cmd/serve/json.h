/* JSON that may run out of memory: lists and objects of answers, built without a check at each step. */
#ifndef AX_CMD_SERVE_JSON_H
#define AX_CMD_SERVE_JSON_H

#include <jansson.h>
#include <string.h>

#include "base/mem.h"

/* A list or an object that lacks something is none: NULL, and so is what it is packed into. v is consumed. */
static inline void ax_json_append(json_t **list, json_t *v) {
    if (json_array_append_new(*list, v) == 0)
        return;
    json_decref(*list);
    *list = NULL;
}

static inline void ax_json_set_text(json_t **object, const struct ax_buf *key, json_t *v) {
    if (json_object_setn_new(*object, key->data, key->len, v) == 0)
        return;
    json_decref(*object);
    *object = NULL;
}

static inline void ax_json_set(json_t **object, const char *key, json_t *v) {
    ax_json_set_text(object, &(struct ax_buf){.data = (char *)(uintptr_t)key, .len = strlen(key)},
                     v);
}

#endif
