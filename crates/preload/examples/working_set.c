/* A program that uses more memory than it may have, however that is made up for.
 *
 *     cc -O2 working_set.c -o working_set
 *     ariel run --memory 128M --at 127.0.0.1:7000:/ -- ./working_set 256
 *     ./working_set 256 FILE
 *
 * It fills so many MiB of memory (of FILE, mapped, if one is named), uses all of them in a row, and
 * then pages at random for a while, of which a third are written. It knows what each page has to
 * hold. A line tells bytes/s filled and used in a row, uses/s at random and their p50 and p99, and
 * bytes/s of a plain copy in memory at that moment. Half of each page is random bytes.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, COPY = 16 << 20 };

static double took[1 << 22];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void check(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static uint64_t draw(void)
{
    static uint64_t x = 88172645463325252;
    x ^= x << 13;
    x ^= x >> 7;
    return x ^= x << 17;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of some, since one copy may be disturbed. */
static double copy_speed(void)
{
    char *bytes = mmap(NULL, 2 * COPY, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check(bytes != MAP_FAILED, "mmap");
    for (int round = 0; round < 9; round++) {
        double begin = now();
        memcpy(bytes + COPY * (round % 2), bytes + COPY * (1 - round % 2), COPY);
        took[round] = COPY / (now() - begin);
    }
    munmap(bytes, 2 * COPY);
    qsort(took, 9, sizeof *took, by_value);
    return took[4];
}

static volatile uint64_t *memory(size_t bytes, const char *path)
{
    if (!path) {
        void *memory = malloc(bytes);
        check(memory != NULL, "malloc");
        return memory;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    check(fd >= 0 && ftruncate(fd, bytes) == 0, path);
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(mapped != MAP_FAILED, "mmap");
    close(fd);
    return mapped;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: working_set MIB [FILE]\n");
        return 2;
    }
    size_t pages = strtoull(argv[1], NULL, 10) << 8;
    double copied = copy_speed();
    volatile uint64_t *words = memory(pages * PAGE, argv[2]);
    double begin = now();
    for (size_t page = 0; page < pages; page++) {
        words[page * WORDS] = page;
        for (size_t at = 1; at < WORDS / 2; at++)
            words[page * WORDS + at] = draw();
    }
    double filled = pages * PAGE / (now() - begin);
    begin = now();
    for (size_t page = 0; page < pages; page++)
        if (words[page * WORDS] != page) {
            fprintf(stderr, "page %zu is wrong\n", page);
            return 1;
        }
    double in_row = pages * PAGE / (now() - begin);
    begin = now();
    size_t uses = 0;
    double last = begin;
    while (last - begin < 10 && uses < sizeof took / sizeof *took) {
        size_t page = draw() % pages;
        if (words[page * WORDS] != page) {
            fprintf(stderr, "page %zu is wrong\n", page);
            return 1;
        }
        if (uses % 3 == 0)
            words[page * WORDS + 1] = uses;
        double end = now();
        took[uses++] = end - last;
        last = end;
    }
    qsort(took, uses, sizeof *took, by_value);
    printf("{\"filled\": %.0f, \"in_row\": %.0f, \"random\": %.0f, \"p50_us\": %.1f, "
           "\"p99_us\": %.1f, \"copied\": %.0f}\n",
           filled, in_row, uses / (last - begin), took[uses / 2] * 1e6, took[uses * 99 / 100] * 1e6,
           copied);
    return 0;
}
