/* Segments: memory that is paged to files of a cell, and forked without being copied.
 *
 * Link with -lariel_segment. A program that uses a segment has a pager, another process; if that
 * dies, the program ends with exit code 70, and never reads a page that is not its own.
 *
 * Functions that return a pointer return NULL on failure, those that return an int -1;
 * ariel_error() says why, for the calling thread. Any number of threads may use a segment; it is
 * deleted once, and used no more then.
 */
#ifndef ARIEL_SEGMENT_H
#define ARIEL_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ariel_pager ariel_pager;
typedef struct ariel_segment ariel_segment;

/* How a fork copies. */
enum ariel_fork {
    ARIEL_COPY = 0,         /* every page at once */
    ARIEL_ON_WRITE = 1,     /* a page when one side writes it */
    ARIEL_ON_REFERENCE = 2, /* a page when the child refers to it or the parent writes it */
    ARIEL_COW_COR = 3       /* the same, but the parent's write copies for one child alone */
};

struct ariel_figures {
    uint64_t bytes;  /* size; all others in pages of 4 KiB */
    uint64_t frames; /* in memory */
    uint64_t limit;  /* most frames; 0: no limit of its own */
    uint64_t dirty;  /* in memory, and changed since they were stored */
    uint64_t stored; /* in a file */
    uint64_t shared; /* a relative's */
};

/* Starts a pager of so many bytes of memory (the program `ariel`, or $ARIEL). `at`: a directory of
 * a server's tree, such as "127.0.0.1:7000:/"; or a local one, such as "/var/tmp". The pager ends
 * with the last program that uses it. */
ariel_pager *ariel_pager_start(const char *at, uint64_t memory);
/* Uses a pager that another process has started. */
ariel_pager *ariel_pager_connect(const char *socket);
/* Its socket, to be given to another process; valid until the pager is closed. */
const char *ariel_pager_socket(const ariel_pager *pager);
/* Segments that are still there go on. */
void ariel_pager_close(ariel_pager *pager);

/* A segment of zeros. `limit`: the most frames it may use, at least 16; 0: no limit of its own. */
ariel_segment *ariel_segment_make(ariel_pager *pager, uint64_t bytes, uint64_t limit);
/* A child with the content that the parent has now: a snapshot, until it is written. */
ariel_segment *ariel_segment_fork(const ariel_segment *parent, enum ariel_fork kind,
                                  uint64_t limit);
/* The same of any segment of the pager, also of another process, by its number. */
ariel_segment *ariel_segment_fork_number(ariel_pager *pager, uint32_t parent,
                                         enum ariel_fork kind, uint64_t limit);
void ariel_segment_delete(ariel_segment *segment);

void *ariel_segment_address(const ariel_segment *segment);
size_t ariel_segment_bytes(const ariel_segment *segment);
uint32_t ariel_segment_number(const ariel_segment *segment);
/* Whole pages become zeros, and cost nothing any more. */
int ariel_segment_discard(ariel_segment *segment, size_t offset, size_t bytes);
int ariel_segment_limit(const ariel_segment *segment, uint64_t limit);
int ariel_segment_figures(const ariel_segment *segment, struct ariel_figures *figures);

/* Why this thread's last call failed. Valid until its next one. */
const char *ariel_error(void);

#ifdef __cplusplus
}
#endif
#endif
