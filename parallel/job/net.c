#include "parallel/job/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

enum { MAX_LINES = 10 }; /* about refused connections */

static int resolve(const char *host, int port, int flags, struct addrinfo **list) {
    char service[16];
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    snprintf(service, sizeof service, "%d", port);
    return getaddrinfo(host, service, &hints, list);
}

static int port_in(const struct sockaddr_storage *a) {
    return ntohs(a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
                                          : ((const struct sockaddr_in *)a)->sin_port);
}

static int port_of(int fd) {
    struct sockaddr_storage a = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof a;
    return getsockname(fd, (struct sockaddr *)&a, &n) == 0 ? port_in(&a) : 0;
}

bool ax_net_is_any(const char *address) {
    struct in_addr four;
    struct in6_addr six;
    return (inet_aton(address, &four) && four.s_addr == INADDR_ANY) ||
           (inet_pton(AF_INET6, address, &six) == 1 && IN6_IS_ADDR_UNSPECIFIED(&six));
}

/* A name, too, may resolve to all interfaces. */
static bool is_any(const struct sockaddr *a) {
    const struct sockaddr_in6 *six = (const void *)a;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr == INADDR_ANY;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr);
}

/* −1 with errno. */
static int listen_at(const struct addrinfo *a) {
    if (is_any(a->ai_addr)) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0)
        return fd;
    const int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

enum ax_status ax_net_listen(const char *host, int port, int ports, int *fd, int *bound) {
    int error = 0;
    *fd = -1;
    for (int p = port; p < port + ports && *fd < 0; p++) {
        struct addrinfo *list;
        const int unknown = resolve(host, p, 0, &list);
        if (unknown)
            return ax_error(AX_ERR_CONFIG,
                            "%s: no such host (%s). Set MASTER_ADDR to the name or "
                            "address of the host of rank 0.",
                            host, gai_strerror(unknown));
        error = EADDRNOTAVAIL;
        /* ranks would find who listens there before they try the name's next address */
        for (const struct addrinfo *a = list; a && *fd < 0 && error != EADDRINUSE; a = a->ai_next) {
            *fd = listen_at(a);
            error = errno;
        }
        freeaddrinfo(list);
    }
    if (*fd >= 0) {
        *bound = port_of(*fd);
        return AX_OK;
    }
    if (error == EADDRNOTAVAIL)
        return ax_error(AX_ERR_CONFIG,
                        "%s is not the address of one interface of this host, on which rank 0 is. "
                        "Set MASTER_ADDR to one.",
                        host);
    if (port == 0)
        return ax_error(
            AX_ERR_CONFIG,
            "%s: cannot listen on a port of the system's choice: %s. Check the limit of open "
            "files (ulimit -n) and the ports in net.ipv4.ip_local_port_range.",
            host, strerror(error));
    return ax_error(
        AX_ERR_CONFIG,
        "%s: cannot listen on a port from %d to %d: %s. Set AXTRAIN_PORT (axtrain launch: "
        "--master-port) to a free one.",
        host, port, port + ports - 1, strerror(error));
}

bool ax_net_ready(int fd, bool write, double seconds) {
    struct pollfd p = {.fd = fd, .events = write ? POLLOUT : POLLIN};
    const double ms = ceil(seconds * 1000);
    int r;
    do {
        r = poll(&p, 1, ms < 0 ? 0 : ms > 1e9 ? 1000000000 : (int)ms);
    } while (r < 0 && errno == EINTR);
    return r > 0;
}

/* A socket that is connected, or begins to be (errno EINPROGRESS); −1 with errno. */
static int begin_connect(const struct addrinfo *a) {
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) {
        errno = 0;
        return fd;
    }
    if (errno == EINPROGRESS)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int connect_to(const struct addrinfo *a, double seconds) {
    const int fd = begin_connect(a);
    int error = errno;
    socklen_t n = sizeof error;
    if (fd < 0 || error == 0)
        return fd;
    error = ETIMEDOUT;
    if (ax_net_ready(fd, true, seconds))
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
    if (error == 0)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

int ax_net_dial(const char *address, int port) {
    struct addrinfo *list;
    if (resolve(address, port, AI_NUMERICHOST, &list) != 0) {
        errno = EINVAL;
        return -1;
    }
    const int fd = begin_connect(list), error = errno;
    freeaddrinfo(list);
    errno = error;
    return fd;
}

int ax_net_connect(const char *host, int port, double seconds, const char **why) {
    struct addrinfo *list;
    int fd = -1;
    const int unknown = resolve(host, port, 0, &list);
    if (unknown) {
        *why = gai_strerror(unknown);
        return -1;
    }
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = connect_to(a, seconds);
    if (fd < 0)
        *why = strerrordesc_np(errno);
    freeaddrinfo(list);
    return fd;
}

static bool loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

bool ax_net_is_loopback(const char *host, bool *known) {
    struct addrinfo *list;
    *known = resolve(host, 1, 0, &list) == 0;
    if (!*known)
        return false;
    bool all = true;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        all = all && loopback(a->ai_addr);
    freeaddrinfo(list);
    return all;
}

bool ax_net_says_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 ||
           strcmp(host, "::1") == 0;
}

void ax_net_warn_loopback(const char *host) {
    bool known;
    if (!ax_net_says_loopback(host) && ax_net_is_loopback(host, &known))
        ax_log_warn("%s is the loopback interface here, where rank 0 is (see /etc/hosts): ranks of "
                    "other hosts cannot reach it. Set MASTER_ADDR to an address that they can "
                    "reach, or to 127.0.0.1 if all ranks are on this host.",
                    host);
}

/* A port of −1 is left out. */
static void address_text(const struct sockaddr_storage *a, int port, char out[AX_NET_ADDRESS]) {
    const bool six = a->ss_family == AF_INET6;
    const void *bytes = six ? (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr
                            : (const void *)&((const struct sockaddr_in *)a)->sin_addr;
    char text[INET6_ADDRSTRLEN];
    if (!inet_ntop(a->ss_family, bytes, text, sizeof text))
        snprintf(out, AX_NET_ADDRESS, "an unknown address");
    else if (port < 0)
        snprintf(out, AX_NET_ADDRESS, "%s", text);
    else
        snprintf(out, AX_NET_ADDRESS, six ? "[%s]:%d" : "%s:%d", text, port);
}

void ax_net_own_address(int fd, char out[AX_NET_ADDRESS]) {
    struct sockaddr_storage a = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof a;
    (void)getsockname(fd, (struct sockaddr *)&a, &n);
    address_text(&a, -1, out);
}

/* Errors of the connection that would have been accepted, which is gone, and not of the listening
 * socket (accept(2)). */
static bool of_connection(int error) {
    static const int errors[] = {EINTR,     ECONNABORTED, ENETDOWN,     EPROTO,     ENOPROTOOPT,
                                 EHOSTDOWN, ENONET,       EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (error == errors[i])
            return true;
    return false;
}

int ax_net_accept(int listening, char from[AX_NET_ADDRESS]) {
    struct sockaddr_storage a = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof a;
    const int on = 1;
    const int fd = accept4(listening, (struct sockaddr *)&a, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (of_connection(errno))
            errno = EAGAIN;
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    address_text(&a, port_in(&a), from);
    return fd;
}

void ax_net_log_refused(int *refused, const char *from, const char *where, const char *why) {
    if (++*refused <= MAX_LINES)
        ax_log_warn("refused a connection from %s%s: %s", from, where, why);
    if (*refused == MAX_LINES)
        ax_log_warn("refused %d connections%s; more are not logged", MAX_LINES, where);
}
