/* Environment, token, store, Gloo: in this order. */
#include "parallel/fabric/world.h"

#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "kernels/cuda/find.h"
#include "parallel/fabric/comm_gloo.h"
#include "parallel/job/token.h"

/* Ranks may still ask rank 0's store why another one failed. */
static const double LINGER_SECONDS = 5;
/* A rank that fails before it opens the world waits so long for the others. */
static const double REPORT_SECONDS = 60;

static enum ax_status hash_binary(uint64_t *hash) {
    struct ax_mapping m;
    AX_TRY(ax_map_file(&m, "/proc/self/exe"));
    *hash = ax_hash64(m.data, m.len, 0);
    ax_unmap_file(&m);
    return AX_OK;
}

/* Without a token nothing but loopback is listened on. */
static enum ax_status find_key(struct ax_env *e, unsigned char key[AX_STORE_KEY_BYTES]) {
    char token[AX_TOKEN_MAX + 1];
    bool known;
    AX_TRY(ax_token_find(token));
    bool loopback = ax_net_is_loopback(e->host, &known);
    if (!known && *e->other_host) {
        memcpy(e->host, e->other_host, sizeof e->host);
        loopback = ax_net_is_loopback(e->host, &known);
    }
    if (known && !loopback && !*token)
        return ax_token_needed(e->host);
    ax_token_key(key, token, e->job);
    return AX_OK;
}

static enum ax_status serve(struct ax_world *w, const unsigned char key[AX_STORE_KEY_BYTES],
                            double timeout) {
    int fd, port;
    if (w->env.rank != 0 || w->env.served)
        return AX_OK;
    if (w->env.local_world < w->env.world)
        ax_net_warn_loopback(w->env.host);
    AX_TRY(ax_net_listen(w->env.host, w->env.port, w->env.ports, &fd, &port));
    return ax_store_serve(&w->server, fd, w->env.world, key, timeout);
}

static enum ax_status join(struct ax_world *w, const struct ax_world_options *o) {
    bool untold = false;
    struct ax_store_options so = {.host = w->env.host,
                                  .port = w->env.port,
                                  .ports = w->env.ports,
                                  .rank = w->env.rank,
                                  .world = w->env.world,
                                  .config = o->config,
                                  .timeout = o->timeout,
                                  .untold = &untold};
    AX_TRY(ax_gloo_available());
    AX_TRY(hash_binary(&so.binary));
    AX_TRY(find_key(&w->env, so.key));
    AX_TRY(serve(w, so.key, o->timeout));
    const enum ax_status st = ax_store_open(&w->store, &so);
    if (st == AX_ERR_CONFIG && so.rank > 0 && !w->env.served && !untold)
        ax_error_clear(); /* what ranks have unlike, the store tells all: rank 0 says it */
    if (st != AX_OK)
        return st;
    AX_TRY(ax_gloo_open(&w->gloo, w->store, w->env.local_world,
                        o->patience > 0 ? o->patience : o->timeout));
    w->fabric = &w->gloo;
    return AX_OK;
}

enum ax_status ax_world_open(struct ax_world *w, const struct ax_world_options *o) {
    memset(w, 0, sizeof *w);
    AX_TRY(ax_env_read(&w->env));
    ax_cuda_local_rank(w->env.place);
    if (w->env.world == 1)
        return AX_OK;
    const enum ax_status st = join(w, o);
    if (st != AX_OK)
        ax_world_close(w, st);
    return st;
}

void ax_world_close(struct ax_world *w, enum ax_status st) {
    struct ax_error_record own;
    ax_error_save(&own, st);
    if (w->fabric && st != AX_OK)
        w->fabric->ops->fail(w->fabric, st);
    if (w->fabric)
        w->fabric->ops->free(w->fabric);
    const bool joined = st != AX_OK && w->store;
    /* our launcher shows what the rank said that failed by itself */
    const bool told = joined && (!w->env.served ? ax_store_told(w->store) > 0
                                                : st == AX_ERR_PEER && ax_store_told(w->store) > 1);
    ax_store_close(w->store);
    ax_store_stop(w->server, LINGER_SECONDS);
    w->fabric = NULL;
    w->store = NULL;
    w->server = NULL;
    (void)ax_error_restore(&own);
    if (told)
        ax_error_clear();
    else if (joined && !w->env.served && st != AX_ERR_PEER && w->env.rank > 0)
        (void)ax_error_prefix(st, "rank %d", w->env.rank);
}

enum ax_status ax_world_report(enum ax_status st) {
    struct ax_error_record own;
    struct ax_world w;
    ax_error_save(&own, st);
    const enum ax_status opened =
        ax_world_open(&w, &(struct ax_world_options){.timeout = REPORT_SECONDS});
    (void)ax_error_restore(&own);
    if (opened == AX_OK)
        ax_world_close(&w, st);
    return st;
}
