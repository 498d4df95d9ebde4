// For one process, a clock of the day that is WALL_CLOCK_AHEAD seconds ahead, or behind where that is negative. Every other
// clock stays honest: waiting and counting must not notice. Loaded by LD_PRELOAD in place of libc's own functions.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t ahead(void) {
  const char *seconds = getenv("WALL_CLOCK_AHEAD");
  return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int result = (int)syscall(SYS_gettimeofday, now, zone);
  if (result == 0) now->tv_sec += ahead();
  return result;
}

time_t time(time_t *now) {
  struct timespec read;
  clock_gettime(CLOCK_REALTIME, &read);
  if (now) *now = read.tv_sec;
  return read.tv_sec;
}
