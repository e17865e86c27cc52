/* Repositories of a Hugging Face hub, kept in the cache that its own tools use:
 *
 *     CACHE/models--ORG--NAME/            datasets--ORG--NAME for data sets
 *         refs/REVISION                   the commit of a branch or tag
 *         blobs/ID                        a file's bytes, under its git or SHA-256 name
 *         snapshots/COMMIT/PATH           links to blobs
 *         trees/COMMIT.axtrain.json       all files that the repository has at that commit
 *     CACHE/.locks/models--ORG--NAME/ID.lock
 *
 * What the cache has is used as it is: the network is asked only for what is missing, or when the
 * caller wants news (`axtrain fetch`).
 *
 * Read on: env.c (environment), name.c (ids, revisions, paths), cache.c (the layout),
 * list.c (lists of files), remote.c (questions to the hub), blob.c (one file),
 * pull.c (many at once), model.c (which files of a model). */
#ifndef AX_CKPT_HUB_HUB_H
#define AX_CKPT_HUB_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

#define AX_HUB_ENDPOINT "https://huggingface.co" /* unless HF_ENDPOINT says otherwise */
#define AX_HUB_PATH_MAX 1024                     /* bytes of a file's path in a repository */

struct ax_hub {
    char *endpoint; /* without a slash at its end */
    char *cache;
    char *token;          /* NULL: none */
    bool offline;         /* never ask the network */
    bool refresh;         /* ask which commit a revision is now, even if the cache knows one */
    bool quiet;           /* no progress */
    int workers;          /* files at once */
    double retry_seconds; /* before the second try; twice that before the third, and so on */
};

/* From HF_ENDPOINT, HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME, HF_TOKEN, HF_TOKEN_PATH,
 * HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE. */
enum ax_status ax_hub_open(struct ax_hub *h);
void ax_hub_close(struct ax_hub *h); /* safe on a zeroed one */
/* The cache folder alone. Free with ax_free. */
enum ax_status ax_hub_cache_folder(char **out);

/* ---- names ---- */

enum ax_hub_kind { AX_HUB_MODEL, AX_HUB_DATASET };

struct ax_hub_repo {
    enum ax_hub_kind kind;
    const char *id;       /* "org/name", or the "name" of the hub's first models */
    const char *revision; /* branch, tag or commit; NULL = main */
};

bool ax_hub_is_id(const char *id);
bool ax_hub_is_revision(const char *revision);
const char *ax_hub_revision(const struct ax_hub_repo *r); /* never NULL */
/* Is this path of a repository's file one that stays below the snapshot's folder? */
bool ax_hub_is_path(const char *path);

/* ---- lists of files ---- */

struct ax_hub_file {
    char *path;
    uint64_t size;
    char blob[65]; /* git's SHA-1 of the content, or the SHA-256 of a large file */
};

struct ax_hub_list {
    struct ax_hub_file *files;
    size_t n;
};
/* Adds the files of one page of the hub's answer. AX_ERR_DATA for paths that lead elsewhere, for
 * names that are no checksums, for a path that comes twice. */
enum ax_status ax_hub_list_parse(struct ax_hub_list *l, const char *name, const char *text,
                                 size_t len);
void ax_hub_list_free(struct ax_hub_list *l);
const struct ax_hub_file *ax_hub_list_find(const struct ax_hub_list *l, const char *path);

/* ---- the cache ---- */

/* A commit of a repository in the cache. */
struct ax_hub_snapshot {
    char *repo_folder, *commit, *folder; /* commit NULL: the cache knows none */
    struct ax_hub_list list;
    bool listed; /* the list is known, and holds all files that the repository has */
};
/* What the cache knows; never asks the network. */
enum ax_status ax_hub_snapshot_find(struct ax_hub_snapshot *s, const char *cache,
                                    const struct ax_hub_repo *r);
void ax_hub_snapshot_free(struct ax_hub_snapshot *s);
bool ax_hub_snapshot_has(const struct ax_hub_snapshot *s, const char *path);
/* refs/REVISION and the list, for the next time. */
enum ax_status ax_hub_snapshot_keep(const struct ax_hub_snapshot *s, const struct ax_hub_repo *r);

/* ---- the network ---- */

struct ax_hub_report {
    size_t files, present;      /* files wanted; of these here before */
    uint64_t bytes, downloaded; /* of all wanted files; of what came over the network */
    bool asked;                 /* the network was asked at all */
    char commit[72];
};

/* Asks which commit the revision is, and for the list of its files. */
enum ax_status ax_hub_ask(struct ax_hub_snapshot *s, const struct ax_hub *h,
                          const struct ax_hub_repo *r);
/* Brings the named files of s->list that are not there into the snapshot. The report is added to.
 * Every file is whole and has the right checksum, or is not there. */
enum ax_status ax_hub_pull(struct ax_hub_snapshot *s, const struct ax_hub *h,
                           const struct ax_hub_repo *r, const char *const *paths, size_t n,
                           struct ax_hub_report *report);
/* AX_ERR_CONFIG: why the network may not be asked for what is missing. */
enum ax_status ax_hub_refuse_offline(const struct ax_hub_repo *r, const char *what);

/* ---- models ---- */

enum ax_hub_part { AX_HUB_WHOLE, AX_HUB_TOKENIZER };

/* *folder = a snapshot that has what axtrain reads of a model: config, tokenizer, templates,
 * safetensors weights; or (AX_HUB_TOKENIZER) all but the weights. Free with ax_free. */
enum ax_status ax_hub_model(char **folder, const struct ax_hub *h, const char *id,
                            const char *revision, enum ax_hub_part part,
                            struct ax_hub_report *report);

#endif
