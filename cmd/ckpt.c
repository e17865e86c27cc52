/* `axtrain ckpt`: what a training checkpoint contains, whether it is intact, and one file for the
 * state of all ranks. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/io_path.h"
#include "base/lock.h"
#include "base/text/json.h"
#include "ckpt/state/checkpoint.h"
#include "cmd/args/args.h"
#include "cmd/commands.h"

/* ---- which one ---- */

/* A checkpoint's folder, or the newest of a run's. */
static enum ax_status find(char **dir, const char *path) {
    struct ax_checkpoint_list l;
    char *manifest;
    AX_TRY(ax_path_join(&manifest, path, AX_CHECKPOINT_MANIFEST));
    const bool is_one = ax_path_exists(manifest);
    ax_free(manifest);
    if (is_one)
        return ax_strdup(dir, path);
    AX_TRY(ax_checkpoint_warn_incomplete(path));
    AX_TRY(ax_checkpoint_list(&l, path));
    const int64_t newest = l.n > 0 ? l.steps[l.n - 1] : -1;
    ax_checkpoint_list_free(&l);
    if (newest >= 0)
        return ax_checkpoint_path(dir, path, newest);
    return ax_error(AX_ERR_CONFIG, "ckpt: %s is not a checkpoint, nor a folder that has one", path);
}

static enum ax_status open(struct ax_checkpoint *c, const char *path) {
    char *dir;
    AX_TRY(find(&dir, path));
    const enum ax_status st = ax_checkpoint_open(c, dir);
    ax_free(dir);
    return st;
}

/* ---- show ---- */

/* What all shards of a slot have. */
struct slot {
    const struct ax_state_part *of;
    int64_t elements;
    uint64_t bytes;
};
enum { MAX_SLOTS = 64 };

static int sum_slots(const struct ax_checkpoint *c, struct slot slots[MAX_SLOTS]) {
    int n = 0;
    for (size_t i = 0; i < c->n_shards; i++) {
        const struct ax_state_part *p = &c->shards[i].part;
        int k = 0;
        while (k < n && (strcmp(slots[k].of->slot, p->slot) != 0 || slots[k].of->dtype != p->dtype))
            k++;
        if (k == MAX_SLOTS)
            continue;
        n += k == n;
        slots[k].of = p;
        slots[k].elements += p->n;
        slots[k].bytes += (uint64_t)p->n * ax_dtype_size(p->dtype);
    }
    return n;
}

static uint64_t all_bytes(const struct ax_checkpoint *c) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->files.n; i++)
        bytes += c->files.files[i].sums.bytes;
    return bytes;
}

static int64_t ranks_of(const struct ax_checkpoint *c) {
    const json_t *mesh = json_object_get(c->manifest.root, "mesh");
    return json_integer_value(json_object_get(mesh, "world"));
}

/* "dp_shard 2 · tp 2", or "1 rank". */
static void print_mesh(const struct ax_checkpoint *c) {
    static const char *const roles[] = {"pp", "dp_replicate", "dp_shard", "cp", "tp", "ep"};
    const json_t *mesh = json_object_get(c->manifest.root, "mesh");
    const int64_t world = ranks_of(c);
    printf("written by  %lld rank%s", (long long)world, world == 1 ? "" : "s");
    const char *between = ": ";
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const int64_t n = json_integer_value(json_object_get(mesh, roles[i]));
        if (n > 1) {
            printf("%s%s %lld", between, roles[i], (long long)n);
            between = ", ";
        }
    }
    printf("; any mesh resumes from it\n");
}

static void print_run(const struct ax_checkpoint *c) {
    const json_t *total = json_object_get(c->run, "total_steps");
    const json_t *epoch = json_object_get(c->run, "epoch"), *loss = json_object_get(c->run, "loss");
    const json_t *dtype = json_object_get(c->run, "compute_dtype");
    printf("step        %lld", (long long)c->step);
    if (total)
        printf(" of %lld", (long long)json_integer_value(total));
    if (epoch)
        printf(", epoch %.4g", json_number_value(epoch));
    if (loss)
        printf(", loss %.4f", json_number_value(loss));
    printf("\n");
    if (json_string_value(dtype))
        printf("compute     %s\n", json_string_value(dtype));
}

