#include "parallel/fabric/mesh_sizes.h"

#include <stdbool.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZE = 1024 };

static const struct {
    const char *name;
    size_t offset;
    enum ax_role role;
} known[] = {
    {"pp", offsetof(struct ax_mesh_sizes, pp), AX_ROLE_PP},
    {"dp_replicate", offsetof(struct ax_mesh_sizes, dp_replicate), AX_ROLE_DP_REPLICATE},
    {"dp_shard", offsetof(struct ax_mesh_sizes, dp_shard), AX_ROLE_DP_SHARD},
    {"cp", offsetof(struct ax_mesh_sizes, cp), AX_ROLE_CP},
    {"tp", offsetof(struct ax_mesh_sizes, tp), AX_ROLE_TP},
    {"ep", offsetof(struct ax_mesh_sizes, ep), AX_ROLE_EP},
};
enum { N_KNOWN = sizeof known / sizeof *known };

static enum ax_status parse_one(struct ax_mesh_sizes *s, const char *command, const char *text,
                                size_t n) {
    const char *equals = memchr(text, '=', n);
    const size_t len = equals ? (size_t)(equals - text) : n;
    for (int i = 0; equals && i < N_KNOWN; i++) {
        if (strlen(known[i].name) != len || strncmp(text, known[i].name, len) != 0)
            continue;
        char *end;
        const long size = strtol(equals + 1, &end, 10);
        if (end != text + n || end == equals + 1 || size < 1 || size > MAX_SIZE)
            return ax_error(AX_ERR_CONFIG, "%s: %.*s: expected a size from 1 to %d", command,
                            (int)n, text, MAX_SIZE);
        *(int *)((char *)s + known[i].offset) = (int)size;
        return AX_OK;
    }
    return ax_error(AX_ERR_CONFIG,
                    "%s: \"%.*s\" is not a mesh size. Sizes are pp=, dp_replicate=, "
                    "dp_shard=, cp=, tp= and ep=.",
                    command, (int)n, text);
}

/* Is the size of a word, which ends at `end`, also in a word after it? */
static bool is_given_again(const char *word, const char *end) {
    const size_t n = strcspn(word, "=") + 1;
    for (; *end == ','; end += 1 + strcspn(end + 1, ","))
        if (strncmp(end + 1, word, n) == 0)
            return true;
    return false;
}

enum ax_status ax_mesh_sizes_parse(struct ax_mesh_sizes *s, const char *command, const char *text) {
    for (const char *end;; text = end + 1) {
        end = text + strcspn(text, ",");
        AX_TRY(parse_one(s, command, text, (size_t)(end - text)));
        if (is_given_again(text, end))
            return ax_error(AX_ERR_CONFIG, "%s: %.*s: this size is given twice", command,
                            (int)(end - text), text);
        if (*end == '\0')
            return AX_OK;
    }
}

enum ax_status ax_mesh_sizes_world(const struct ax_mesh_sizes *s, const char *command, int *world) {
    const int64_t n = (int64_t)s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
    if (n > INT_MAX)
        return ax_error(
            AX_ERR_CONFIG,
            "%s: these sizes are %lld ranks, but there are at most %d: give smaller ones", command,
            (long long)n, INT_MAX);
    *world = (int)n;
    return AX_OK;
}

/* Those roles with more than one rank, each with its number. */
static const char *name_roles(char *buf, size_t size, const struct ax_mesh *mesh,
                              const int *numbers, const char *between) {
    size_t n = 0;
    buf[0] = '\0';
    for (int i = 0; i < N_KNOWN && n < size; i++)
        if (mesh->size[known[i].role] > 1)
            n += (size_t)snprintf(buf + n, size - n, "%s%s%d", n > 0 ? between : "", known[i].name,
                                  numbers[known[i].role]);
    return buf;
}

const char *ax_mesh_sizes_name(char *buf, size_t size, const struct ax_mesh *mesh) {
    return name_roles(buf, size, mesh, mesh->size, "-");
}

const char *ax_mesh_rank_name(char *buf, size_t size, const struct ax_mesh *mesh) {
    return name_roles(buf, size, mesh, mesh->coord, " ");
}
