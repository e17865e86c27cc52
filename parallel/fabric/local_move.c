/* What the last rank to arrive does for all: copies and ordered sums between buffers. */
#include <string.h>

#include "parallel/fabric/local_rendezvous.h"
#include "parallel/fabric/reduce.h"

static void copy(void *to, const void *from, size_t bytes) {
    if (to != from && bytes > 0)
        memcpy(to, from, bytes);
}

/* Rank 0's result is everyone's. Its buffer may be its input: each element is read before it is
 * written. */
static void all_reduce(const struct ax_local_rendezvous *m, size_t bytes) {
    const struct ax_collective *first = &m->parts[0].what;
    for (int r = 0; r < m->n; r++)
        m->inputs[r] = m->parts[r].what.send;
    ax_reduce_ordered(first->reduction, first->dtype, first->recv, m->inputs, m->n, first->count);
    for (int r = 1; r < m->n; r++)
        copy(m->parts[r].what.recv, first->recv, bytes);
}

static void all_gather(const struct ax_local_rendezvous *m, size_t bytes) {
    for (int from = 0; from < m->n; from++)
        for (int to = 0; to < m->n; to++)
            copy((char *)m->parts[to].what.recv + (size_t)from * bytes, m->parts[from].what.send,
                 bytes);
}

static void reduce_scatter(const struct ax_local_rendezvous *m, size_t bytes) {
    for (int to = 0; to < m->n; to++) {
        const struct ax_collective *what = &m->parts[to].what;
        for (int r = 0; r < m->n; r++)
            m->inputs[r] = (const char *)m->parts[r].what.send + (size_t)to * bytes;
        ax_reduce_ordered(what->reduction, what->dtype, what->recv, m->inputs, m->n, what->count);
    }
}

static void all_to_all_v(const struct ax_local_rendezvous *m, size_t size) {
    for (int to = 0; to < m->n; to++) {
        char *recv = m->parts[to].what.recv;
        for (int from = 0; from < m->n; from++) {
            const struct ax_collective *what = &m->parts[from].what;
            const char *send = what->send;
            for (int before = 0; before < to; before++)
                send += (size_t)what->send_counts[before] * size;
            const size_t bytes = (size_t)what->send_counts[to] * size;
            copy(recv, send, bytes);
            recv += bytes;
        }
    }
}

/* The root may give its data in either buffer. */
static void broadcast(const struct ax_local_rendezvous *m, size_t bytes) {
    const struct ax_collective *root = &m->parts[m->parts[0].what.root].what;
    const void *data = root->send ? root->send : root->recv;
    for (int r = 0; r < m->n; r++)
        copy(m->parts[r].what.recv, data, bytes);
}

void ax_local_move(const struct ax_local_rendezvous *m) {
    const struct ax_collective *what = &m->parts[0].what;
    const size_t size = ax_dtype_size(what->dtype), bytes = (size_t)what->count * size;
    switch (what->kind) {
    case AX_ALL_REDUCE:
        all_reduce(m, bytes);
        break;
    case AX_ALL_GATHER:
        all_gather(m, bytes);
        break;
    case AX_REDUCE_SCATTER:
        reduce_scatter(m, bytes);
        break;
    case AX_ALL_TO_ALL_V:
        all_to_all_v(m, size);
        break;
    case AX_SEND_RECV:
        copy(m->parts[1].what.recv, what->send, bytes);
        break;
    case AX_BROADCAST:
        broadcast(m, bytes);
        break;
    case AX_COLLECTIVE_COUNT:
        break;
    }
}
