/* A key-value server that snapshots itself without a pause and without twice its memory.
 *
 *     cc kv.c -o kv -lariel_segment -lpthread
 *     ./kv 127.0.0.1:7000:/ 256 snapshot.out
 *     ./kv fork 256 snapshot.out
 *
 * The server has a table of so many MiB, and a client asks it over a socket to set random keys, one
 * after the other. In the middle the server forks the table (COW-COR), and a second thread writes
 * the child to a file, giving up each part that is written, while the server goes on. The program
 * prints how long sets took before and during the snapshot, and how much memory there was at the
 * most. With `fork` the table is ordinary memory, and a child of fork(2) writes it, to compare.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../include/segment.h"

enum { SETS = 20000, PART = 1 << 20, LOOKS = 1000 };
/* A request that is no key. */
static const size_t SNAPSHOT = (size_t)-1, END = (size_t)-2;

static ariel_segment *table, *snapshot;
static uint64_t *words;
static size_t bytes;
static atomic_int done;
static const char *target;
static pthread_t saver;
static pid_t child;

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

static void save(const char *from, int is_segment)
{
    FILE *file = fopen(target, "wb");
    check(file != NULL, target);
    for (size_t at = 0; at < bytes; at += PART) {
        size_t part = bytes - at < PART ? bytes - at : PART;
        check(fwrite(from + at, 1, part, file) == part, target);
        if (is_segment)
            check(ariel_segment_discard(snapshot, at, part) == 0, "discard");
    }
    check(fclose(file) == 0, target);
}

static void *save_segment(void *unused)
{
    save(ariel_segment_address(snapshot), 1);
    atomic_store(&done, 1);
    return unused;
}

static void *await_child(void *unused)
{
    int status;
    check(waitpid(child, &status, 0) == child && status == 0, "the child of fork(2)");
    atomic_store(&done, 1);
    return unused;
}

static void begin_snapshot(void)
{
    if (table) {
        snapshot = ariel_segment_fork(table, ARIEL_COW_COR, 0);
        check(snapshot != NULL, "no snapshot");
    } else {
        child = fork();
        check(child >= 0, "no child");
        if (child == 0) {
            save((char *)words, 0);
            _exit(0);
        }
    }
}

/* The server: one thread, which answers one request after the other. */
static void *serve(void *socket)
{
    size_t key;
    while (read(*(int *)socket, &key, sizeof key) == sizeof key && key != END) {
        if (key == SNAPSHOT) {
            begin_snapshot();
            void *(*saves)(void *) = table ? save_segment : await_child;
            check(pthread_create(&saver, NULL, saves, NULL) == 0, "no thread");
        } else {
            words[key] += 1;
        }
        check(write(*(int *)socket, &key, sizeof key) == sizeof key, "answer");
    }
    return NULL;
}

static double ask(int socket, size_t request)
{
    double begin = now();
    check(write(socket, &request, sizeof request) == sizeof request, "request");
    check(read(socket, &request, sizeof request) == sizeof request, "answer");
    return now() - begin;
}

/* MiB of memory that both processes have, and share half each. */
static double proportional(pid_t process)
{
    char path[64], line[256];
    double kib = 0;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", process);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "Pss: %lf", &kib);
    if (file)
        fclose(file);
    return kib / 1024;
}

static double in_memory(void)
{
    if (!table)
        return proportional(getpid()) + (child ? proportional(child) : 0);
    struct ariel_figures a, b = {0};
    check(ariel_segment_figures(table, &a) == 0, "figures");
    check(!snapshot || ariel_segment_figures(snapshot, &b) == 0, "figures");
    return (a.frames + b.frames) / 256.0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Has keys set until `until` says so, or so often; prints what that took. */
static void set_keys(int socket, const char *when, atomic_int *until)
{
    static double took[1 << 22];
    size_t count = bytes / sizeof *words, sets = 0, kept = sizeof took / sizeof *took;
    double most = 0;
    while (until ? !atomic_load(until) : sets < SETS) {
        double used = ask(socket, ((size_t)random() << 16 ^ (size_t)random()) % count);
        if (sets < kept)
            took[sets] = used;
        if (sets++ % LOOKS == 0) {
            double memory = in_memory();
            most = memory > most ? memory : most;
        }
    }
    kept = sets < kept ? sets : kept;
    check(kept > 0, "no sets");
    qsort(took, kept, sizeof *took, by_value);
    printf("%s: %zu sets, p50 %.1f us, p99 %.1f us, p99.9 %.1f us, most %.0f us, %.0f MiB\n", when,
           sets, took[kept / 2], took[kept * 99 / 100], took[kept * 999 / 1000], took[kept - 1],
           most);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: kv ADDR:DIR|fork MIB FILE\n");
        return 2;
    }
    bytes = strtoull(argv[2], NULL, 10) << 20;
    target = argv[3];
    ariel_pager *pager = NULL;
    if (strcmp(argv[1], "fork") != 0) {
        pager = ariel_pager_start(argv[1], bytes * 2);
        check(pager != NULL, "no pager");
        table = ariel_segment_make(pager, bytes, 0);
        check(table != NULL, "no table");
        words = ariel_segment_address(table);
    } else {
        words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(words != MAP_FAILED, "no memory");
    }
    for (size_t at = 0; at < bytes / sizeof *words; at++)
        words[at] = at;
    int sockets[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "no socket");
    pthread_t server;
    check(pthread_create(&server, NULL, serve, &sockets[1]) == 0, "no thread");
    set_keys(sockets[0], "idle", NULL);
    printf("the fork: %.0f us\n", ask(sockets[0], SNAPSHOT));
    set_keys(sockets[0], "while the snapshot is saved", &done);
    pthread_join(saver, NULL);
    check(write(sockets[0], &END, sizeof END) == sizeof END, "end");
    pthread_join(server, NULL);
    if (table) {
        ariel_segment_delete(snapshot);
        ariel_segment_delete(table);
        ariel_pager_close(pager);
    }
    return 0;
}