static enum ax_status show(const struct ax_checkpoint *c, const char *out) {
    (void)out;
    char size[32], count[32];
    printf("%s\n", c->dir);
    print_run(c);
    print_mesh(c);
    printf("files       %zu, %s\n", c->files.n,
           ax_format_bytes(size, sizeof size, (double)all_bytes(c)));
    if (c->n_shards == 0)
        printf("state       none (save_only_model): training cannot resume from it\n");
    struct slot slots[MAX_SLOTS] = {0};
    const int n = sum_slots(c, slots);
    for (int i = 0; i < n; i++)
        printf("%-11s %-18s %-9s %10s numbers %10s\n", i == 0 ? "state" : "", slots[i].of->slot,
               ax_dtype_info(slots[i].of->dtype)->name,
               ax_format_count(count, sizeof count, (double)slots[i].elements),
               ax_format_bytes(size, sizeof size, (double)slots[i].bytes));
    return AX_OK;
}

/* ---- verify ---- */

static enum ax_status verify(const struct ax_checkpoint *c, const char *out) {
    (void)out;
    char size[32];
    AX_TRY(ax_checkpoint_verify(c, NULL));
    printf("%s: intact: %zu files, %s\n", c->dir, c->files.n,
           ax_format_bytes(size, sizeof size, (double)all_bytes(c)));
    return AX_OK;
}

/* ---- reshard ---- */

/* The folder that holds `dir`, also where that is a link or ".". */
static enum ax_status parent_of(char **parent, const char *dir) {
    char real[PATH_MAX];
    size_t n;
    const char *path = realpath(dir, real) ? real : dir, *last = ax_path_last(path, &n);
    return last == path ? ax_strdup(parent, ".") : ax_strndup(parent, path, (size_t)(last - path));
}

/* A run that works in the folder would not expect it. */
static enum ax_status write_in(const char *folder, const struct ax_checkpoint *c, const char *to) {
    struct ax_claim lock;
    enum ax_status st = ax_checkpoint_claim(&lock, folder);
    if (st != AX_OK)
        return ax_error_prefix(st, "ckpt reshard");
    st = ax_checkpoint_reshard(c, to);
    ax_claim_release(&lock);
    return st;
}

static enum ax_status reshard(const struct ax_checkpoint *c, const char *out) {
    const char *to = out ? out : c->dir;
    char *folder;
    if (out && ax_path_exists(out))
        return ax_error(AX_ERR_CONFIG, "ckpt: %s is there already; choose another folder", out);
    AX_TRY(parent_of(&folder, to));
    const enum ax_status st = write_in(folder, c, to);
    ax_free(folder);
    AX_TRY(st);
    printf("%s: one file of state, of %lld rank%s before\n", to, (long long)ranks_of(c),
           ranks_of(c) == 1 ? "" : "s");
    return AX_OK;
}

static const struct {
    const char *name;
    bool writes;
    enum ax_status (*run)(const struct ax_checkpoint *c, const char *out);
} verbs[] = {{"show", false, show}, {"verify", false, verify}, {"reshard", true, reshard}};

enum ax_status ax_cmd_ckpt(int argc, char **argv) {
    const char *words[2], *out = NULL;
    const struct ax_arg args[] = {{"-o", AX_ARG_STRING, &out, 0, 0}};
    struct ax_checkpoint c;
    int n;
    AX_TRY(ax_args_parse(argc, argv, 1, args, 2, 2, words, &n));
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(words[0], verbs[i].name) != 0)
            continue;
        if (out && !verbs[i].writes)
            return ax_error(AX_ERR_CONFIG, "ckpt %s: -o is of reshard", words[0]);
        AX_TRY(open(&c, words[1]));
        const enum ax_status st = verbs[i].run(&c, out);
        ax_checkpoint_close(&c);
        return st;
    }
    return ax_error(AX_ERR_CONFIG, "ckpt: expected show, verify or reshard, got \"%s\"", words[0]);
}
