/* Repositories of a Hugging Face hub, stored in the cache that HF's own tools use:
 *
 *     CACHE/models--ORG--NAME/           datasets--ORG--NAME for data sets
 *         refs/REVISION                  the commit of a branch or tag
 *         blobs/ID                       a file's bytes, under its git or SHA-256 name
 *         snapshots/COMMIT/PATH          links to blobs
 *         trees/COMMIT.axtrain.json      all files of the repository at that commit
 *     CACHE/.locks/models--ORG--NAME/ID.lock
 *     CACHE/.locks/models--ORG--NAME/axtrain-use.lock
 *
 * Cached files are used directly: the network is used only for what is missing, or when the caller
 * asks to refresh (`axtrain fetch`).
 *
 * Reading order: env.c (environment), cache.c (names, the layout, who uses what),
 * list.c (lists of files), remote.c (requests to the hub), pull.c (downloads), model.c (which
 * files of a model). */
#ifndef AX_CKPT_HUB_HUB_H
#define AX_CKPT_HUB_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

#define AX_HUB_ENDPOINT "https://huggingface.co" /* used unless HF_ENDPOINT is set */
#define AX_HUB_PATH_MAX 1024 /* longest path of a file in a repository, in bytes */

struct ax_hub {
    char *endpoint; /* without a trailing slash */
    char *cache;
    char *token;          /* NULL: none */
    bool offline;         /* never uses the network */
    bool refresh;         /* asks for a revision's current commit even if the cache has one */
    bool quiet;           /* no progress */
    int workers;          /* concurrent files */
    double retry_seconds; /* pause before the second attempt; doubles after each attempt */
};

/* Reads HF_ENDPOINT, HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME, HF_TOKEN or its former name
 * HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE. */
enum ax_status ax_hub_open(struct ax_hub *h);
void ax_hub_close(struct ax_hub *h); /* safe on a zeroed one */
/* Only the cache folder. Free with ax_free. */
enum ax_status ax_hub_cache_folder(char **out);

/* ---- names ---- */

enum ax_hub_kind { AX_HUB_MODEL, AX_HUB_DATASET };

struct ax_hub_repo {
    enum ax_hub_kind kind;
    const char *id;       /* "org/name", or "name" of the hub's first models */
    const char *revision; /* branch, tag or commit; NULL = main */
};

bool ax_hub_is_id(const char *id);
bool ax_hub_is_revision(const char *revision);
const char *ax_hub_revision(const struct ax_hub_repo *r); /* never NULL */
/* True if the path of a repository's file stays inside the snapshot's folder. */
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
/* Adds the files of one page of the hub's response. AX_ERR_DATA for paths that lead elsewhere,
 * invalid checksum names, or duplicate paths. */
enum ax_status ax_hub_list_parse(struct ax_hub_list *l, const char *name, const char *text,
                                 size_t len);
void ax_hub_list_free(struct ax_hub_list *l);
const struct ax_hub_file *ax_hub_list_find(const struct ax_hub_list *l, const char *path);

/* ---- the cache ---- */

/* A commit of a repository in the cache. */
struct ax_hub_snapshot {
    char *repo_folder, *commit, *folder; /* commit NULL: not in the cache */
    struct ax_hub_list list;
    bool listed; /* the list is known and contains all files of the repository */
};
/* Looks up a revision in the cache; never uses the network. */
enum ax_status ax_hub_snapshot_find(struct ax_hub_snapshot *s, const char *cache,
                                    const struct ax_hub_repo *r);
void ax_hub_snapshot_free(struct ax_hub_snapshot *s);
bool ax_hub_snapshot_has(const struct ax_hub_snapshot *s, const char *path);
/* Stores refs/REVISION and the list for the next time. */
enum ax_status ax_hub_snapshot_keep(const struct ax_hub_snapshot *s, const struct ax_hub_repo *r);

/* ---- use and ownership ---- */

struct ax_lock;
/* Takes the repository's use lock (shared), so that `axtrain cache clear` does not remove it. Does
 * nothing if the cache does not contain the repository or cannot be written. */
enum ax_status ax_hub_use(struct ax_lock *l, const struct ax_hub_repo *r);

/* A repository with files that this program downloaded, or one that another program has removed, of
 * which only locks are left. */
struct ax_hub_owned {
    const char *id;     /* "org/name" */
    const char *folder; /* CACHE/models--org--name */
    const char *locks;  /* CACHE/.locks/models--org--name */
    const char *use;    /* the use lock, in `locks` */
    bool dataset;
};
/* Calls visit for each repository, until one call does not return AX_OK. */
enum ax_status ax_hub_each_owned(const char *cache,
                                 enum ax_status (*visit)(void *ctx, const struct ax_hub_owned *o),
                                 void *ctx);

/* ---- the network ---- */

struct ax_hub_report {
    size_t files, present;      /* requested files; how many were already present */
    uint64_t bytes, downloaded; /* bytes of all requested files; bytes that came from the network */
    bool asked;                 /* the network was used */
    char commit[72];
};

/* Requests the revision's commit and the list of its files. */
enum ax_status ax_hub_ask(struct ax_hub_snapshot *s, const struct ax_hub *h,
                          const struct ax_hub_repo *r);
/* Downloads the named files of s->list that are missing in the snapshot. Adds to the report. Every
 * file is complete with the right checksum, or absent. */
enum ax_status ax_hub_pull(struct ax_hub_snapshot *s, const struct ax_hub *h,
                           const struct ax_hub_repo *r, const char *const *paths, size_t n,
                           struct ax_hub_report *report);
/* AX_ERR_CONFIG: says why the network may not be used to get a missing `what`; NULL: the
 * revision, or any snapshot. */
enum ax_status ax_hub_refuse_offline(const struct ax_hub_repo *r, const char *what);

/* ---- models ---- */

enum ax_hub_part { AX_HUB_WHOLE, AX_HUB_TOKENIZER };

/* *folder = a snapshot with the files that axtrain reads of a model: config, tokenizer,
 * templates and safetensors weights, or (AX_HUB_TOKENIZER) all of these but the weights. Free
 * with ax_free. */
enum ax_status ax_hub_model(char **folder, const struct ax_hub *h, const char *id,
                            const char *revision, enum ax_hub_part part,
                            struct ax_hub_report *report);

#endif
