/* How long a thread waits for Python's global lock (the GIL) when it comes at any moment.
 *
 * gil_waits is called without the lock, from a thread that Python knows; PyGILState_* are the running interpreter's.
 * It takes and gives back the lock once after each pause, until *end is set or `most` times are told, and returns how
 * many were: waited_ns[i] is what the i-th time took. */
#include <stdint.h>
#include <time.h>

int PyGILState_Ensure(void);
void PyGILState_Release(int);

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t gil_waits(const volatile int32_t *end, uint32_t pause_ns, uint32_t most, uint32_t *waited_ns)
{
    const struct timespec pause = {0, (long)pause_ns};
    uint32_t count = 0;
    for (; count < most && !*end; count++) {
        nanosleep(&pause, 0);
        const uint64_t start = now_ns();
        const int state = PyGILState_Ensure();
        waited_ns[count] = (uint32_t)(now_ns() - start);
        PyGILState_Release(state);
    }
    return count;
}
