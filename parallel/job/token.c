#include "parallel/job/token.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash/hash.h"
#include "base/rng.h"

enum ax_status ax_token_random(char token[AX_TOKEN_MAX + 1]) {
    unsigned char bits[16];
    AX_TRY(ax_random_bytes(bits, sizeof bits));
    ax_hex(token, bits, sizeof bits);
    return AX_OK;
}

/* Trims white space at the end, as of a file's last line. */
static enum ax_status take(char token[AX_TOKEN_MAX + 1], const char *name, const char *text,
                           size_t n) {
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    if (n < AX_TOKEN_MIN || n > AX_TOKEN_MAX || memchr(text, '\0', n))
        return ax_error(AX_ERR_CONFIG,
                        "%s: expected a token of %d to %d characters, such as `openssl rand -hex "
                        "16` prints",
                        name, AX_TOKEN_MIN, AX_TOKEN_MAX);
    memcpy(token, text, n);
    token[n] = '\0';
    return AX_OK;
}

static enum ax_status from_fd(char token[AX_TOKEN_MAX + 1], const char *value) {
    char text[AX_TOKEN_MAX + 2], *end;
    const long fd = strtol(value, &end, 10);
    const ssize_t n =
        *end || end == value || fd < 3 || fd > 1 << 20 ? -1 : pread((int)fd, text, sizeof text, 0);
    if (n < 0)
        return ax_error(AX_ERR_CONFIG,
                        "AXTRAIN_TOKEN_FD: cannot read descriptor \"%.20s\". `axtrain launch` sets "
                        "it; start ranks with that, or unset it.",
                        value);
    (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC); /* not for this rank's own children */
    return take(token, "AXTRAIN_TOKEN_FD", text, (size_t)n);
}

static enum ax_status from_file(char token[AX_TOKEN_MAX + 1], const char *path) {
    char text[AX_TOKEN_MAX + 2];
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ax_error(AX_ERR_CONFIG, "AXTRAIN_TOKEN_FILE: %s: %s", path, strerror(errno));
    const bool known = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    const ssize_t n = known ? pread(fd, text, sizeof text, 0) : -1;
    close(fd);
    if (n < 0)
        return ax_error(AX_ERR_CONFIG, "AXTRAIN_TOKEN_FILE: %s is not a file that can be read",
                        path);
    if ((info.st_mode & 077) != 0)
        return ax_error(AX_ERR_CONFIG,
                        "AXTRAIN_TOKEN_FILE: other users have access to %s (mode %04o); run "
                        "`chmod 600 %s`",
                        path, (unsigned)info.st_mode & 07777U, path);
    return take(token, "AXTRAIN_TOKEN_FILE", text, (size_t)n);
}

/* Kept, because a process may open its world more than once. */
static enum ax_status from_text(char token[AX_TOKEN_MAX + 1], const char *value) {
    static char kept[AX_TOKEN_MAX + 1];
    if (value) {
        AX_TRY(take(kept, "AXTRAIN_TOKEN", value, strlen(value)));
        unsetenv("AXTRAIN_TOKEN");
    }
    snprintf(token, AX_TOKEN_MAX + 1, "%s", kept);
    return AX_OK;
}

enum ax_status ax_token_find(char token[AX_TOKEN_MAX + 1]) {
    const char *fd = getenv("AXTRAIN_TOKEN_FD"), *file = getenv("AXTRAIN_TOKEN_FILE");
    const char *text = getenv("AXTRAIN_TOKEN");
    token[0] = '\0';
    if (fd)
        return from_fd(token, fd);
    if (file && text)
        return ax_error(AX_ERR_CONFIG,
                        "AXTRAIN_TOKEN_FILE and AXTRAIN_TOKEN are both set; unset one of them");
    return file ? from_file(token, file) : from_text(token, text);
}

enum ax_status ax_token_needed(const char *host) {
    return ax_error(AX_ERR_CONFIG,
                    "the ranks would meet at %s, which other hosts can reach, and have no token to "
                    "recognize each other. Add to the batch script, before srun or mpirun:\n"
                    "    umask 077; openssl rand -hex 16 > \"$HOME/.axtrain-token\"\n"
                    "    export AXTRAIN_TOKEN_FILE=\"$HOME/.axtrain-token\"",
                    host);
}

void ax_token_key(unsigned char key[AX_STORE_KEY_BYTES], const char *token, const char *job) {
    ax_hmac((const unsigned char *)token, strlen(token), "axtrain store 1", 15, job, strlen(job),
            key);
}
