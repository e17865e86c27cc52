/* OpenMP for ThreadSanitizer, in such builds only: it cannot see through libgomp, and would report
 * what a parallel region passes to its threads and back as races. These functions wrap libgomp's
 * and tell it what happens before what. */
#ifdef __SANITIZE_THREAD__

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>
#include <stddef.h>

/* The names and types are libgomp's. */
void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);
void GOMP_critical_start(void);
void GOMP_critical_end(void);
void GOMP_barrier(void);
void GOMP_loop_end(void);

static void *libgomp(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

struct region {
    void (*body)(void *);
    void *data;
    char fork, join; /* addresses to synchronize on */
};

static void in_region(void *arg) {
    struct region *r = arg;
    __tsan_acquire(&r->fork);
    r->body(r->data);
    __tsan_release(&r->join);
}

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags) {
    void (*real)(void (*)(void *), void *, unsigned, unsigned);
    *(void **)&real = libgomp("GOMP_parallel");
    struct region r = {.body = body, .data = data};
    __tsan_release(&r.fork);
    real(in_region, &r, threads, flags);
    __tsan_acquire(&r.join);
}

static char critical, barrier;

static void call(const char *name) {
    void (*real)(void);
    *(void **)&real = libgomp(name);
    real();
}

void GOMP_critical_start(void) {
    call("GOMP_critical_start");
    __tsan_acquire(&critical);
}

void GOMP_critical_end(void) {
    __tsan_release(&critical);
    call("GOMP_critical_end");
}

void GOMP_barrier(void) {
    __tsan_release(&barrier);
    call("GOMP_barrier");
    __tsan_acquire(&barrier);
}

/* The end of a shared loop is a barrier. */
void GOMP_loop_end(void) {
    __tsan_release(&barrier);
    call("GOMP_loop_end");
    __tsan_acquire(&barrier);
}

#endif
