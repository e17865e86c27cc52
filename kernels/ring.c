#include "kernels/ring.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

struct slot {
    char AX_DEVICE *device;
    char *host;
    int pieces;      /* that the host fills */
    bool sealed;     /* only the device needs it, … */
    uint64_t ticket; /* … until then */
};

struct ax_ring {
    struct ax_queue *q;
    pthread_mutex_t mutex;
    pthread_cond_t sealed;
    struct slot slots[AX_RING_SLOTS];
    struct slot *open; /* takes what is written; NULL: none */
    size_t used;       /* bytes of it */
};

enum ax_status ax_ring_create(struct ax_ring **out, struct ax_queue *q, void *memory) {
    struct ax_ring *r;
    AX_TRY(ax_alloc(&r, 1, sizeof *r));
    r->q = q;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->sealed, NULL);
    for (size_t i = 0; i < AX_RING_SLOTS; i++) {
        char AX_DEVICE *device = (char AX_DEVICE *)memory + i * AX_QUEUE_STAGE;
        r->slots[i] = (struct slot){
            .device = device, .host = q->ops->device->host(q, device), .sealed = true};
    }
    *out = r;
    return AX_OK;
}

void ax_ring_free(struct ax_ring *r) {
    if (!r)
        return;
    pthread_cond_destroy(&r->sealed);
    pthread_mutex_destroy(&r->mutex);
    ax_free(r);
}

/* ---- slots: call with the lock held ---- */

/* After a copy from the slot, or when it is closed. */
static void seal(struct ax_ring *r, struct slot *s) {
    if (s == r->open || s->pieces > 0)
        return;
    s->ticket = r->q->ops->device->signal(r->q);
    s->sealed = true;
    pthread_cond_broadcast(&r->sealed);
}

static void close_slot(struct ax_ring *r) {
    struct slot *s = r->open;
    r->open = NULL;
    if (s)
        seal(r, s);
}

/* Opens the slot whose copies are the oldest, as soon as they are done; or another thread may have
 * opened one. */
static enum ax_status open_slot(struct ax_ring *r) {
    const struct ax_device *device = r->q->ops->device;
    struct slot *oldest = NULL;
    bool slept;
    for (size_t i = 0; i < AX_RING_SLOTS; i++)
        if (r->slots[i].sealed && (!oldest || r->slots[i].ticket < oldest->ticket))
            oldest = &r->slots[i];
    if (!oldest) { /* other threads fill all of them */
        pthread_cond_wait(&r->sealed, &r->mutex);
        return AX_OK;
    }
    AX_TRY(device->wait(r->q, oldest->ticket, &slept));
    r->q->counters.waits += slept;
    oldest->sealed = false;
    r->open = oldest;
    r->used = 0;
    return AX_OK;
}

/* Makes the open slot have room for `bytes`. */
static enum ax_status make_room(struct ax_ring *r, size_t bytes) {
    while (!r->open || r->used + bytes > AX_QUEUE_STAGE) {
        close_slot(r);
        AX_TRY(open_slot(r));
    }
    return AX_OK;
}

/* ---- writes ---- */

static enum ax_status write_part(struct ax_ring *r, char *device, const char *host, size_t left,
                                 size_t *written) {
    AX_TRY(make_room(r, 1));
    const size_t room = AX_QUEUE_STAGE - r->used, n = left < room ? left : room;
    memcpy(r->open->host + r->used, host, n);
    AX_TRY(r->q->ops->device->copy(r->q, device, r->open->device + r->used, n));
    r->used += ax_arena_round(n);
    *written = n;
    return AX_OK;
}

enum ax_status ax_ring_write(struct ax_ring *r, void *device, const void *host, size_t bytes) {
    enum ax_status st = AX_OK;
    pthread_mutex_lock(&r->mutex);
    for (size_t at = 0, n; at < bytes && st == AX_OK; at += n) {
        n = 0;
        st = write_part(r, (char AX_DEVICE *)device + at, (const char *)host + at, bytes - at, &n);
    }
    pthread_mutex_unlock(&r->mutex);
    return st;
}

/* ---- pieces ---- */

enum ax_status ax_ring_begin_write(struct ax_ring *r, int n, struct ax_queue_piece *pieces) {
    char *at = NULL;
    size_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += ax_arena_round(pieces[i].bytes);
    if (bytes > AX_QUEUE_STAGE)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "device: a row of a weight takes %zu bytes, and at most %zu can be written "
                        "together",
                        bytes, AX_QUEUE_STAGE);
    if (bytes == 0)
        return AX_OK;
    pthread_mutex_lock(&r->mutex);
    const enum ax_status st = make_room(r, bytes);
    if (st == AX_OK) {
        at = r->open->host + r->used;
        r->open->pieces++;
        r->used += bytes;
    }
    pthread_mutex_unlock(&r->mutex);
    AX_TRY(st);
    memset(at, 0, bytes);
    for (int i = 0; i < n; i++) {
        pieces[i].host = pieces[i].bytes > 0 ? at : NULL;
        at += ax_arena_round(pieces[i].bytes);
    }
    return AX_OK;
}

static struct slot *slot_of(struct ax_ring *r, int n, const struct ax_queue_piece *pieces) {
    const char *host = NULL;
    for (int i = 0; i < n && !host; i++)
        host = pieces[i].host;
    return host ? &r->slots[(size_t)(host - r->slots[0].host) / AX_QUEUE_STAGE] : NULL;
}

enum ax_status ax_ring_end_write(struct ax_ring *r, int n, const struct ax_queue_piece *pieces) {
    struct slot *s = slot_of(r, n, pieces);
    enum ax_status st = AX_OK;
    if (!s)
        return AX_OK;
    for (int i = 0; i < n && st == AX_OK; i++)
        if (pieces[i].host)
            st = r->q->ops->device->copy(r->q, pieces[i].device,
                                         s->device + ((char *)pieces[i].host - s->host),
                                         pieces[i].bytes);
    pthread_mutex_lock(&r->mutex);
    s->pieces--;
    seal(r, s);
    pthread_mutex_unlock(&r->mutex);
    return st;
}
