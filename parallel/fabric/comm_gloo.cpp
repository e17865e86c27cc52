/* All of libaxtrain-gloo.so: Gloo behind gloo_link.h. Every function catches Gloo's exceptions. */
#include "parallel/fabric/gloo_link.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include <sys/eventfd.h>
#include <unistd.h>

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/unbound_buffer.h>

namespace tcp = gloo::transport::tcp;

namespace {
class Context;
}

struct ax_gloo_device {
    std::shared_ptr<tcp::Device> device;
};

struct ax_gloo_link {
    std::shared_ptr<Context> context;
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

/* Runs a task on a device's thread, and waits for its end. */
class OnThread : public tcp::Handler {
  public:
    OnThread(tcp::Device &device, std::function<void()> task)
        : device_(device), task_(std::move(task)), fd_(eventfd(1, EFD_CLOEXEC)) {
        if (fd_ < 0)
            throw std::system_error(errno, std::generic_category(), "eventfd");
    }

    ~OnThread() override {
        close(fd_);
    }

    void run() {
        std::future<void> end = end_->get_future();
        device_.registerDescriptor(fd_, EPOLLIN, this);
        end.get(); // throws what the task has thrown
    }

    /* Gloo's versions differ in which of these they call. */
    void handleEvents(int) {
        take_turn();
    }
    void handleEvents(tcp::Loop &, int) {
        take_turn();
    }

  private:
    void take_turn() {
        const auto end = end_; // outlives this object, which goes once it is set
        device_.unregisterDescriptor(fd_, this);
        try {
            task_();
            end->set_value();
        } catch (...) {
            end->set_exception(std::current_exception());
        }
    }

    tcp::Device &device_;
    std::function<void()> task_;
    std::shared_ptr<std::promise<void>> end_ = std::make_shared<std::promise<void>>();
    int fd_;
};

/* Gloo's own answer to events of a pair, in the version that it is built with. */
template <typename... Event>
auto answer_events(tcp::Pair &pair, int, Event &...event)
    -> decltype(pair.tcp::Pair::handleEvents(event...)) {
    pair.tcp::Pair::handleEvents(event...);
}
template <typename... Event> void answer_events(tcp::Pair &, long, Event &...) {
}

/* A pair over a socket that is connected already. Gloo's own pair accepts whoever comes first at a
 * port of its own, which it opens when it is constructed. */
class Pair : public tcp::Pair {
  public:
    /* Only on the device's thread, which therefore cannot have accepted anyone yet. */
    Pair(tcp::Context *context, tcp::Device *device, int rank, std::chrono::milliseconds timeout)
        : tcp::Pair(context, device, rank, timeout) {
        const std::lock_guard<std::mutex> lock(m_);
        if (fd_ >= 0) {
            device_->unregisterDescriptor(fd_, this);
            ::close(fd_);
            fd_ = -1;
        }
    }

    void use(int fd) {
        const std::lock_guard<std::mutex> lock(m_);
        self_ = tcp::Address::fromSockName(fd);
        peer_ = tcp::Address::fromPeerName(fd);
        device_->registerDescriptor(fd, EPOLLIN, this);
        fd_ = fd;
        changeState(CONNECTED);
    }

    void handleEvents(int events) {
        await_turn();
        answer_events(*this, 0, events);
    }
    void handleEvents(tcp::Loop &loop, int events) {
        await_turn();
        answer_events(*this, 0, loop, events);
    }

  private:
    /* While a thread sends, Gloo's answer to what arrives is none, and its loop asks again immediately, for as long as
     * sending takes: on a busy machine that was most of a rank's time. A thread that closes the pair waits for the
     * loop's next round, so this must not wait for the thread. */
    void await_turn() {
        if (m_.try_lock())
            m_.unlock();
        else
            std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
};

class Context : public tcp::Context {
  public:
    using tcp::Context::Context;

    void use(int *fds) {
        OnThread(*device_, [&] {
            for (int i = 0; i < size; i++)
                if (i != rank)
                    pairs_[i].reset(new Pair(this, device_.get(), i, getTimeout()));
        }).run();
        for (int i = 0; i < size; i++)
            if (i != rank) {
                static_cast<Pair *>(pairs_[i].get())->use(fds[i]);
                fds[i] = -1;
            }
    }

    void close_all() {
        for (auto &pair : pairs_)
            if (pair)
                pair->close();
    }
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

/* Pairs open their ports on the loopback interface, and close them immediately. */
ax_gloo_result device_open(ax_gloo_device **device, char *text) {
    return guarded(std::chrono::hours(1), text, [&] {
        auto d = std::make_unique<ax_gloo_device>();
        d->device =
            std::dynamic_pointer_cast<tcp::Device>(tcp::CreateDevice(tcp::attr("127.0.0.1")));
        *device = d.release();
    });
}

void device_close(ax_gloo_device *device) {
    char text[AX_GLOO_TEXT];
    (void)guarded(std::chrono::hours(1), text, [&] { delete device; });
}

ax_gloo_result link_open(ax_gloo_link **link, ax_gloo_device *device, int *fds, int rank, int size,
                         double timeout, char *text) {
    const std::chrono::milliseconds limit(static_cast<int64_t>(timeout * 1000));
    return guarded(limit, text, [&] {
        auto l = std::make_unique<ax_gloo_link>();
        l->timeout = limit;
        l->context = std::make_shared<Context>(device->device, rank, size);
        l->context->setTimeout(limit);
        l->context->use(fds);
        *link = l.release();
    });
}

void link_break(ax_gloo_link *link) {
    char text[AX_GLOO_TEXT];
    (void)guarded(link->timeout, text, [&] { link->context->close_all(); });
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
