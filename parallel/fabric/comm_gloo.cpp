/* All of libaxtrain-gloo.so: Gloo behind gloo_link.h. Every function catches Gloo's exceptions. */
#include "parallel/fabric/gloo_link.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

struct ax_gloo_device {
    std::shared_ptr<gloo::transport::Device> device;
};

struct ax_gloo_link {
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

class Addresses : public gloo::rendezvous::Store {
  public:
    explicit Addresses(const ax_gloo_addresses *calls) : calls_(calls) {
    }

    void set(const std::string &key, const std::vector<char> &data) override {
        char text[AX_GLOO_TEXT] = "";
        if (calls_->set(calls_->ctx, key.c_str(), data.data(), data.size(), text) != 0)
            throw std::runtime_error(text);
    }

    std::vector<char> get(const std::string &key) override {
        char text[AX_GLOO_TEXT] = "", *data;
        size_t n;
        if (calls_->get(calls_->ctx, key.c_str(), &data, &n, text) != 0)
            throw std::runtime_error(text);
        const std::unique_ptr<char, void (*)(char *)> owner(data, calls_->free_data);
        return std::vector<char>(data, data + n);
    }

    void wait(const std::vector<std::string> &) override {
    } /* get waits */
    void wait(const std::vector<std::string> &, const std::chrono::milliseconds &) override {
    }

  private:
    const ax_gloo_addresses *calls_;
};

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

ax_gloo_result device_open(ax_gloo_device **device, const char *address, char *text) {
    return guarded(std::chrono::hours(1), text, [&] {
        auto d = std::make_unique<ax_gloo_device>();
        d->device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address));
        *device = d.release();
    });
}

void device_close(ax_gloo_device *device) {
    char text[AX_GLOO_TEXT];
    (void)guarded(std::chrono::hours(1), text, [&] { delete device; });
}

ax_gloo_result link_open(ax_gloo_link **link, ax_gloo_device *device,
                         const ax_gloo_addresses *addresses, int rank, int size, double timeout,
                         char *text) {
    const std::chrono::milliseconds limit(static_cast<int64_t>(timeout * 1000));
    return guarded(limit, text, [&] {
        auto l = std::make_unique<ax_gloo_link>();
        l->timeout = limit;
        l->context = std::make_shared<gloo::rendezvous::Context>(rank, size);
        l->context->setTimeout(limit / 5); // it waits five times as long for a connection
        Addresses store(addresses);
        l->context->connectFullMesh(store, device->device);
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
        AX_VERSION, device_open, device_close, link_open,     link_break,
        link_close, link_send,   link_recv,    transfer_wait, transfer_free,
    };
    return &calls;
}
