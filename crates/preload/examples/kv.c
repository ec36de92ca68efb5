/* A key-value server that snapshots itself without a pause and without twice its memory.
 *
 *     cc kv.c -o kv -lariel_segment -lpthread
 *     ./kv 127.0.0.1:7000:/ 256 snapshot.out
 *
 * It sets random keys of a table of so many MiB, one after the other. In the middle it forks the
 * table (COW-COR), and a second thread writes the child to a file, giving up each part that is
 * written, while the first goes on. It prints how long the slowest of 1000 sets took before and
 * during the snapshot, and how much memory the two tables had at the most.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../include/segment.h"

enum { SETS = 20000, PART = 1 << 20 };

static ariel_segment *table, *snapshot;
static atomic_int done;
static const char *target;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "kv: %s: %s\n", what, ariel_error());
        exit(1);
    }
}

static void *save(void *unused)
{
    const char *from = ariel_segment_address(snapshot);
    size_t bytes = ariel_segment_bytes(snapshot);
    FILE *file = fopen(target, "wb");
    check(file != NULL, target);
    for (size_t at = 0; at < bytes; at += PART) {
        size_t part = bytes - at < PART ? bytes - at : PART;
        check(fwrite(from + at, 1, part, file) == part, target);
        check(ariel_segment_discard(snapshot, at, part) == 0, "discard");
    }
    check(fclose(file) == 0, target);
    atomic_store(&done, 1);
    return unused;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sets keys until `until` says so, or so often; prints what they took. */
static void set_keys(const char *when, atomic_int *until)
{
    static double took[1 << 22];
    uint64_t *words = ariel_segment_address(table);
    size_t count = ariel_segment_bytes(table) / sizeof *words, sets = 0;
    uint64_t most = 0;
    while (until ? !atomic_load(until) : sets < SETS) {
        size_t key = ((size_t)random() << 16 ^ (size_t)random()) % count;
        double begin = now();
        words[key] += 1;
        if (sets < sizeof took / sizeof *took)
            took[sets] = now() - begin;
        sets++;
        if (sets % 1000 == 0) {
            struct ariel_figures a, b = {0};
            check(ariel_segment_figures(table, &a) == 0, "figures");
            check(!snapshot || ariel_segment_figures(snapshot, &b) == 0, "figures");
            most = a.frames + b.frames > most ? a.frames + b.frames : most;
        }
    }
    size_t kept = sets < sizeof took / sizeof *took ? sets : sizeof took / sizeof *took;
    qsort(took, kept, sizeof *took, by_value);
    printf("%s: %zu sets, p50 %.1f us, p99 %.1f us, p99.9 %.1f us, %.0f MiB in memory\n", when,
           sets, took[kept / 2], took[kept * 99 / 100], took[kept * 999 / 1000], most / 256.0);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: kv ADDR:DIR MIB FILE\n");
        return 2;
    }
    size_t bytes = strtoull(argv[2], NULL, 10) << 20;
    target = argv[3];
    ariel_pager *pager = ariel_pager_start(argv[1], bytes * 2);
    check(pager != NULL, "no pager");
    table = ariel_segment_make(pager, bytes, 0);
    check(table != NULL, "no table");
    uint64_t *words = ariel_segment_address(table);
    for (size_t at = 0; at < bytes / sizeof *words; at++)
        words[at] = at;
    set_keys("idle", NULL);
    double begin = now();
    snapshot = ariel_segment_fork(table, ARIEL_COW_COR, 0);
    check(snapshot != NULL, "no snapshot");
    printf("fork: %.0f us\n", now() - begin);
    pthread_t saver;
    check(pthread_create(&saver, NULL, save, NULL) == 0, "no thread");
    set_keys("while the snapshot is saved", &done);
    pthread_join(saver, NULL);
    ariel_segment_delete(snapshot);
    ariel_segment_delete(table);
    ariel_pager_close(pager);
    return 0;
}
