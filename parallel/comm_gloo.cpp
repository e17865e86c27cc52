/* The only C++ in this program, and all of libaxtrain-gloo.so: Gloo behind gloo_link.h. Every
 * function catches Gloo's exceptions. */
#include "parallel/gloo_link.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

struct ax_gloo_link {
    std::shared_ptr<gloo::transport::Device> device;
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::chrono::milliseconds timeout;
};

struct ax_gloo_transfer {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    std::chrono::milliseconds timeout;
    bool sends;
};

namespace {

/* Runs `body`; exceptions become text. Gloo has one exception for all connection failures, so
 * elapsed time decides whether it is late. */
template <typename Body>
ax_gloo_result guarded(std::chrono::milliseconds timeout, char *text, Body body) noexcept {
    const auto begin = std::chrono::steady_clock::now();
    try {
        body();
        return AX_GLOO_DONE;
    } catch (const std::exception &e) {
        std::snprintf(text, AX_GLOO_TEXT, "%s", e.what());
    } catch (...) {
        std::snprintf(text, AX_GLOO_TEXT, "unknown exception");
    }
    return std::chrono::steady_clock::now() - begin >= timeout ? AX_GLOO_LATE : AX_GLOO_BROKEN;
}

ax_gloo_result begin(ax_gloo_link *link, int peer, uint64_t slot, void *data, size_t bytes,
                     bool sends, ax_gloo_transfer **transfer, char *text) noexcept {
    return guarded(std::chrono::hours(1), text, [&] {
        auto t = std::make_unique<ax_gloo_transfer>();
        t->buffer = link->context->createUnboundBuffer(data, bytes);
        t->timeout = link->timeout;
        t->sends = sends;
        if (sends)
            t->buffer->send(peer, slot);
        else
            t->buffer->recv(peer, slot);
        *transfer = t.release();
    });
}

ax_gloo_result link_open(ax_gloo_link **link, const char *folder, int rank, int world,
                         double timeout, char *text) {
    const std::chrono::milliseconds limit(static_cast<int64_t>(timeout * 1000));
    return guarded(limit, text, [&] {
        auto l = std::make_unique<ax_gloo_link>();
        l->timeout = limit;
        l->device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
        l->context = std::make_shared<gloo::rendezvous::Context>(rank, world);
        l->context->setTimeout(limit);
        gloo::rendezvous::FileStore store(folder);
        l->context->connectFullMesh(store, l->device);
        *link = l.release();
    });
}

void link_break(ax_gloo_link *link) {
    char text[AX_GLOO_TEXT];
    (void)guarded(link->timeout, text, [&] { link->context->closeConnections(); });
}

void link_close(ax_gloo_link *link) {
    char text[AX_GLOO_TEXT];
    (void)guarded(link->timeout, text, [&] { delete link; });
}

ax_gloo_result link_send(ax_gloo_link *link, int peer, uint64_t slot, const void *data,
                         size_t bytes, ax_gloo_transfer **transfer, char *text) {
    return begin(link, peer, slot, const_cast<void *>(data), bytes, true, transfer, text);
}

ax_gloo_result link_recv(ax_gloo_link *link, int peer, uint64_t slot, void *data, size_t bytes,
                         ax_gloo_transfer **transfer, char *text) {
    return begin(link, peer, slot, data, bytes, false, transfer, text);
}

ax_gloo_result transfer_wait(ax_gloo_transfer *transfer, char *text) {
    return guarded(transfer->timeout, text, [&] {
        if (transfer->sends)
            transfer->buffer->waitSend(transfer->timeout);
        else
            transfer->buffer->waitRecv(transfer->timeout);
    });
}

void transfer_free(ax_gloo_transfer *transfer) {
    char text[AX_GLOO_TEXT];
    (void)guarded(std::chrono::hours(1), text, [&] { delete transfer; });
}

} // namespace

__attribute__((visibility("default"))) const struct ax_gloo_calls *ax_gloo_get(void) {
    static const struct ax_gloo_calls calls = {
        AX_VERSION, link_open, link_break,    link_close,
        link_send,  link_recv, transfer_wait, transfer_free,
    };
    return &calls;
}
