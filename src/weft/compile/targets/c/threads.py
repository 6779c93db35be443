"""Running the parallel loops of a C file: by one thread, or by some with a macro.

With ``-DMODEL_THREADS=4``, three POSIX threads wait for work beside the caller's. They
begin with the first call that is worth it, and end with the process. A call that finds
them busy with another model runs alone.
"""

from __future__ import annotations

OPERATIONS = 1 << 16  # that are worth waking threads for, which takes microseconds


def run_function(prefix: str) -> str:
    """The C function that runs a kernel's iterations."""
    return _TEXT.replace("@THREADS", f"{prefix}_THREADS").replace(
        "@OPERATIONS", str(OPERATIONS)
    )


_TEXT = """\
typedef int job(void *const *p, const int64_t *n, int64_t begin, int64_t end);

#if defined(@THREADS) && @THREADS > 1
#include <pthread.h>

static struct {
  pthread_mutex_t busy, lock;
  pthread_cond_t go, done;
  job *work;
  void *const *p;
  const int64_t *n;
  int64_t count;
  unsigned round;
  int started, running, failed;
} pool = {
  PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER,
  PTHREAD_COND_INITIALIZER, NULL, NULL, NULL, 0, 0, 0, 0, 0
};

static int part(int64_t which) {
  const int64_t all = pool.started + 1;
  const int64_t begin = pool.count * which / all, end = pool.count * (which + 1) / all;
  return begin < end ? pool.work(pool.p, pool.n, begin, end) : 0;
}

static void *worker(void *which) {
  unsigned round = 0;
  pthread_mutex_lock(&pool.lock);
  for (;;) {
    while (pool.round == round) pthread_cond_wait(&pool.go, &pool.lock);
    round = pool.round;
    pthread_mutex_unlock(&pool.lock);
    const int failed = part((int64_t)(intptr_t)which);
    pthread_mutex_lock(&pool.lock);
    pool.failed |= failed;
    if (--pool.running == 0) pthread_cond_signal(&pool.done);
  }
  return NULL;
}

static void start_threads(void) {
  while (pool.started < @THREADS - 1) {
    pthread_t thread;
    void *const which = (void *)(intptr_t)(pool.started + 1);
    if (pthread_create(&thread, NULL, worker, which) != 0) break;
    pthread_detach(thread);
    pool.started++;
  }
}

static int run(job *work, void *const *p, const int64_t *n, int64_t count,
               int64_t operations) {
  if (count < 2 || operations < @OPERATIONS) return work(p, n, 0, count);
  if (pthread_mutex_trylock(&pool.busy) != 0) return work(p, n, 0, count);
  pthread_mutex_lock(&pool.lock);
  if (pool.round == 0) start_threads();
  pool.work = work, pool.p = p, pool.n = n, pool.count = count;
  pool.failed = 0, pool.running = pool.started, pool.round++;
  pthread_cond_broadcast(&pool.go);
  pthread_mutex_unlock(&pool.lock);
  const int mine = part(0);
  pthread_mutex_lock(&pool.lock);
  while (pool.running > 0) pthread_cond_wait(&pool.done, &pool.lock);
  const int failed = mine || pool.failed;
  pthread_mutex_unlock(&pool.lock);
  pthread_mutex_unlock(&pool.busy);
  return failed;
}
#else
static int run(job *work, void *const *p, const int64_t *n, int64_t count,
               int64_t operations) {
  (void)operations;
  return work(p, n, 0, count);
}
#endif
"""
