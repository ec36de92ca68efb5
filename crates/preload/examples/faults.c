/* The cost of a segment's fault.
 *
 *     cc -O2 faults.c -o faults -lariel_segment
 *     ./faults 127.0.0.1:7000:/ 256
 *
 * It makes a segment of so many MiB that may have half of it in memory, and prints how long single
 * uses of pages took: the first use; one of a page that a fork shares, by the child; one of a page
 * in the backing store, at random. Then how fast all of it is read from one end to the other when
 * nothing is in memory, and how many random uses (a third of them writes) it serves in a second.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../include/segment.h"

enum { PAGE = 4096, USES = 10000 };

static double took[1 << 20];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "faults: %s: %s\n", what, ariel_error());
        exit(1);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(const char *what, size_t count)
{
    qsort(took, count, sizeof *took, by_value);
    printf("%-34s p50 %7.1f us   p90 %7.1f us   p99 %7.1f us\n", what, took[count / 2],
           took[count * 9 / 10], took[count * 99 / 100]);
}

/* All but a few pages go to the backing store. */
static void push_out(ariel_segment *segment, uint64_t limit)
{
    struct ariel_figures figures;
    do {
        check(ariel_segment_limit(segment, 16) == 0, "limit");
        check(ariel_segment_figures(segment, &figures) == 0, "figures");
    } while (figures.frames > 16);
    check(ariel_segment_limit(segment, limit) == 0, "limit");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: faults ADDR:DIR MIB\n");
        return 2;
    }
    size_t bytes = strtoull(argv[2], NULL, 10) << 20, pages = bytes / PAGE;
    size_t limit = pages / 2, uses = limit / 2 < USES ? limit / 2 : USES;
    ariel_pager *pager = ariel_pager_start(argv[1], bytes * 2);
    check(pager != NULL, "no pager");
    ariel_segment *segment = ariel_segment_make(pager, bytes, limit);
    check(segment != NULL, "no segment");
    volatile char *memory = ariel_segment_address(segment);
    for (size_t at = 0; at < uses; at++) {
        double begin = now();
        memory[at * PAGE] = 1;
        took[at] = now() - begin;
    }
    tell("first use of a page", uses);
    ariel_segment *child = ariel_segment_fork(segment, ARIEL_COW_COR, 0);
    check(child != NULL, "no child");
    volatile char *copy = ariel_segment_address(child);
    for (size_t at = 0; at < uses; at++) {
        size_t page = at * 7919 % uses;
        double begin = now();
        (void)copy[page * PAGE];
        took[at] = now() - begin;
    }
    tell("child's first use of a page", uses);
    ariel_segment_delete(child);
    for (size_t page = 0; page < pages; page++)
        memory[page * PAGE] = (char)page;
    push_out(segment, limit);
    for (size_t at = 0; at < uses; at++) {
        size_t page = at * 7919 % pages;
        double begin = now();
        check(memory[page * PAGE] == (char)page, "wrong content");
        took[at] = now() - begin;
    }
    tell("a page in the backing store", uses);
    push_out(segment, limit);
    double begin = now();
    for (size_t page = 0; page < pages; page++)
        check(memory[page * PAGE] == (char)page, "wrong content");
    printf("%-34s %.2f GB/s\n", "all pages, one after the other", bytes / (now() - begin) / 1e3);
    begin = now();
    size_t count = 0;
    for (; now() - begin < 5e6; count++) {
        size_t page = ((size_t)random() << 16 ^ (size_t)random()) % pages;
        if (count % 3 == 0)
            memory[page * PAGE + 8] = 1;
        else
            (void)memory[page * PAGE];
    }
    printf("%-34s %.0f uses/s\n", "at random, half of it in memory", count / 5.0);
    ariel_segment_delete(segment);
    ariel_pager_close(pager);
    return 0;
}
