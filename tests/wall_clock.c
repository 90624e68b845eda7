/* Moves the wall clock of medley's own processes by the seconds that the file WALL_CLOCK has; see wall_clock.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const char OURS[] = "-m\0medley";
static volatile const long long *ahead_s;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
  char words[4096];
  const char *name = getenv("WALL_CLOCK");
  int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t length = read(file, words, sizeof words);
  close(file);
  real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  if (!name || length < 0 || !memmem(words, (size_t)length, OURS, sizeof OURS))
    return;
  file = open(name, O_RDONLY | O_CLOEXEC);
  void *there = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (there != MAP_FAILED)
    ahead_s = there;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = real ? real(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
  if (!failed && ahead_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += *ahead_s;
  return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec found;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &found))
    return -1;
  now->tv_sec = found.tv_sec;
  now->tv_usec = found.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec found;
  if (clock_gettime(CLOCK_REALTIME, &found))
    return -1;
  if (now)
    *now = found.tv_sec;
  return found.tv_sec;
}
