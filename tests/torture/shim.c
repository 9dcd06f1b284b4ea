/* Preloaded into a broker: makes its disk fail and its wall clock jump while it runs.
 *
 * What to do stands in a file that is shared with whoever started the broker (INJECT_CONTROL), and may change at any
 * time. Only files below INJECT_DIRECTORY fail. The monotonic clock is left alone.
 *
 *     cc -shared -fPIC -O2 -o shim.so shim.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    volatile int64_t clock_offset_ns;
    volatile int32_t write_error; /* errno of writes, 0: they succeed */
    volatile int32_t sync_error;
};

static struct control none;
static struct control *control = &none;
static char directory[PATH_MAX];
static size_t directory_length;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (real == NULL) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void prepare(void) {
    const char *path = getenv("INJECT_CONTROL"), *where = getenv("INJECT_DIRECTORY");
    if (path == NULL || where == NULL || strlen(where) >= sizeof directory) return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return;
    strcpy(directory, where);
    directory_length = strlen(directory);
    control = mapped;
}

static int concerns(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path);
    return length > (ssize_t)directory_length && memcmp(path, directory, directory_length) == 0;
}

static int fails(int32_t error, int file) {
    if (error == 0 || !concerns(file)) return 0;
    errno = error;
    return 1;
}

ssize_t write(int file, const void *data, size_t size) {
    REAL(write);
    return fails(control->write_error, file) ? -1 : real(file, data, size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    return fails(control->write_error, file) ? -1 : real(file, data, size, at);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    REAL(pwrite64);
    return fails(control->write_error, file) ? -1 : real(file, data, size, at);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(writev);
    return fails(control->write_error, file) ? -1 : real(file, parts, count);
}

int ftruncate(int file, off_t size) {
    REAL(ftruncate);
    return fails(control->write_error, file) ? -1 : real(file, size);
}

int ftruncate64(int file, off64_t size) {
    REAL(ftruncate64);
    return fails(control->write_error, file) ? -1 : real(file, size);
}

int posix_fallocate(int file, off_t from, off_t size) {
    REAL(posix_fallocate);
    return fails(control->write_error, file) ? errno : real(file, from, size);
}

int posix_fallocate64(int file, off64_t from, off64_t size) {
    REAL(posix_fallocate64);
    return fails(control->write_error, file) ? errno : real(file, from, size);
}

int fsync(int file) {
    REAL(fsync);
    return fails(control->sync_error, file) ? -1 : real(file);
}

int fdatasync(int file) {
    REAL(fdatasync);
    return fails(control->sync_error, file) ? -1 : real(file);
}

int clock_gettime(clockid_t which, struct timespec *found) {
    REAL(clock_gettime);
    int status = real(which, found);
    if (status == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t nanos = (int64_t)found->tv_sec * 1000000000 + found->tv_nsec + control->clock_offset_ns;
        found->tv_sec = nanos / 1000000000;
        found->tv_nsec = nanos % 1000000000;
    }
    return status;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return status;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found != NULL) *found = now.tv_sec;
    return now.tv_sec;
}
