/* Finds recorded runs: a family's folder, or one that contains such folders. */
#include "tests/goldens/run.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"

static const struct ax_run_family *const families[] = {
    &ax_run_family_sft,     &ax_run_family_dpo,  &ax_run_family_orpo,       &ax_run_family_cpo,
    &ax_run_family_reward,  &ax_run_family_prm,  &ax_run_family_kto,        &ax_run_family_gkd,
    &ax_run_family_distill, &ax_run_family_grpo, &ax_run_family_grpo_tools, &ax_run_family_ppo,
    &ax_run_family_opd};

/* Records that are not a case. */
static const char *const others[] = {"crosscheck", "formats", "topk"};

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* NAME of each NAME.json that may be a case, in order; owned. */
static enum ax_status list_cases(const char *dir, char ***names, size_t *n) {
    size_t cap = 0;
    enum ax_status st = AX_OK;
    DIR *d = opendir(dir);
    *names = NULL;
    *n = 0;
    if (!d)
        return ax_error(AX_ERR_CONFIG, "%s: cannot open", dir);
    for (const struct dirent *e; st == AX_OK && (e = readdir(d)) != NULL;) {
        const char *end = strrchr(e->d_name, '.');
        bool other = !end || strcmp(end, ".json") != 0 || strchr(e->d_name, '.') != end;
        for (size_t i = 0; i < sizeof others / sizeof *others && !other; i++)
            other = strncmp(e->d_name, others[i], strlen(others[i])) == 0;
        if (other)
            continue;
        if (*n == cap)
            st = ax_regrow(names, cap, 2 * cap + 8, sizeof **names);
        cap = *n == cap ? 2 * cap + 8 : cap;
        if (st == AX_OK)
            st = ax_sprintf(&(*names)[*n], "%s/%.*s", dir, (int)(end - e->d_name), e->d_name);
        *n += st == AX_OK;
    }
    closedir(d);
    if (*n > 0)
        qsort(*names, *n, sizeof **names, by_name);
    return st;
}

static void one_case(struct ax_golden_report *report, const struct ax_golden_options *o,
                     const struct ax_run_family *family, const char *root, const char *name) {
    struct ax_run r = {.family = family, .o = o, .report = report, .dtype = AX_F32};
    r.dtype = strcmp(o->backend, "ref") == 0 ? AX_F64 : AX_F32;
    enum ax_status st = AX_OK;
    AX_TRY_GOTO(o->dtype ? ax_dtype_parse(o->dtype, &r.dtype) : AX_OK, st, done);
    snprintf(report->title, sizeof report->title, "%s backend=%s dtype=%s", name, o->backend,
             ax_dtype_info(r.dtype)->name);
    AX_TRY_GOTO(ax_strdup(&r.root, root), st, done);
    if (family->repeat) {
        AX_TRY_GOTO(family->repeat(&r, name), st, done);
    } else {
        AX_TRY_GOTO(ax_run_open(&r, name), st, done);
        AX_TRY_GOTO(family->compare ? family->compare(&r) : ax_run_compare_data(&r), st, done);
        AX_TRY_GOTO(ax_run_replay(&r), st, done);
    }
done:
    if (st != AX_OK)
        ax_golden_error(report, name);
    ax_golden_flush(report);
    ax_run_tell_settings(&r);
    ax_run_close(&r);
}

/* All cases of a family's folder. */
static void one_family(struct ax_golden_report *report, const struct ax_golden_options *o,
                       const struct ax_run_family *family, const char *root, const char *dir) {
    char **names;
    size_t n;
    enum ax_status st = list_cases(dir, &names, &n);
    if (st == AX_OK && n == 0)
        st = ax_error(AX_ERR_DATA, "%s: has no recorded run", dir);
    if (st != AX_OK)
        ax_golden_error(report, dir);
    for (size_t i = 0; i < n; i++) {
        one_case(report, o, family, root, names[i]);
        ax_free(names[i]);
    }
    ax_free(names);
}

/* The folder around a family's: "a/sft" → "a", "sft" → ".". */
static void around(const char *dir, char *root, size_t size) {
    size_t n = strlen(dir);
    while (n > 0 && dir[n - 1] == '/')
        n--;
    while (n > 0 && dir[n - 1] != '/')
        n--;
    snprintf(root, size, "%.*s%s", (int)n, dir, n > 0 ? "" : "./");
}

/* By a file that no other fixtures have. */
bool ax_golden_has_runs(const char *dir) {
    char path[4352];
    snprintf(path, sizeof path, "%s/crosscheck.json", dir);
    return ax_path_exists(path);
}

/* The family whose folder it is, by its name. */
static const struct ax_run_family *family_of(const char *dir) {
    char folder[256];
    const char *end = dir + strlen(dir);
    while (end > dir && end[-1] == '/')
        end--;
    const char *name = end;
    while (name > dir && name[-1] != '/')
        name--;
    snprintf(folder, sizeof folder, "%.*s", (int)(end - name), name);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(folder, families[i]->name) == 0 && ax_golden_has_runs(dir))
            return families[i];
    return NULL;
}

/* Names the runs in the folder of a family that is not supported. */
static void tell_others(struct ax_golden_report *r, const char *dir) {
    char path[4096];
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.' && ax_golden_has_runs(path) && !family_of(path)) {
            printf("  not supported: %s\n", path);
            r->left_out++;
        }
    }
    if (d)
        closedir(d);
}

bool ax_golden_runs(struct ax_golden_report *r, const char *dir,
                    const struct ax_golden_options *o) {
    char path[4096];
    bool found = false;
    const struct ax_run_family *family = family_of(dir);
    if (family) {
        around(dir, path, sizeof path);
        one_family(r, o, family, path, dir);
        return true;
    }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, families[i]->name);
        if (!family_of(path))
            continue;
        found = true;
        one_family(r, o, families[i], dir, path);
    }
    if (found)
        tell_others(r, dir);
    return found;
}
