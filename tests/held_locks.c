/* In every test program: a mutex that is unlocked has been locked, and none is destroyed while somebody
 * holds it. Stands before the library's functions, as a program is searched first. A thread sanitizer has
 * checks of its own. */
#ifndef __SANITIZE_THREAD__

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef int mutex_function(pthread_mutex_t *m);

static mutex_function *next(const char *name) {
    mutex_function *f;
    *(void **)&f = dlsym(RTLD_NEXT, name);
    return f;
}

static void require(int is, const char *what) {
    if (is)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* Owner: the C library's own note, which it makes for mutexes of every kind, 0 for nobody. */
int pthread_mutex_unlock(pthread_mutex_t *m) {
    static mutex_function *unlock;
    if (!unlock)
        unlock = next("pthread_mutex_unlock");
    require(m->__data.__owner != 0, "a mutex is unlocked that nobody has locked");
    return unlock(m);
}

int pthread_mutex_destroy(pthread_mutex_t *m) {
    const int error = next("pthread_mutex_destroy")(m);
    require(error != EBUSY, "a mutex is destroyed while somebody holds it");
    return error;
}

#endif
